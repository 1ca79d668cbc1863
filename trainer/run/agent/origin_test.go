package agent

import (
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
)

// The agent of rank 0 reports to the master, once, the state with which a world without a source
// begins. These processes have read no state.
func TestTellsWhatAWorldBeginsWith(t *testing.T) {
	h, a := open(t, 2, self("recall=arrive")...)
	h.give(a)
	h.hear("world 1", 0, 1)
	if o := next(h, "an origin", h.origins); o.Generation != 1 || o.Version != 0 || len(o.Ledger) > 0 {
		t.Errorf("it says %v", o)
	}
	h.recall(1, false)
	a = h.arrival()
	if a.Round < 0 {
		t.Fatalf("%v", a)
	}
	h.give(a) // with a source
	h.hear("world 2", 0, 1)
	next(h, "a heartbeat", h.beats)
	if next(h, "a heartbeat", h.beats); len(h.origins) > 0 {
		t.Errorf("it says %v of a world whose processes had a state", <-h.origins)
	}
}

// The report of a state that was read has its number of updates and its records.
func TestTellsWhatAProcessHasRead(t *testing.T) {
	t.Setenv(readEnv, "1")
	t.Setenv(roundEnv, "3")
	h, a := open(t, 1, self()...)
	h.give(a)
	h.hear("world 1", 0)
	o := next(h, "an origin", h.origins)
	had, err := ledger.Parse(o.Ledger)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := had.Progress(ledger.Task{Epoch: 2, Number: 0}); o.Generation != 1 || o.Version != 3 ||
		had.Settled() != 1 || n != 3 {
		t.Errorf("it says %v: %d epochs are settled, %d records of the first task", o, had.Settled(), n)
	}
}
