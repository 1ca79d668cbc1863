package agent

import (
	"context"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/run/tcpstore"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// A worker that is asked to leave when all its processes have exited with 0 reports it, and waits
// until it is released. If it joined the rendezvous again instead, all workers would start over.
func TestLeavesWhenItHasFinished(t *testing.T) {
	for name, program := range map[string][]string{"keeps its state": self("world 1=done"),
		"keeps none": {"/bin/sh", "-c", "true"}} {
		t.Run(name, func(t *testing.T) {
			h, a := openFor(t, time.Hour, 1, program...)
			h.give(a)
			if name == "keeps its state" {
				end(t, h.hear("world 1", 0)[0])
			}
			beat := next(h, "a heartbeat", h.beats)
			for beat.Finished != 1 {
				beat = next(h, "a heartbeat", h.beats)
			}
			close(h.leave)
			for beat.Leave != wire.Leave_ASKED {
				beat = next(h, "a heartbeat", h.beats)
			}
			h.stays()
			if beat = next(h, "a heartbeat", h.beats); beat.Finished != 1 {
				t.Error("it does not say any more that all have ended with 0")
			}
		})
	}
}

// A process that leaves a world in which another process of its worker has completed the training
// waits for the end of that process, and then for a world.
func TestComesBackAfterTheTraining(t *testing.T) {
	h, a := open(t, 2, self("0:world 1=done", "world 1=ask", "1:account=arrive")...)
	h.give(a)
	pids := h.hear("answer 1", 0, 1)
	h.ask()
	h.hear("account 0", 1)
	h.mu.Lock()
	h.asks = false
	h.mu.Unlock()
	h.stays()
	end(t, pids[0])
	h.checkFailures(h.arrival(), 1, 1)
}

// When a process that has not used the Python package exits with 0, the other processes of its
// world are notified: they may be waiting for it.
func TestOneEndsBeforeInit(t *testing.T) {
	h, a := open(t, 2, "/bin/sh", "-c", "test $LOCAL_RANK = 0 || exec sleep 600")
	store := a.Crew.Store
	h.give(a)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	client, err := tcpstore.Dial(ctx, store)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Wait(ctx, "elasticdl/come/0"); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]bool{"elasticdl/ended/0": true, "elasticdl/ended/any": true,
		"elasticdl/come/1": false} {
		if got, err := client.Check(ctx, key); err != nil || got != want {
			t.Errorf("%s is there: %v, %v; want %v", key, got, err, want)
		}
	}
}
