package master

import (
	"slices"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

// The gradients that were rejected are those of all workers, also of those that have ended. The
// loss is that of the living workers that have made a step, or the last one that was known.
func TestContactsSum(t *testing.T) {
	c := newContacts(newClock())
	*c.of(worker(0)) = contact{steps: 5, loss: 2, rejected: 3}
	*c.of(worker(1)) = contact{steps: 1, loss: 4, rejected: 4}
	c.of(worker(2)).loss = 100 // it has made no step
	pods := []pod.Pod{{ID: worker(0), Phase: pod.Running}, {ID: worker(1), Phase: pod.Running},
		{ID: worker(2), Phase: pod.Running}, {ID: worker(3), Phase: pod.Running}}
	if got := c.meanLoss(pods); got != 3 || c.rejected() != 7 {
		t.Errorf("loss %v, %d rejected", got, c.rejected())
	}
	c.forget(worker(0))
	if got := c.meanLoss(pods); got != 4 || c.rejected() != 7 || c.get(worker(0)) != nil || c.rejectedBefore != 3 {
		t.Errorf("without worker-0: loss %v, %d rejected", got, c.rejected())
	}
	pods[1].Phase = pod.Failed
	if got := c.meanLoss(pods); got != 4 {
		t.Errorf("without a worker: loss %v", got)
	}
}

// The first heartbeat of a pod may bring a deadline forward, later ones do not.
func TestContactsPoke(t *testing.T) {
	c := newContacts(newClock())
	now := time.Now()
	c.heardFrom(c.of(ps(0)), now)
	if len(c.clock.poke) != 1 {
		t.Error("the deadlines are not looked at after the first heartbeat")
	}
	<-c.clock.poke
	later := now.Add(time.Second)
	if c.heardFrom(c.of(ps(0)), later); len(c.clock.poke) != 0 || c.of(ps(0)).heard != later {
		t.Error("the deadlines are looked at after the second heartbeat")
	}
}

// A problem of storage is named once, with all workers that wait for it.
func TestContactsProblems(t *testing.T) {
	c := newContacts(newClock())
	c.of(worker(3)).waits = []string{"bucket: 403", "disk: full"}
	c.of(worker(1)).waits = []string{"bucket: 403"}
	c.of(worker(2)).unsaved = "/ck.pt: full"
	want := []string{"a checkpoint cannot be written by the program of worker-2, which continues: /ck.pt: full",
		"bucket: 403: waited for by worker-1, worker-3", "disk: full: waited for by worker-3"}
	if got := c.problems(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
