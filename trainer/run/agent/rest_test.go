package agent

import (
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Processes that are to start after a pause are not started before, also if their world ends during
// the pause. Then none of them has failed or finished.
func TestRests(t *testing.T) {
	const program = `echo "local $LOCAL_RANK pid $$ hears it"; exec sleep 3600`
	h, a := open(t, 1, "/bin/sh", "-c", program)
	const hour = 3_600_000
	for generation := range int64(2) {
		h.giveAfter(a, hour)
		for !strings.Contains(next(h, "the pause", h.logs), "Waiting before the processes start again") {
		}
		if generation == 1 {
			h.recall(generation+1, true)
		} else {
			h.recall(generation+1, false)
		}
		if a = h.arrival(); a.Finished {
			t.Errorf("the program has finished: %v", a)
		}
		h.checkFailures(a, generation+1, 1)
	}
	select {
	case line := <-h.lines:
		t.Fatalf("the process was started: %s", line)
	default:
	}
	h.giveAfter(a, 1)
	h.hear("it", 0)
	h.recall(3, true)
	h.checkFailures(h.arrival(), 3, 1)
}

// giveAfter sends the world that follows from an arrival, whose processes start after some
// milliseconds.
func (h *hall) giveAfter(a *wire.Arrival, ms int64) {
	w := following(a)
	w.PauseMs = ms
	h.words <- &wire.Assembly{Word: &wire.Assembly_World{World: w}}
}

func TestOOMKills(t *testing.T) {
	if got := oomKillsIn("low 0\nhigh 4\nmax 17\noom 3\noom_kill 2\noom_group_kill 9\n"); got != 2 {
		t.Errorf("%d kills, want 2", got)
	}
	if got := oomKillsIn(""); got != 0 {
		t.Errorf("%d kills of a file that cannot be read, want 0", got)
	}
	for text, want := range map[string]string{
		"0::/\n": "/",
		"12:memory:/a\n0::/kubepods.slice/pod1\n": "/kubepods.slice/pod1",
		"12:memory:/a\n": "",
	} {
		if got := unified(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
