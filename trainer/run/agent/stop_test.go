package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// saver is a program that keeps no state. When it is asked to end, it saves something, which takes
// longer than --restart_grace.
var saver = []string{"/bin/sh", "-c", `
say() { echo "local $LOCAL_RANK pid $$ hears $1"; }
trap 'say term; sleep 1.3; say saved; exit 0' TERM
say it
while :; do sleep 0.05; done`}

// asked waits for the end of the agent, and counts the lines of its process about SIGTERM and about
// saved state.
func (h *hall) asked() (terms, saved int) {
	h.Helper()
	next(h, "its end", h.ended)
	for len(h.lines) > 0 {
		line := <-h.lines
		terms += strings.Count(line, "hears term")
		saved += strings.Count(line, "hears saved")
	}
	return terms, saved
}

func (h *hall) set(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// In a planned stop each process gets one SIGTERM and the whole grace period, whether its worker
// first learns that it is to leave or that the job has ended.
func TestAStopGivesTheGracePeriod(t *testing.T) {
	for what, happens := range map[string]func(h *hall){
		"leave":       func(h *hall) { close(h.leave) },
		"over":        func(h *hall) { h.set(func() { h.over, h.grace = true, time.Minute }) },
		"leave, over": func(h *hall) { close(h.leave); h.hear("term", 0); h.set(func() { h.over = true }) },
		"over, leave": func(h *hall) {
			h.set(func() { h.over, h.grace = true, time.Minute })
			h.hear("term", 0)
			close(h.leave)
		},
	} {
		t.Run(what, func(t *testing.T) {
			h, a := openFor(t, time.Minute, 1, saver...)
			h.give(a)
			h.hear("it", 0)
			happens(h)
			before := 0
			if strings.Contains(what, ",") {
				before = 1 // heard above
			}
			if what == "leave" { // the master releases it
				h.arrival()
				h.set(func() { h.over = true })
			}
			terms, saved := h.asked()
			if terms+before != 1 || saved != 1 {
				t.Errorf("it got SIGTERM %d times, and has saved %d times", terms+before, saved)
			}
		})
	}
}

// When a job has ended on its own, the remaining processes have --restart_grace to end.
func TestTheEndOfAJobIsShort(t *testing.T) {
	h, a := openFor(t, time.Hour, 1, "/bin/sh", "-c",
		`trap '' TERM; echo "local $LOCAL_RANK pid $$ hears it"; exec sleep 3600`)
	h.give(a)
	h.hear("it", 0)
	h.set(func() { h.over = true })
	next(h, "its end", h.ended)
}

// Processes that use the Python package are asked for a checkpoint before the job stops, also those
// that join later, and their answer is sent to the master.
func TestAStopAsksForACheckpoint(t *testing.T) {
	h, a := open(t, 1, self("world=round", "stop=rest")...)
	h.give(a)
	h.hear("world 1", 0)
	h.set(func() { h.stop = time.Minute })
	h.hear("stop 0", 0)
	for {
		b := next(h, "a heartbeat", h.beats)
		if b.Rest == nil {
			continue
		}
		if !b.Asks || b.Saved.GetPath() != "/c" || b.Rest.Problem != "no group" || b.Rest.Round != 1 {
			t.Errorf("the master hears %v", b)
		}
		break
	}
	// the process waits until it is ended, and is nevertheless notified of the end of its world
	h.recall(1, true)
	h.hear("recall 1", 0)
}

// A process that has completed the training has no round to complete, so the master need not wait
// for it.
func TestAStopAfterTheTraining(t *testing.T) {
	h, a := open(t, 1, self("world=done")...)
	h.give(a)
	h.hear("world 1", 0)
	h.set(func() { h.stop = time.Minute })
	for {
		if b := next(h, "a heartbeat", h.beats); b.Rest != nil {
			if b.Rest.Problem == "" || b.Saved != nil {
				t.Errorf("the master hears %v", &wire.Rest{Problem: b.Rest.Problem})
			}
			return
		}
	}
}
