package launch

import (
	"fmt"
	"testing"
	"time"
)

// A master that waits for quota moves to the end of its queue, ten times at most, and has the other
// pods deleted once. Nothing is due once it is admitted.
func TestWaitsForQuota(t *testing.T) {
	l, now := New(true), start
	number, sweeps := 0, 0
	begin := func() {
		t.Helper()
		number++
		p := Pod{UID: fmt.Sprint("pod-", number), Mine: true, Queued: true, QueueTime: 10 * time.Second}
		if did := l.Seen(p, now); len(did) > 0 {
			t.Fatalf("pod %d: %v", number, did)
		}
	}
	// advance goes to the next deadline, and returns whether the master moved.
	advance := func() bool {
		t.Helper()
		at, ok := l.Deadline()
		if !ok {
			return false
		}
		now = at
		for _, a := range l.Tick(now) {
			switch a.Verb {
			case Sweep:
				sweeps++
				if waited := now.Sub(start); sweeps > 1 || waited != 20*time.Second {
					t.Fatalf("sweep %d after %v", sweeps, waited)
				}
			case Delete:
				if did := l.Deleted(a.UID, now); len(did) != 1 || did[0].Verb != Ask {
					t.Fatalf("%v is followed by %v", a, did)
				}
				if did := l.Job(Continues, "", now); len(did) != 1 || did[0].Verb != Create {
					t.Fatalf("%v is followed by %v", a, did)
				}
				begin()
			default:
				t.Fatalf("%v", a)
			}
		}
		return true
	}
	l.Deleted("", now)
	l.Job(Continues, "", now)
	begin()
	for range 100 {
		if !advance() {
			break
		}
	}
	if number != 1+mostSteps || sweeps != 1 || now.Sub(start) != 50*time.Second {
		t.Errorf("%d pods, %d sweeps in %v", number, sweeps, now.Sub(start))
	}
	l.Seen(Pod{UID: fmt.Sprint("pod-", number), Mine: true}, now)
	if at, ok := l.Deadline(); ok {
		t.Errorf("admitted, and something is due at %v", at)
	}
	// its successor may move again
	l.Deleted("", now)
	l.Job(Continues, "", now)
	begin()
	if at, ok := l.Deadline(); !ok || at.Sub(now) != 5*time.Second {
		t.Errorf("the next master is due to move at %v, %t", at, ok)
	}
}
