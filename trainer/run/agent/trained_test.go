package agent

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/supervise"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// A worker that joins or leaves after the training does not interrupt the rest of the script: the
// world stays until all processes have ended.
func TestStaysAfterTheTraining(t *testing.T) {
	t.Run("recalled after it", func(t *testing.T) {
		h, a := open(t, 2, self("world=done", "world=ask", "recall=exit")...)
		h.give(a)
		h.hear("answer 1", 0, 1)
		h.recall(1, false)
		h.stays()
	})
	t.Run("recalled before its end", func(t *testing.T) {
		h, a := open(t, 2, self("recall=done")...)
		h.give(a)
		h.hear("world 1", 0, 1)
		h.recall(1, false)
		h.hear("recall 1", 0, 1)
		h.stays()
	})
}

// A process may complete the training in the round after which it was to leave its world. A
// restored master still gets the account that the process has sent then.
func TestTellsItsStateAfterTheTraining(t *testing.T) {
	h, a := open(t, 1, self("recall=account", "recall=done", "recall=ask")...)
	h.give(a)
	h.hear("world 1", 0)
	h.recall(1, false)
	h.hear("answer 1", 0)
	h.stays()
	h.ask()
	select {
	case r := <-h.ledgers:
		if r.Generation != 1 {
			t.Errorf("the ledger is of world %d, want 1", r.Generation)
		}
	case a := <-h.arrivals:
		t.Errorf("it has left the world: %v", a)
	case <-time.After(limit):
		t.Error("timed out waiting for the ledger")
	}
	h.stays()
}

// If a process is killed after the training, all restart, but not before the surviving ones have
// completed the rest of the script. The master decides whether the failure counts.
func TestKilledAfterTheTraining(t *testing.T) {
	h, a := open(t, 2, self("world 1=done", "world 1=ask", "recall=arrive")...)
	h.give(a)
	pids := h.hear("answer 1", 0, 1)
	if err := syscall.Kill(pids[1], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.stays()
	end(t, pids[0])
	a = h.arrival()
	h.checkFailures(a, 1, 0, &wire.Failure{Local: 1, Signal: int32(syscall.SIGKILL)})
	if a.Finished {
		t.Error("it says that all have ended with 0")
	}
	h.againBoth(a, pids)
}

// If a member is lost after the training, all restart, but not before the surviving ones have
// completed the rest of the script.
func TestLosesAMemberAfterTheTraining(t *testing.T) {
	h, a := open(t, 2, self("world 1=done", "world 1=ask", "recall=arrive")...)
	h.give(a)
	pids := h.hear("answer 1", 0, 1)
	h.recall(1, true)
	h.stays()
	end(t, pids[0])
	h.stays()
	end(t, pids[1])
	a = h.arrival()
	h.checkFailures(a, 1, 0)
	if !a.Finished {
		t.Error("it does not say that all have ended with 0")
	}
	h.againBoth(a, pids)
}

// end makes a process exit with 0.
func end(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
}

// againBoth checks that both processes restart in the world that follows an arrival, and join when
// they are ready.
func (h *hall) againBoth(a *wire.Arrival, before map[int]int) {
	h.Helper()
	for {
		h.give(a)
		if a.Crew.Processes == 2 { // one may be ready long before the other
			break
		}
		a = h.arrival()
	}
	if again := h.hear(fmt.Sprintf("world %d", a.Generation+1), 0, 1); again[0] == before[0] || again[1] == before[1] {
		h.Error("a process is the same")
	}
}

// A worker that is asked to leave after the training waits until its processes have completed the
// rest of the script, and reports that. It does not join the rendezvous again: the others would
// start over without it.
func TestLeavesAfterTheTraining(t *testing.T) {
	h, a := openFor(t, time.Hour, 1, self("world 1=done", "world 1=ask")...)
	h.give(a)
	pids := h.hear("answer 1", 0)
	close(h.leave)
	h.hear("leave 0", 0)
	h.stays()
	end(t, pids[0])
	for beat := next(h, "a heartbeat", h.beats); beat.Finished != 1 || beat.Leave != wire.Leave_ASKED; {
		beat = next(h, "a heartbeat", h.beats)
	}
	h.stays()
}

// At the end of its grace period it ends its processes. Their exit codes do not count.
func TestLeavesInTheEndAfterTheTraining(t *testing.T) {
	for _, program := range [][]string{self("world 1=done", "world 1=ask"),
		self("world 1=done", "world 1=ask", "term=end")} {
		h, a := open(t, 1, program...) // its grace is 1 s
		h.give(a)
		h.hear("answer 1", 0)
		close(h.leave)
		a = h.arrival()
		h.checkFailures(a, 1, 0)
		if a.Finished {
			t.Errorf("%v: it says that all have ended with 0", program[1:])
		}
	}
}

// A process that is starting when the training ends is ended. The worker has finished when its
// other processes have.
func TestTheTrainingEndsWithoutOne(t *testing.T) {
	t.Setenv(lateEnv, filepath.Join(t.TempDir(), "late"))
	h, a := open(t, 2, self("recall=arrive", "0:world 2=done")...)
	h.give(a)
	pids := h.hear("world 1", 0, 1)
	if err := syscall.Kill(pids[1], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	a = h.arrival()
	h.checkFailures(a, 1, 1, &wire.Failure{Local: 1, Signal: int32(syscall.SIGKILL)})
	h.give(a)
	h.hear("world 2", 0)
	h.stays()
	end(t, pids[0])
	for beat := next(h, "a heartbeat", h.beats); beat.Finished != 2; {
		beat = next(h, "a heartbeat", h.beats)
	}
	h.stays()
}

// stays checks that the agent does not leave its world for some heartbeats.
func (h *hall) stays() {
	h.Helper()
	for range 5 {
		next(h, "a heartbeat", h.beats)
	}
	if len(h.arrivals) > 0 {
		h.Errorf("it has left the world: %v", <-h.arrivals)
	}
}

// A worker that is asked to leave during the pause before its processes start leaves the world
// once, and waits in the next one.
func TestLeavesInThePause(t *testing.T) {
	h, a := open(t, 1, "/bin/sh", "-c", `echo "local $LOCAL_RANK pid $$ hears it"; exec sleep 3600`)
	pause := func() {
		w := following(a)
		w.PauseMs = 60_000
		h.words <- &wire.Assembly{Word: &wire.Assembly_World{World: w}}
	}
	pause()
	close(h.leave)
	a = h.arrival()
	h.checkFailures(a, 1, 0)
	pause()
	h.stays()
}

// Also with --restart_on_join=checkpoint, the other workers are notified that the processes of a
// leaving worker have ended.
func TestLeavesWhileACheckpointIsAwaited(t *testing.T) {
	h, a := openWith(t, restarting("checkpoint", "/no/such/directory/*"), 1, sleeper...)
	h.give(a)
	h.hear("it", 0)
	h.recall(1, false)
	h.stays()
	close(h.leave)
	if a = h.arrival(); !a.BrokeOff {
		t.Error("the others are not reported")
	}
}

// The failure of a process is excused if a recall comes before its report: processes whose workers
// have received the recall earlier may have caused it by their end.
func TestFailsJustBeforeARecall(t *testing.T) {
	h, a := open(t, 2, "/bin/sh", "-c",
		`echo "local $LOCAL_RANK pid $$ hears it"; [ $LOCAL_RANK = 0 ] && exit 7; trap '' TERM; exec sleep 3600`)
	h.give(a)
	pids := h.hear("it", 0, 1)
	for syscall.Kill(pids[0], 0) == nil { // until the agent has seen its end
		runtime.Gosched()
	}
	// the other process uses the whole grace period
	h.recall(1, false)
	h.checkFailures(h.arrival(), 1, 2, &wire.Failure{Local: 0, Code: 7, Excused: true})
}

// The master gets a report of states that were read from a checkpoint instead of trained in a
// world.
func TestBringsACheckpoint(t *testing.T) {
	for read, want := range map[string]int64{"": 7, "1": 0} {
		t.Setenv(readEnv, read)
		h, a := open(t, 1, self("recall=arrive")...)
		w := following(a)
		w.Beginning = 7
		h.words <- &wire.Assembly{Word: &wire.Assembly_World{World: w}}
		h.hear("world 1", 0)
		h.recall(1, false)
		if a = h.arrival(); a.Beginning != want || a.Round != 1 || a.Version != 1 {
			t.Errorf("read %q: it brings round %d of beginning %d, version %d, want 1, %d and 1", read, a.Round,
				a.Beginning, a.Version, want)
		}
	}
}

// The first round of a world is reported to the master at once, and each heartbeat reports the
// newest world with a round.
func TestTellsOfRounds(t *testing.T) {
	r := newRecords(nil, 0, nil)
	for i, c := range []struct {
		generation int64
		first      bool
		newest     int64
	}{{3, true, 3}, {3, false, 3}, {2, false, 3}, {4, true, 4}} {
		var beat wire.HeartbeatRequest
		first := r.round(new(script), roundMessage{Generation: c.generation})
		if r.beat(&beat); first != c.first || beat.Rounds != c.newest {
			t.Errorf("round %d: the first of its world %v, heartbeats tell of world %d, want %v, %d", i,
				first, beat.Rounds, c.first, c.newest)
		}
	}
	h, a := open(t, 1, self("world=declare", "account 1=round", "recall=arrive")...)
	h.give(a)
	h.hear("answer 1", 0)
	next(h, "a heartbeat", h.beats) // it may be older than the data set
	beat := next(h, "a heartbeat", h.beats)
	if beat.Rounds != 0 || beat.Met != 0 || beat.Generation != 1 {
		t.Errorf(
			"in world %d without a round heartbeats tell of world %d, and of the state in world %d",
			beat.Generation, beat.Rounds, beat.Met)
	}
	h.ask()
	for beat.Met != 1 || beat.Rounds != 1 {
		beat = next(h, "a heartbeat", h.beats)
	}
	if beat.Rounds != 1 {
		t.Errorf("after a round heartbeats tell of world %d, want 1", beat.Rounds)
	}
	h.recall(1, false)
	h.give(h.arrival())
	h.hear("world 2", 0)
	for beat.Generation != 2 {
		beat = next(h, "a heartbeat", h.beats)
	}
	if beat.Rounds != 1 || beat.Met != 1 {
		t.Errorf("heartbeats in the next world tell of a round of world %d, and of the state in "+
			"world %d, want 1", beat.Rounds, beat.Met)
	}
}

// The master gets a report that a process doubts its state, with the reason.
func TestDoubts(t *testing.T) {
	h, a := open(t, 2, self("1:world=doubt", "0:recall=arrive", "1:recall=81")...)
	h.give(a)
	h.hear("world 1", 0, 1)
	for !strings.Contains(next(h, "the doubt", h.logs), "doubts its state") {
	}
	h.recall(1, false)
	a = h.arrival()
	h.checkFailures(a, 1, 1, &wire.Failure{Local: 1, Code: supervise.CodeDoubt, Excused: true, Doubt: true})
	if got := a.Failures[0].Message; got != "no group" {
		t.Errorf("its reason is reported as %q", got)
	}
}

// A process that ends with the codes of the Python package because its world has ended is not
// reported: neither together with the failure that has ended the world nor alone. If it doubts its
// state because a member is lost, that is not reported as a doubt.
func TestEndsWithItsWorld(t *testing.T) {
	t.Run("by a failure", func(t *testing.T) {
		h, a := open(t, 2, self("0:recall=83", "1:account=exit")...)
		h.give(a)
		h.hear("world 1", 0, 1)
		h.ask()
		h.checkFailures(h.arrival(), 1, 0, &wire.Failure{Local: 1, Code: 7})
	})
	for _, code := range []string{"83", "81"} {
		t.Run("by a loss, with code "+code, func(t *testing.T) {
			h, a := open(t, 2, self("0:recall=arrive", "1:recall="+code)...)
			h.give(a)
			h.hear("world 1", 0, 1)
			h.recall(1, true)
			h.checkFailures(h.arrival(), 1, 1)
		})
	}
}

// The exit code that means a doubt is an ordinary code for a script that does not use the package.
func TestDoubtsWithoutThePackage(t *testing.T) {
	h, a := open(t, 1, "/bin/sh", "-c", "exit 81")
	h.give(a)
	h.checkFailures(h.arrival(), 1, 1, &wire.Failure{Code: supervise.CodeDoubt})
}
