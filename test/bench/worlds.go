package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// worlds has the steps of a script's processes: each writes its steps to a file of a directory,
// named by its pid.
type worlds struct {
	dir  string
	logs map[int]*stepLog // logs of living processes, by pid
	all  map[int64]*world
	// when each process had imported what its script imports, by pid
	lines map[int]time.Time
	// each process's newest step, by pid
	newestSteps map[int]time.Time
	gaps        []gap
}

// gap is the time between two consecutive steps of one process.
type gap struct {
	pid      int
	from, to time.Time
}

// world is a set of processes that step together.
type world struct {
	size   int
	firsts map[int]time.Time // each process's first step in it, by pid
	last   time.Time         // time of the newest step
	steps  int               // number of steps of all processes
}

// complete returns the time at which the last of its processes had stepped; zero if one has not.
func (w *world) complete() time.Time {
	if len(w.firsts) < w.size {
		return time.Time{}
	}
	return slices.MaxFunc(slices.Collect(maps.Values(w.firsts)), time.Time.Compare)
}

func newWorlds(dir string) (*worlds, error) {
	return &worlds{dir: dir, logs: make(map[int]*stepLog), all: make(map[int64]*world), lines: make(map[int]time.Time),
		newestSteps: make(map[int]time.Time)}, os.MkdirAll(dir, 0o755)
}

// read reads the new steps.
func (s *worlds) read() error {
	paths, _ := filepath.Glob(filepath.Join(s.dir, "*.steps")) // the pattern is valid
	for _, path := range paths {
		pid, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(path), ".steps"))
		if err != nil {
			return err
		}
		l := s.logs[pid]
		if l == nil {
			l = &stepLog{path: path, parse: parseScriptStep}
			s.logs[pid] = l
		}
		// checked before reading, so that its last steps are read
		ended := !alive(pid)
		if err := l.read(); err != nil {
			return err
		}
		for _, step := range l.steps {
			s.note(pid, step)
		}
		l.steps = nil
		if ended {
			delete(s.logs, pid)
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *worlds) note(pid int, step step) {
	if step.size == 0 {
		s.lines[pid] = step.at
		return
	}
	if last, stepped := s.newestSteps[pid]; stepped {
		s.gaps = append(s.gaps, gap{pid, last, step.at})
	}
	s.newestSteps[pid] = step.at
	w := s.all[step.world]
	if w == nil {
		w = &world{size: step.size, firsts: make(map[int]time.Time)}
		s.all[step.world] = w
	}
	if _, stepped := w.firsts[pid]; !stepped {
		w.firsts[pid] = step.at
	}
	if step.at.After(w.last) {
		w.last = step.at
	}
	w.steps++
}

// perStep returns the mean time of a step until now, not counting the first of each process; 0 if
// there was no other.
func (w *world) perStep() time.Duration {
	others := w.steps/w.size - 1
	if w.complete().IsZero() || others < 1 {
		return 0
	}
	return w.last.Sub(w.complete()) / time.Duration(others)
}

// parseScriptStep parses a line of peers/workload.py. The size is 0 for a script's first line.
func parseScriptStep(line []byte) (s step, ok bool) {
	var seconds float64
	_, err := fmt.Sscanf(string(line), "STEP %d %d %f", &s.size, &s.world, &seconds)
	if err != nil {
		_, err = fmt.Sscanf(string(line), "FIRST %f", &seconds)
	}
	s.at = time.UnixMicro(int64(seconds * 1e6))
	return s, err == nil
}

// newest returns the world of the newest step, or nil if there is none.
func (s *worlds) newest() *world {
	var found *world
	for _, w := range s.all {
		if found == nil || w.last.After(found.last) {
			found = w
		}
	}
	return found
}

// await waits until a condition on the steps is true.
func (s *worlds) await(ctx context.Context, what string, limit time.Duration, is func() bool) error {
	return await(ctx, what, limit, func() (bool, error) {
		if err := s.read(); err != nil {
			return false, err
		}
		return is(), nil
	})
}

// whole waits until size processes step in one world, and returns it.
func (s *worlds) whole(ctx context.Context, size int) (w *world, err error) {
	err = s.await(ctx, fmt.Sprintf("step of %d processes in one world", size), 2*time.Minute, func() bool {
		w = s.newest()
		return w != nil && w.size == size && !w.complete().IsZero() &&
			!slices.ContainsFunc(slices.Collect(maps.Keys(w.firsts)), func(pid int) bool {
				return !alive(pid)
			})
	})
	return w, err
}

// errNever reports that no process has stepped again in time.
var errNever = errors.New("no step")

// pause returns the longest time for which all stood still after a moment until a world was
// complete: each time from a step in one world until another was complete. torchft has a world in
// between, in which the others step while the newcomer takes their state.
func (s *worlds) pause(since time.Time, until *world) (longest time.Duration) {
	for _, w := range s.all {
		at := w.complete()
		if w != until && (!at.After(since) || at.After(until.complete())) {
			continue
		}
		var last time.Time
		for _, other := range s.all {
			if other != w && other.last.After(last) && other.last.Before(at) {
				last = other.last
			}
		}
		longest = max(longest, at.Sub(last))
	}
	return longest
}

// longestStep returns the longest time between two steps of one process that was there at a moment
// and is in the given world, until that world was complete; 0 if there is no such process.
func (s *worlds) longestStep(since time.Time, until *world) (longest time.Duration) {
	for _, g := range s.gaps {
		if _, survives := until.firsts[g.pid]; survives && g.to.After(since) && !g.to.After(until.complete()) {
			longest = max(longest, g.to.Sub(g.from))
		}
	}
	return longest
}

// after does something to the processes of the newest world, and returns the time until all
// processes of another world, which has least or more of them, had stepped.
func (s *worlds) after(ctx context.Context, least int, limit time.Duration, do func() error) (time.Duration, error) {
	if err := s.read(); err != nil {
		return 0, err
	}
	before := maps.Clone(s.all)
	start := time.Now()
	if err := do(); err != nil {
		return 0, err
	}
	var first time.Time
	err := await(ctx, "step of all in another world", limit, func() (bool, error) {
		if err := s.read(); err != nil {
			return false, err
		}
		for number, w := range s.all {
			if at := w.complete(); before[number] == nil && w.size >= least && !at.IsZero() &&
				(first.IsZero() || at.Before(first)) {
				first = at
			}
		}
		if first.IsZero() && time.Since(start) > limit-time.Second {
			return false, errNever
		}
		return !first.IsZero(), nil
	})
	return first.Sub(start), err
}

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	state, _, err := processState(pid)
	return err == nil && state != 'Z' && state != 'X'
}

// processState returns a process's state letter of Linux, and its parent.
func processState(pid int) (state byte, parent int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	// The name before it may contain any character, and ends with the last parenthesis.
	_, err = fmt.Sscanf(string(text[strings.LastIndexByte(string(text), ')')+1:]), " %c %d", &state, &parent)
	return state, parent, err
}

// tree returns a process and all of its descendants.
func tree(pid int) []int {
	children := make(map[int][]int)
	paths, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	for _, path := range paths {
		child, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			continue
		}
		if _, parent, err := processState(child); err == nil {
			children[parent] = append(children[parent], child)
		}
	}
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

// signalAll sends a signal to processes, in the given order.
func signalAll(pids []int, s syscall.Signal) error {
	for _, pid := range pids {
		if err := syscall.Kill(pid, s); err != nil && err != syscall.ESRCH {
			return fmt.Errorf("signal %v to process %d: %w", s, pid, err)
		}
	}
	return nil
}
