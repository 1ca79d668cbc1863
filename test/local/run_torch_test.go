//go:build torch

package local_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/test/torch"
	"github.com/elasticdl/elasticdl/trainer/runtime/local"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// runLimit is the time for which one of these jobs may have no output: a job that hangs prints what
// it was doing.
const runLimit = 3 * time.Minute

// script starts a job of three workers that runs a script of testdata; its first argument is a
// directory of the job's own.
func script(t *testing.T, python torch.Python, name string, args []string, flags ...string) *launched {
	t.Helper()
	return scriptIn(t, python, name, t.TempDir(), args, flags...)
}

// scriptIn starts such a job with a given directory, which may have a checkpoint.
func scriptIn(t *testing.T, python torch.Python, name, dir string, args []string, flags ...string) *launched {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return scriptAt(t, python.Path, path, dir, args, flags...)
}

// scriptAt starts such a job with the script of a path.
func scriptAt(t *testing.T, python, path, dir string, args []string, flags ...string) *launched {
	t.Helper()
	t.Setenv("OMP_NUM_THREADS", "1")
	j := launch(t, slices.Concat([]string{"run", "--num_workers=3"}, flags,
		[]string{"--", filepath.Join(filepath.Dir(python), "python3"), path, dir}, args)...)
	eventually(t, "first status", time.Minute, func() bool {
		_, err := local.Status(t.Context(), j.name)
		return err == nil
	})
	ended := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		defer close(ended)
		j.wait()
	})
	watch.Go(func() { j.guard(ended) })
	t.Cleanup(func() {
		j.cmd.Process.Kill()
		watch.Wait()
	})
	return j
}

// guard ends a job that hangs: one whose processes have had no output for too long.
func (j *launched) guard(ended <-chan struct{}) {
	said, at := 0, time.Now()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ended:
			return
		case now := <-ticker.C:
			if n := len(j.log("")); n != said {
				said, at = n, now
			} else if now.Sub(at) > runLimit {
				j.t.Errorf("no word for %v: %v", runLimit, j.everybody())
				j.cmd.Process.Signal(os.Interrupt)
				return
			}
		}
	}
}

// enough tells the script to end.
func (j *launched) enough() {
	j.t.Helper()
	if err := os.WriteFile(filepath.Join(j.dir(), "enough"), nil, 0o644); err != nil {
		j.t.Fatal(err)
	}
}

// dir returns the directory that the script got.
func (j *launched) dir() string { return j.cmd.Args[slices.Index(j.cmd.Args, "--")+3] }

// everybody returns the processes of the job, including the launcher's, with their command lines.
func (j *launched) everybody() map[int]string { return processesOf(j.home) }

// processesOf returns the processes that have an ELASTICDL_HOME, as those of its jobs and their
// descendants have, with their command lines.
func processesOf(home string) map[int]string {
	all := make(map[int]string)
	paths, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is valid
	for _, path := range paths {
		// a process that has ended, or a zombie, has none
		env, _ := os.ReadFile(path)
		if slices.ContainsFunc(bytes.Split(env, []byte{0}), func(v []byte) bool {
			return string(v) == "ELASTICDL_HOME="+home
		}) {
			cmdline, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			all[pid] = strings.ReplaceAll(string(cmdline), "\x00", " ")
		}
	}
	return all
}

// pythons returns the processes of the script, and the fork servers from which they are forked.
func (j *launched) pythons() []int { return pythonsOf(j.home) }

func pythonsOf(home string) (pids []int) {
	for pid, cmdline := range processesOf(home) {
		if !strings.HasPrefix(cmdline, program+" ") {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// nobody waits until no process of the job is left.
func (j *launched) nobody() {
	j.t.Helper()
	var left map[int]string
	j.t.Cleanup(func() {
		if len(left) > 0 {
			j.t.Logf("processes are left: %v", left)
		}
	})
	eventually(j.t, "end of all processes", runLimit, func() bool {
		left = j.everybody()
		return len(left) == 0
	})
}

// stepped is a step as a script's process reports it.
type stepped struct{ step, rank, world, pid int }

var steppedLine = regexp.MustCompile(`step (\d+) rank (\d+) world (\d+) pid (\d+)`)

// steps returns the steps that the script's processes have reported, worker by worker.
func (j *launched) steps() (all []stepped) {
	for _, m := range steppedLine.FindAllStringSubmatch(j.log(""), -1) {
		var s stepped
		for i, to := range []*int{&s.step, &s.rank, &s.world, &s.pid} {
			*to, _ = strconv.Atoi(m[1+i]) // the pattern matches digits only
		}
		all = append(all, s)
	}
	return all
}

// whole waits until size processes, none of them in without, step together, and returns their pids
// by rank.
func (j *launched) whole(size int, without ...int) []int {
	j.t.Helper()
	var pids []int
	eventually(j.t, fmt.Sprintf("step of a world of %d without %v", size, without), 2*time.Minute, func() bool {
		if s := j.status(); s.State == "Failed" || s.State == "Succeeded" {
			j.t.Fatalf("the job is %s: %s", s.State, s.Reason)
		}
		pids = make([]int, size)
		newest := 0
		all := j.steps()
		for _, s := range all {
			newest = max(newest, s.step)
		}
		for _, s := range all {
			if s.world == size && s.step >= newest-5 && s.rank < size &&
				!slices.Contains(without, s.pid) && syscall.Kill(s.pid, 0) == nil {
				pids[s.rank] = s.pid
			}
		}
		return !slices.Contains(pids, 0)
	})
	return pids
}

// TestTorchRun checks that an unmodified script continues after each loss, a stop, a worker that
// joins and one that leaves.
func TestTorchRun(t *testing.T) {
	for _, python := range torch.Pythons(t) {
		t.Run(python.Name, func(t *testing.T) {
			j := script(t, python, "plain.py", []string{"0.02"}, "--max_workers=4",
				"--heartbeat_timeout=3s", "--restart_grace=1s")
			before := j.whole(3)
			took := func(what string, size int, do func()) {
				t.Helper()
				began := time.Now()
				do()
				before = j.whole(size, before...)
				t.Logf("%s: %v until all step again", what, time.Since(began).Round(10*time.Millisecond))
			}
			took("a process killed", 3, func() { syscall.Kill(before[0], syscall.SIGKILL) })
			// the result does not depend on the version of PyTorch
			if python.Name == "1.13" {
				took("two processes killed", 3, func() {
					syscall.Kill(before[1], syscall.SIGKILL)
					syscall.Kill(before[2], syscall.SIGKILL)
				})
				took("a process stopped", 3, func() { syscall.Kill(before[2], syscall.SIGSTOP) })
				took("an agent killed", 3, func() { j.kill(pod(j.status(), wire.Role_WORKER, 1), syscall.SIGKILL) })
			}
			took("one joins", 4, func() { j.scale(4) })
			took("two leave", 2, func() { j.scale(2) })
			j.enough()
			s := j.end(0)
			if s.State != "Succeeded" || s.Restarts != 0 {
				t.Errorf("%s, %d failures counted: %s", s.State, s.Restarts, s.Reason)
			}
			j.nobody()
		})
	}
}

func (j *launched) scale(workers int) {
	j.t.Helper()
	if out, err := exec.Command(program, "scale", j.name,
		fmt.Sprintf("--num_workers=%d", workers)).CombinedOutput(); err != nil {
		j.t.Fatalf("scale: %v\n%s", err, out)
	}
}

// TestTorchRunKilled kills processes at random: those of the script, fork servers, agents and
// masters. The model has every record once, by the count of the processes and by the master's.
func TestTorchRunKilled(t *testing.T) {
	const records = 6000
	for i, python := range torch.Pythons(t) {
		t.Run(python.Name, func(t *testing.T) {
			j := script(t, python, "counts.py", []string{strconv.Itoa(records), "0.1"}, "--heartbeat_timeout=5s")
			kills := 30
			if python.Name != "1.13" {
				// after its fork server is killed, seconds of work pass until its processes run
				// again
				kills = 10
			}
			j.whole(3)
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			chance := rand.New(rand.NewPCG(seed, uint64(i)))
			killed := make(map[string]int)
			for n := range kills {
				what, pids := "process", j.pythons()
				switch {
				case n%10 == 4:
					what, pids = "agent", nil
					for _, p := range j.status().Pods {
						if p.Role == wire.Role_WORKER && p.State == "Running" && p.Pid > 0 {
							pids = append(pids, int(p.Pid))
						}
					}
				case n%10 == 9:
					what, pids = "master", nil
					for pid, cmdline := range j.everybody() {
						if strings.HasPrefix(cmdline, program+" master") {
							pids = append(pids, pid)
						}
					}
				}
				if len(pids) > 0 && syscall.Kill(pids[chance.IntN(len(pids))], syscall.SIGKILL) == nil {
					killed[what]++
				}
				time.Sleep(time.Duration(200+chance.IntN(1000)) * time.Millisecond)
			}
			t.Logf("killed %v; %d records done", killed, j.status().RecordsDone)
			j.enough()
			allCounted(t, j, j.end(0), records)
		})
	}
}

// A new master takes over a world that continues to train: the processes tell it which records are
// in the model, and no new rendezvous is needed.
func TestTorchRunMasterComesBack(t *testing.T) {
	const records = 1500
	for _, python := range torch.Pythons(t) {
		t.Run(python.Name, func(t *testing.T) {
			j := script(t, python, "counts.py", []string{strconv.Itoa(records), "0.05"}, "--heartbeat_timeout=5s")
			j.whole(3)
			worlds := func() int { return len(regexp.MustCompile(`World \d+: rank`).FindAllString(j.log(""), -1)) }
			before := worlds()
			for range 2 {
				var masters []int
				for pid, cmdline := range j.everybody() {
					if strings.HasPrefix(cmdline, program+" master") {
						masters = append(masters, pid)
					}
				}
				if len(masters) != 1 || syscall.Kill(masters[0], syscall.SIGKILL) != nil {
					t.Fatalf("masters %v", masters)
				}
				back := strings.Count(j.log("master"), "The training continues: world ")
				eventually(t, "master that continues", time.Minute, func() bool {
					return strings.Count(j.log("master"), "The training continues: world ") > back
				})
				steps := len(j.steps())
				eventually(t, "steps", time.Minute, func() bool { return len(j.steps()) > steps+30 })
			}
			if after := worlds(); after != before {
				t.Errorf("agents were in %d worlds, and %d before", after, before)
			}
			j.enough()
			allCounted(t, j, j.end(0), records)
		})
	}
}

// allCounted checks that counts.py has every record twice in its model, and that the master has
// credited each once in each of two epochs.
func allCounted(t *testing.T, j *launched, s *wire.JobStatus, records int) {
	t.Helper()
	if want := int64(2 * records); s.State != "Succeeded" || s.RecordsDone != want ||
		s.RecordsTotal != want || s.Restarts != 0 {
		t.Errorf("%s with %d of %d records, want %d; %d failures counted: %s", s.State, s.RecordsDone,
			s.RecordsTotal, want, s.Restarts, s.Reason)
	}
	if !strings.Contains(j.log(""), fmt.Sprintf("counted %d right, 0 wrong", records)) {
		t.Error("no process has counted every record twice")
	}
	j.nobody()
}

// committed reports whether the script of a directory has a complete checkpoint.
func committed(dir string) bool {
	records, _ := filepath.Glob(filepath.Join(dir, "checkpoint/commit-*/commit.json"))
	return len(records) > 0
}

// A job that is started again resumes from its checkpoint: records that are in the state are not
// trained on again. One whose training was complete ends at once, with all its epochs credited.
func TestTorchRunResumes(t *testing.T) {
	const records = 1000
	for _, python := range torch.Pythons(t) {
		t.Run(python.Name, func(t *testing.T) {
			j := script(t, python, "counts.py", []string{strconv.Itoa(records), "0.02"}, "--num_workers=2")
			dir := j.dir()
			eventually(t, "checkpoint", time.Minute, func() bool { return committed(dir) })
			j.cmd.Process.Signal(os.Interrupt)
			before := j.end(130)
			if before.RecordsDone == 0 || before.RecordsDone == 2*records {
				t.Errorf("%d records were trained on, want some", before.RecordsDone)
			}
			again := scriptIn(t, python, "counts.py", dir, []string{strconv.Itoa(records), "0"}, "--num_workers=3")
			allCounted(t, again, again.end(0), records)
			complete := scriptIn(t, python, "counts.py", dir, []string{strconv.Itoa(records), "0"}, "--num_workers=2")
			s := complete.end(0)
			allCounted(t, complete, s, records)
			if s.Failures > 0 {
				t.Errorf("after a complete training: %s", s.Failure)
			}
		})
	}
}

// A program that fails on its own is started again up to the limit, and its first failure is the
// job's reason.
func TestTorchRunFails(t *testing.T) {
	for _, python := range torch.Pythons(t) {
		t.Run(python.Name, func(t *testing.T) {
			j := script(t, python, "ends.py", []string{"fail"}, "--max_restarts=1", "--restart_grace=1s")
			s := j.end(1)
			if want := "rank 1 (pid "; s.State != "Failed" || s.Restarts != 2 ||
				!strings.Contains(s.Reason, want) || !strings.Contains(s.Reason, "ValueError: rank 1 has had enough") {
				t.Errorf("%s after %d failures: %s", s.State, s.Restarts, s.Reason)
			}
			for _, want := range []string{"Traceback", "Root Cause", "restarts 0", "restarts 1"} {
				if !strings.Contains(j.out.String(), want) {
					t.Errorf("the output has no %q", want)
				}
			}
			j.nobody()
		})
	}
}

// A process that ends early with exit code 0 ends no other. When another is lost later, all start
// again, as with torchrun.
func TestTorchRunEndsEarly(t *testing.T) {
	python := torch.Pythons(t)[0]
	j := script(t, python, "ends.py", []string{"early"})
	early := regexp.MustCompile(`step 5 rank 1 `)
	eventually(t, "end of rank 1", time.Minute, func() bool { return early.MatchString(j.log("")) })
	eventually(t, "steps of the others afterwards", time.Minute, func() bool { return len(j.steps()) > 30 })
	last := j.steps()
	i := slices.IndexFunc(last, func(s stepped) bool { return s.rank == 2 })
	if err := syscall.Kill(last[i].pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "rank 1 again", time.Minute, func() bool { return len(early.FindAllString(j.log(""), -1)) == 2 })
	j.enough()
	if s := j.end(0); s.State != "Succeeded" || s.Restarts != 0 {
		t.Errorf("%s after %d failures: %s", s.State, s.Restarts, s.Reason)
	}
	j.nobody()
}
