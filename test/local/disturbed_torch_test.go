//go:build torch

package local_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/test/torch"
	"golang.org/x/sys/unix"
)

var (
	kills = flag.Int("kills", 0, "TestTorchRunDisturbed, TestFrameworksDisturbed: disturbances of each job; "+
		"0 for a few of one job for each PyTorch, and of one of Trainer")
	chance = flag.Uint64("seed", 0, "TestTorchRunDisturbed, TestFrameworksDisturbed: chooses the disturbances; "+
		"0 for another one each time")
)

// disturbances returns how often a job is disturbed, by which seed, and whether that is a few times
// only.
func disturbances() (n int, seed uint64, few bool) {
	n, seed = *kills, *chance
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	if n == 0 {
		return 6, seed, true
	}
	return n, seed, false
}

// TestTorchRunDisturbed checks a job of two to eight processes, each with two processes of a
// DataLoader, while processes and agents are killed and suspended, masters are killed, and workers
// join and leave. The model has every record once, by its own count and by the master's, the
// accuracy is that of an undisturbed job, and no process is left, neither during the job nor at the
// end. With -kills=200 it runs for hours: both ways of starting a loader's processes, with each
// version of PyTorch, and with the newer one shards of unknown length, and replicas of a sharded
// model, on workers of two processes.
func TestTorchRunDisturbed(t *testing.T) {
	n, _, few := disturbances()
	for i, python := range torch.Pythons(t) {
		kinds := []string{"fork", "spawn", "stream", "sharded"}
		if few {
			kinds = kinds[i : i+1]
		} else if python.Name == "1.13" {
			kinds = kinds[:2]
		}
		for _, kind := range kinds {
			t.Run(python.Name+" "+kind, func(t *testing.T) {
				l := learner{
					python: python, script: "learns.py",
					args: []string{kind, "0.4"}, undisturbed: []string{"fork", "0"},
					records: 1200 + 60*n, workers: 4, each: 1, apart: 20,
				}
				if few {
					l.records = 600
				}
				if kind == "sharded" {
					l.workers, l.each = 2, 2
				}
				l.disturbed(t)
			})
		}
	}
}

// TestFrameworksDisturbed checks the same of a job of Hugging Face's Trainer, which evaluates and
// writes checkpoints of its own meanwhile. Its learning rate follows the part of the records that
// is done.
func TestFrameworksDisturbed(t *testing.T) {
	n, _, few := disturbances()
	t.Setenv("HF_HUB_OFFLINE", "1")
	l := learner{
		python: torch.Frameworks(t), script: "learns_trainer.py", args: []string{"0.8"}, undisturbed: []string{"0"},
		records: min(1200+60*n, trainingDigits), workers: 4, each: 1, apart: 10,
	}
	if few {
		l.records = 2000
	}
	// Twelve undisturbed trainings on 7200 records, in other orders and batches, differ by up to 10
	// of 2000 tests, and on 2000 records by up to 20.
	if l.records < 7200 {
		l.apart = 20
	}
	t.Run(l.python.Name+" trainer", l.disturbed)
}

// learner is a script that counts its records, and tests its model at the end.
type learner struct {
	python torch.Python
	script string
	// arguments of the script after the number of records, and those of an undisturbed job
	args, undisturbed []string
	// records of the data set; workers, and their processes
	records, workers, each int
	// by how many right tests it may differ from an undisturbed job
	apart int
}

// disturbed trains a job while it is disturbed, and one that is not.
func (l learner) disturbed(t *testing.T) {
	n, seed, _ := disturbances()
	records := strconv.Itoa(l.records)
	undisturbed := script(t, l.python, l.script, slices.Concat([]string{records}, l.undisturbed), "--num_workers=2")
	allCounted(t, undisturbed, undisturbed.end(0), l.records)
	want, tests := undisturbed.testsRight()

	j := script(t, l.python, l.script, slices.Concat([]string{records}, l.args),
		fmt.Sprintf("--num_workers=%d", l.workers), "--min_workers=2",
		fmt.Sprintf("--max_workers=%d", 2*l.workers), fmt.Sprintf("--nproc_per_node=%d", l.each),
		"--heartbeat_timeout=5s")
	j.loseOneAsOthersJoin(j.whole(l.workers*l.each), l.workers+2)
	t.Logf("go test -tags torch -run '%s' ./test/local -kills=%d -seed=%d", t.Name(), n, seed)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("processes at the end: %v", j.everybody())
		}
	})
	did := j.disturb(n, 2*l.workers, l.each, rand.New(rand.NewPCG(seed, uint64(n))))
	j.noOrphans()
	now := j.status()
	t.Logf("%v; %d records done, %d pods replaced, the model lost %d times", did,
		now.RecordsDone, now.Relaunched, now.Rollbacks)
	j.enough()
	end := j.end(0)
	if slices.Contains(l.args, "stream") && end.RecordsTotal == 0 { // nobody knows it before
		end.RecordsTotal = end.RecordsDone
	}
	allCounted(t, j, end, l.records)
	got, _ := j.testsRight()
	t.Logf("%d of %d tests right, %d undisturbed", got, tests, want)
	if max(got-want, want-got) > l.apart {
		t.Errorf("%d of %d tests right, undisturbed %d: want at most %d more or less", got, tests, want, l.apart)
	}
}

// loseOneAsOthersJoin kills a process at the moment when the world's processes were asked to meet
// again after their round, because two others join: the others continue with the model, and at
// once.
func (j *launched) loseOneAsOthersJoin(pids []int, workers int) {
	j.t.Helper()
	j.scale(workers)
	eventually(j.t, "change of the world", runLimit, func() bool {
		return strings.Contains(j.log(""), "The world changes")
	})
	before := len(j.steps())
	if err := syscall.Kill(pids[len(pids)-1], syscall.SIGKILL); err != nil {
		j.t.Fatal(err)
	}
	eventually(j.t, "steps without a process that was lost as others joined", runLimit, func() bool {
		return len(j.steps()) >= before+12
	})
	if s := j.status(); s.Rollbacks != 0 {
		j.t.Errorf("the model is lost: %s", s.RollbackReason)
	}
}

// disturb disturbs the job n times, at random, and returns how often it did what. After each time
// it waits for a random number of further steps, which may be none: so it also disturbs while the
// others meet again. The job has at most that number of workers, of that number of processes each.
func (j *launched) disturb(n, workers, each int, chance *rand.Rand) map[string]int {
	j.t.Helper()
	did := make(map[string]int)
	for n > 0 {
		if s := j.status(); s.State == "Failed" || s.State == "Succeeded" {
			j.t.Fatalf("the job is %s after %v: %s", s.State, did, s.Reason)
		}
		ranks := j.ranks()
		// the last worker has the only copy of the state: without it the job would start over each
		// time
		if len(ranks) < 2*each {
			time.Sleep(200 * time.Millisecond)
			continue
		}
		var what string
		switch at := chance.IntN(20); {
		case at < 8 && j.hit(ranks, syscall.SIGKILL, chance):
			what = "process killed"
		case at >= 8 && at < 10 && j.hit(ranks, syscall.SIGSTOP, chance):
			what = "process stopped"
		case at >= 10 && at < 12 && j.hit(j.roles("worker"), syscall.SIGKILL, chance):
			what = "agent killed"
		case at == 12 && j.hit(j.roles("worker"), syscall.SIGSTOP, chance):
			what = "agent stopped"
		case at == 13 && j.hit(j.roles("master"), syscall.SIGKILL, chance):
			what = "master killed"
		case at >= 14 && j.rescale(2+chance.IntN(workers-1)):
			what = "scaled"
		}
		if what != "" {
			did[what]++
			n--
		}
		time.Sleep(time.Duration(chance.IntN(300)) * time.Millisecond)
		if more := chance.IntN(12); more > 2 {
			before := len(j.steps())
			eventually(j.t, fmt.Sprintf("%d steps after %v", more, did), runLimit, func() bool {
				return len(j.steps()) >= before+more
			})
		}
	}
	return did
}

// hit sends a signal to one of the processes, chosen at random.
func (j *launched) hit(pids []int, signal syscall.Signal, chance *rand.Rand) bool {
	if len(pids) == 0 {
		return false
	}
	pid := pids[chance.IntN(len(pids))]
	err := syscall.Kill(pid, signal)
	j.t.Logf("%s: process %d: %v, %v", time.Now().Format(time.TimeOnly), pid, signal, err)
	return err == nil
}

// ranks returns the living processes that have stepped.
func (j *launched) ranks() []int {
	alive := make(map[int]bool)
	for _, s := range j.steps() {
		if !alive[s.pid] && syscall.Kill(s.pid, 0) == nil {
			alive[s.pid] = true
		}
	}
	return slices.Sorted(maps.Keys(alive))
}

// roles returns the processes of the program in one role.
func (j *launched) roles(name string) (pids []int) {
	for pid, cmdline := range j.everybody() {
		if strings.HasPrefix(cmdline, program+" "+name+" ") {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// rescale requests a number of workers, and returns false if the master is down.
func (j *launched) rescale(workers int) bool {
	return exec.Command(program, "scale", j.name, fmt.Sprintf("--num_workers=%d", workers)).Run() == nil
}

// noOrphans waits until each process of the script belongs to the session of a living process:
// those that a dead process has left behind have ended, including those of a loader.
func (j *launched) noOrphans() {
	j.t.Helper()
	eventually(j.t, "end of those that dead processes have left", runLimit, func() bool {
		all := j.everybody()
		for pid := range all {
			leader, err := unix.Getsid(pid)
			if err == nil && leader != pid && all[leader] == "" && leader != session {
				return false
			}
		}
		return true
	})
}

// session is the session of the test, and of the launcher.
var session, _ = unix.Getsid(0) // it cannot fail for the own process

var testsLine = regexp.MustCompile(`; (\d+) of (\d+) tests right`)

// testsRight returns how many test records the script classifies correctly at its end, and their
// number.
func (j *launched) testsRight() (right, tests int) {
	j.t.Helper()
	m := testsLine.FindStringSubmatch(j.log(""))
	if m == nil {
		j.t.Fatal("no process has tested its model")
	}
	right, _ = strconv.Atoi(m[1]) // the pattern matches digits only
	tests, _ = strconv.Atoi(m[2])
	return right, tests
}
