package pod

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// More memory is given also to a line that has no relaunches left.
func TestMemoryGrowsWithoutRelaunches(t *testing.T) {
	for role, want := range map[Role]Verdict{
		PS:     {Counted: true, Fatal: true, Reason: "out of memory (--max_memory allows no more)"},
		Worker: {Counted: true, Relaunch: true, Grow: true, Reason: "out of memory"},
	} {
		p := Policy{MaxOOMs: map[Role]int{Worker: 1}}
		if got := Judge(role, Exit{OOM: true}, p, Past{Counted: 7}); got != want {
			t.Errorf("%v: %+v, want %+v", role, got, want)
		}
	}
}

// A node that refuses pods does not get one each second, is not a fault of theirs, and is forgiven
// when one has run.
func TestRejectedPodsBackOff(t *testing.T) {
	table := running(t, Policy{Servers: 1, Workers: 1, Backoff: time.Second})
	rejected := Exit{Rejected: true, Reason: "OutOfcpu"}
	now, n := at(10), 0
	reject := func(delay time.Duration) {
		t.Helper()
		actions := table.Observe(end(rejected, worker(n)), now)
		expect(t, actions, "lost "+worker(n).String()+": rejected by its node: OutOfcpu")
		if !actions[0].Rejected {
			t.Errorf("%v does not say that it was rejected", actions[0])
		}
		due, ok := table.Deadline()
		n++
		want := fmt.Sprintf("backs off for %v: worker-%d rejected by its node: OutOfcpu", delay, n-1)
		if p, _ := table.Get(worker(n)); !ok || due.Sub(now) != delay || p.Waiting != want {
			t.Fatalf("due in %v, %+v", due.Sub(now), p)
		}
		now = due
		expect(t, table.Tick(now), "create "+worker(n).String())
	}
	for _, delay := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		reject(delay * time.Second)
	}
	table.Observe(Event{ID: worker(n), Phase: Running}, now)
	now = now.Add(steady - time.Second)
	expect(t, table.Observe(end(Exit{Signal: 9}, worker(n)), now), "lost worker-8: killed (signal 9)",
		"create worker-9")
	n++
	reject(time.Minute) // worker-8 has not run for long
	table.Observe(Event{ID: worker(n), Phase: Running}, now)
	now = now.Add(steady)
	table.Observe(Event{ID: worker(n), Phase: Leaving}, now)
	n++
	reject(time.Second)

	rejected = Exit{Evicted: true, Rejected: true, Reason: "the node is low on memory"}
	for _, delay := range []time.Duration{1, 2, 4} {
		p, _ := table.Get(server(0))
		table.Observe(Event{ID: server(0), Incarnation: p.Incarnation, Phase: Failed, Exit: rejected}, now)
		due, _ := table.Deadline()
		if p, _ := table.Get(server(0)); due.Sub(now) != delay*time.Second ||
			!strings.HasPrefix(p.Waiting, "backs off for ") || table.Err() != nil {
			t.Fatalf("due in %v, %+v, %v", due.Sub(now), p, table.Err())
		}
		now = due
		table.Tick(now)
	}
}

// A worker waits for its quota without end, and no longer than maxRefused between two attempts; a
// server does not.
func TestRefusals(t *testing.T) {
	table := New(Policy{Servers: 1, Workers: 1, Backoff: time.Second})
	table.Start(start)
	table.Observe(Event{ID: server(0), Phase: Running}, start)
	refuse := func(id ID, incarnation int, for_ time.Duration, now time.Time) time.Time {
		t.Helper()
		for until := now.Add(for_); now.Before(until); {
			table.Refused(id, incarnation, Refusal{Reason: "exceeded quota"}, now)
			due, ok := table.Deadline()
			if wait := due.Sub(now); !ok || wait > maxRefused {
				t.Fatalf("%v is tried again in %v", id, wait)
			}
			now = due
			table.Tick(now)
		}
		return now
	}
	now := refuse(worker(0), 1, time.Hour, start)
	if p, _ := table.Get(worker(0)); table.Err() != nil || p.Waiting != "cannot be created: exceeded quota" {
		t.Fatalf("%+v, %v", p, table.Err())
	}
	table.Observe(Event{ID: worker(0), Phase: Running}, now)
	table.Observe(end(Exit{Signal: 9}, server(0)), now)
	now = refuse(server(0), 2, 9*time.Minute, now)
	if table.Err() != nil {
		t.Fatal(table.Err())
	}
	refuse(server(0), 2, 2*time.Minute, now)
	if err := table.Err(); err == nil ||
		!strings.HasPrefix(err.Error(), "ps-0 could not be created for 10m") ||
		!strings.HasSuffix(err.Error(), ": exceeded quota") {
		t.Error(err)
	}
}

// A thousand that leave at once and end later are forgotten all the same.
func TestTableForgetsThoseThatLeft(t *testing.T) {
	const n = 1000
	table := running(t, Policy{Workers: n})
	for i := range n {
		table.Observe(Event{ID: worker(i), Phase: Leaving}, at(5))
	}
	for i := range n {
		table.Observe(end(Exit{Code: 143}, worker(i)), at(6))
	}
	table.Observe(Event{ID: worker(n), Phase: Leaving}, at(7))
	if pods := len(table.List()); pods > n+remembered+1 {
		t.Errorf("%d pods are known", pods)
	}
}
