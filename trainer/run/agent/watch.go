package agent

import (
	"context"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
)

// watch tracks since when the master has been reachable without a break: only then can it notice
// silent workers, and report a loss.
type watch struct {
	mu sync.Mutex
	// incarnation of the master
	master int
	// time since which it can judge silences; zero: it is away
	since time.Time
	// time of the last answer to a heartbeat
	last time.Time
	// closed at the next answer
	next chan struct{}
}

func newWatch() *watch { return &watch{next: make(chan struct{})} }

// answered notes that this incarnation of the master has answered a heartbeat.
func (w *watch) answered(now time.Time, master int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// this process was suspended, or the whole machine
	stopped := now.Sub(w.last) > timing.BeatLimit+timing.Beat
	if w.since.IsZero() || stopped || master != w.master {
		// until then a new master counts no worker as lost that has yet to find it
		w.since = now.Add(timing.Return)
	}
	w.master, w.last = master, now
	close(w.next)
	w.next = make(chan struct{})
}

// missed notes that a heartbeat was not answered.
func (w *watch) missed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = time.Time{}
}

// kept returns how long the master is known to have been reachable without a break since a time,
// and a channel that is closed when more is known.
func (w *watch) kept(after time.Time) (time.Duration, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.IsZero() {
		return 0, w.next
	}
	if w.since.After(after) {
		after = w.since
	}
	return w.last.Sub(after), w.next
}

// unexplained returns when the master, had it lost a worker before the call, would have said so. It
// waits as long as the master is away, until ctx ends.
func (a *agent) unexplained(ctx context.Context) error {
	limit := timing.Explain(a.Job.HeartbeatTimeout.Duration)
	for asked := time.Now(); ; {
		kept, next := a.watch.kept(asked)
		if kept >= limit {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
