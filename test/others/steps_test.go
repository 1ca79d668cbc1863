//go:build torch

package others_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// step is an update of the model by one process, as the probe has noted it.
type step struct {
	at               time.Time
	pid, rank, world int
}

// steps returns the steps of all processes, by time.
func (r *run) steps() (all []step) {
	files, _ := filepath.Glob(filepath.Join(r.dir, "steps", "*")) // the pattern is valid
	for _, path := range files {
		pid, _ := strconv.Atoi(filepath.Base(path))
		text, _ := os.ReadFile(path) // it was there
		for line := range strings.Lines(string(text)) {
			words := strings.Fields(line)
			if len(words) != 4 || !strings.HasSuffix(line, "\n") {
				continue
			}
			at, _ := strconv.ParseFloat(words[0], 64)
			rank, _ := strconv.Atoi(words[1])
			world, _ := strconv.Atoi(words[2])
			all = append(all, step{time.UnixMicro(int64(at * 1e6)), pid, rank, world})
		}
	}
	slices.SortFunc(all, func(a, b step) int { return a.at.Compare(b.at) })
	return all
}

// world returns the newest step of each process that lives, by rank.
func (r *run) world() []step {
	newest := make(map[int]step)
	for _, s := range r.steps() {
		if syscall.Kill(s.pid, 0) == nil {
			newest[s.pid] = s
		}
	}
	var all []step
	for _, s := range newest {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b step) int { return a.rank - b.rank })
	return all
}

// whole waits until a world of that size steps, of which at least one process has no step before
// that time, and none was lost. It returns the time since which all of its new processes have
// stepped: the others step with them.
func (r *run) whole(since time.Time, size int, lost []int) time.Time {
	r.t.Helper()
	var all time.Time
	r.eventually("step of a world of "+strconv.Itoa(size), quietLimit, func() bool {
		first, newest, before := make(map[int]time.Time), make(map[int]step), make(map[int]bool)
		for _, s := range r.steps() {
			switch {
			case s.at.Before(since):
				before[s.pid] = true
			case s.world == size && syscall.Kill(s.pid, 0) == nil && !slices.Contains(lost, s.pid):
				if _, had := first[s.pid]; !had {
					first[s.pid] = s.at
				}
				newest[s.pid] = s
			}
		}
		all = time.Time{}
		ranks := make(map[int]bool)
		for pid, s := range newest {
			ranks[s.rank] = true
			if !before[pid] && first[pid].After(all) {
				all = first[pid]
			}
		}
		return len(newest) == size && len(ranks) == size && !all.IsZero()
	})
	return all
}

// settle waits until the program has trained for a while since its last disturbance, and has
// written a checkpoint meanwhile, if it writes any.
func (r *run) settle() {
	r.t.Helper()
	began := time.Now()
	if r.program.checkpoint != "" {
		r.eventually("checkpoint "+r.program.checkpoint, quietLimit, func() bool {
			paths, _ := filepath.Glob(filepath.Join(r.dir, r.program.checkpoint)) // the pattern is valid
			return slices.ContainsFunc(paths, func(path string) bool {
				info, err := os.Stat(path)
				return err == nil && info.ModTime().After(began)
			})
		})
	}
	r.eventually("training", quietLimit, func() bool { return time.Since(began) > *pause })
}

// longest returns the longest time between two steps of a process that was not lost.
func (r *run) longest(from, to time.Time, had []step) (longest time.Duration) {
	for _, kept := range had {
		if syscall.Kill(kept.pid, 0) != nil {
			continue
		}
		last := kept.at
		for _, s := range r.steps() {
			if s.pid == kept.pid && s.at.After(kept.at) && !s.at.After(to.Add(time.Second)) {
				longest = max(longest, s.at.Sub(last))
				last = s.at
			}
		}
	}
	return longest
}

// parent returns the parent of a process, 0 if it has ended.
func parent(pid int) int {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')'):]), ") ")
	words := strings.Fields(rest)
	if len(words) < 2 {
		return 0
	}
	number, _ := strconv.Atoi(words[1])
	return number
}

// under reports whether a process descends from another one.
func under(pid, ancestor int) bool {
	for pid > 1 && pid != ancestor {
		pid = parent(pid)
	}
	return pid == ancestor
}

// processesOf returns the processes that have an ELASTICDL_HOME, as those of its jobs have.
func processesOf(home string) (pids []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is valid
	for _, path := range paths {
		env, _ := os.ReadFile(path) // a process that has ended has none
		if slices.Contains(strings.Split(string(env), "\x00"), "ELASTICDL_HOME="+home) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}
