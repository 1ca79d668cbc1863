package agent

import (
	"runtime"
	"syscall"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// A newcomer, or a worker that leaves, does not disturb what follows the training: the world stays until all processes have ended.
func TestStaysAfterTheTraining(t *testing.T) {
	t.Run("recalled after it", func(t *testing.T) {
		h, a := open(t, 2, self("world=done", "recall=exit")...)
		h.give(a)
		h.hear("world 1", 0, 1)
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

// The package's codes ask for a restart. 82, which it does not use any more, and all others are the script's own.
func TestAsksRestart(t *testing.T) {
	for code := range 256 {
		if got, want := asksRestart(code), code == 80 || code == 81 || code == 83; got != want {
			t.Errorf("code %d asks for a restart: %v, want %v", code, got, want)
		}
	}
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

// A worker that is asked to leave during the pause before its processes start leaves the world once, and waits in the next one.
func TestLeavesInThePause(t *testing.T) {
	h, a := open(t, 1, "/bin/sh", "-c", `echo "local $LOCAL_RANK pid $$ hears it"; read line < /dev/zero`)
	pause := func() {
		w := following(a)
		w.PauseMs = 60_000
		h.words <- &wire.Assembly{Word: &wire.Assembly_World{World: w}}
	}
	pause()
	close(h.leave)
	a = h.arrival()
	h.told(a, 1, 0)
	pause()
	h.stays()
}

// With --restart_on_join=checkpoint, too, the others learn that the processes of a worker that leaves have ended.
func TestLeavesWhileACheckpointIsAwaited(t *testing.T) {
	h, a := open(t, 1, "/bin/sh", "-c", `echo "local $LOCAL_RANK pid $$ hears it"; read line < /dev/zero`)
	h.job.Program.RestartOnJoin, h.job.Program.Checkpoint = "checkpoint", "/no/such/directory/*"
	h.give(a)
	h.hear("it", 0)
	h.recall(1, false)
	h.stays()
	close(h.leave)
	if a = h.arrival(); !a.BrokeOff {
		t.Error("the others are not told")
	}
}

// The failure of a process is excused if a recall comes before it is reported: it may follow from the end of processes whose workers had heard
// of it before.
func TestFailsJustBeforeARecall(t *testing.T) {
	h, a := open(t, 2, "/bin/sh", "-c", `echo "local $LOCAL_RANK pid $$ hears it"; [ $LOCAL_RANK = 0 ] && exit 7; trap '' TERM; read line < /dev/zero`)
	h.give(a)
	pids := h.hear("it", 0, 1)
	for syscall.Kill(pids[0], 0) == nil { // until the agent has seen its end
		runtime.Gosched()
	}
	h.recall(1, false) // the other one takes the whole grace to end
	h.told(h.arrival(), 1, 2, &wire.Failure{Local: 0, Code: 7, Excused: true})
}

// The master learns which states are of no world, but read from a checkpoint.
func TestBringsACheckpoint(t *testing.T) {
	for read, want := range map[string]int64{"": 7<<beginnings | 1, "1": 1} {
		t.Setenv(readEnv, read)
		h, a := open(t, 1, self("recall=arrive")...)
		w := following(a)
		w.Beginning = 7
		h.words <- &wire.Assembly{Word: &wire.Assembly_World{World: w}}
		h.hear("world 1", 0)
		h.recall(1, false)
		if a = h.arrival(); a.Round != want || a.Version != 1 {
			t.Errorf("read %q: it brings round %d, version %d, want %d and 1", read, a.Round, a.Version, want)
		}
	}
}
