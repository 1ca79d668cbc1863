package agent

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/run/tcpstore"
)

// A restored master gets a report of the records in the state of every rank, and the world
// continues. A process that trains sends the report, or the last one has sent it at its end. Only
// without a report the processes join the rendezvous again.
func TestMasterComesBack(t *testing.T) {
	var want ledger.Ledger
	want.Settle(1)
	want.Add(ledger.Task{Epoch: 2, Number: 0}, 3, 4)
	answers := func(h *hall) {
		h.Helper()
		h.ask()
		r := next(h, "a ledger", h.ledgers)
		if got, err := ledger.Parse(r.Ledger); err != nil ||
			!slices.Equal(got.Append(nil), want.Append(nil)) || r.Generation != 1 {
			h.Errorf("world %d has %v (%v), want %v in world 1", r.Generation, got, err, want)
		}
		if len(h.arrivals) > 0 {
			h.Error("the world is left")
		}
	}
	t.Run("trains", func(t *testing.T) {
		h, a := open(t, 2, self("1:account=account")...)
		h.give(a)
		h.hear("world 1", 0, 1)
		answers(h)
		answers(h)
	})
	t.Run("at its end", func(t *testing.T) {
		h, a := open(t, 1, self("world=account", "world=done", "account=account")...)
		h.give(a)
		h.hear("world 1", 0)
		answers(h)
		answers(h)
	})
	t.Run("unknown", func(t *testing.T) {
		h, a := open(t, 1, self("world=done", "world=ask")...)
		h.give(a)
		pids := h.hear("answer 1", 0)
		h.ask()
		end(t, pids[0])
		h.checkFailures(h.arrival(), 1, 0)
	})
}

// A repeated arrival offers another store, as processes of other workers may have used the first
// one in a world of which this worker was not notified. Stores that the next world does not use are
// closed.
func TestStoreIsNewForEachArrival(t *testing.T) {
	h, a := open(t, 1, self("world=ask")...)
	addresses := []string{a.Crew.Store}
	for range mostOffered {
		h.cuts <- struct{}{}
		a = h.arrival()
		if a.Address != a.Crew.Store || slices.Contains(addresses, a.Crew.Store) {
			t.Fatalf("store %s at %s, after %v", a.Crew.Store, a.Address, addresses)
		}
		addresses = append(addresses, a.Crew.Store)
	}
	h.give(a)
	h.hear("answer 1", 0)
	for _, address := range addresses[:mostOffered] {
		for deadline := time.Now().Add(limit); serves(t, address); runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatal("a store is served that no world uses")
			}
		}
	}
	if !serves(t, a.Crew.Store) {
		t.Error("the store of the world is closed")
	}
}

// serves reports whether a store can be used.
func serves(t *testing.T, address string) bool {
	client, err := tcpstore.Dial(t.Context(), address)
	if err == nil {
		defer client.Close()
		_, err = client.Check(t.Context(), "key")
	}
	return err == nil
}

// A process that is recalled to leave after a round can use the store of its world until it leaves,
// as it may still be creating its process group. Processes of other workers can use it until the
// next world is formed. A process that is recalled at once can no longer use it.
func TestStoreOutlivesRecall(t *testing.T) {
	for _, now := range []bool{false, true} {
		t.Run(fmt.Sprintf("now %v", now), func(t *testing.T) {
			h, a := open(t, 1, self("recall=ask", "answer=arrive", "refusal=arrive")...)
			store := a.Crew.Store
			h.give(a)
			h.hear("world 1", 0)
			h.recall(1, now)
			h.hear(map[bool]string{false: "answer 1", true: "refusal 1"}[now], 0)
			a = h.arrival()
			h.checkFailures(a, 1, 1)
			if !serves(t, store) {
				t.Error("the store is closed before the next world is formed")
			}
			h.give(a)
			h.hear("world 2", 0)
			for deadline := time.Now().Add(limit); serves(t, store); runtime.Gosched() {
				if time.Now().After(deadline) {
					t.Fatal("the store is served although its world is over")
				}
			}
		})
	}
}
