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
	kills = flag.Int("kills", 0, "TestTorchRunDisturbed: disturbances of each job; 0 for a few of "+
		"one job for each PyTorch")
	chance = flag.Uint64("seed", 0, "TestTorchRunDisturbed: chooses the disturbances; 0 for another one each time")
)

// TestTorchRunDisturbed checks a job of two to eight processes, each with two processes of a
// DataLoader, while processes and agents are killed and suspended, masters are killed, and workers
// join and leave. The model has every record once, by its own count and by the master's, the
// accuracy is that of an undisturbed job, and no process is left, neither during the job nor at the
// end. With -kills=200 it runs for hours: both ways of starting a loader's processes, with each
// version of PyTorch, and with the newer one shards of unknown length, and replicas of a sharded
// model, on workers of two processes.
func TestTorchRunDisturbed(t *testing.T) {
	n, seed := *kills, *chance
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	few := n == 0
	if few {
		n = 6
	}
	for i, python := range torch.Pythons(t) {
		kinds := []string{"fork", "spawn", "stream", "sharded"}
		if few {
			kinds = kinds[i : i+1]
		} else if python.Name == "1.13" {
			kinds = kinds[:2]
		}
		for _, kind := range kinds {
			t.Run(python.Name+" "+kind, func(t *testing.T) {
				records, workers, each := 1200+60*n, 4, 1
				if few {
					records = 600
				}
				if kind == "sharded" {
					workers, each = 2, 2
				}
				undisturbed := script(t, python, "learns.py",
					[]string{strconv.Itoa(records), "fork", "0"}, "--num_workers=2")
				allCounted(t, undisturbed, undisturbed.end(0), records)
				want := undisturbed.testsRight()

				j := script(t, python, "learns.py", []string{strconv.Itoa(records), kind, "0.4"},
					fmt.Sprintf("--num_workers=%d", workers), "--min_workers=2",
					fmt.Sprintf("--max_workers=%d", 2*workers), fmt.Sprintf("--nproc_per_node=%d", each),
					"--heartbeat_timeout=5s")
				j.loseOneAsOthersJoin(j.whole(workers*each), workers+2)
				t.Logf("go test -tags torch -run '%s' ./test/local -kills=%d -seed=%d", t.Name(), n, seed)
				did := j.disturb(n, 2*workers, each, rand.New(rand.NewPCG(seed, uint64(n))))
				j.noOrphans()
				now := j.status()
				t.Logf("%v; %d records done, %d pods replaced, the model lost %d times", did,
					now.RecordsDone, now.Relaunched, now.Rollbacks)
				j.enough()
				end := j.end(0)
				if kind == "stream" && end.RecordsTotal == 0 { // nobody knows it before
					end.RecordsTotal = end.RecordsDone
				}
				allCounted(t, j, end, records)
				got := j.testsRight()
				t.Logf("%d of 4000 tests right, %d undisturbed", got, want)
				if got < want-20 {
					t.Errorf("%d of 4000 tests right, undisturbed %d: want at most 20 less, half a point", got, want)
				}
			})
		}
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
	return len(pids) > 0 && syscall.Kill(pids[chance.IntN(len(pids))], signal) == nil
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

var testsLine = regexp.MustCompile(`; (\d+) of 4000 tests right`)

// testsRight returns how many test records learns.py classifies correctly at its end.
func (j *launched) testsRight() int {
	j.t.Helper()
	m := testsLine.FindStringSubmatch(j.log(""))
	if m == nil {
		j.t.Fatal("no process has tested its model")
	}
	n, _ := strconv.Atoi(m[1]) // the pattern matches digits only
	return n
}
