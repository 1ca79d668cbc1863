package agent

import (
	"context"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/timing"
)

// watch knows since when the master has been there: only then does it hear which workers are silent, and say that one is gone.
type watch struct {
	mu     sync.Mutex
	master int           // its incarnation
	since  time.Time     // it judges silences; zero: it is away
	last   time.Time     // answer of a heartbeat
	next   chan struct{} // closed with the next one
}

func newWatch() *watch { return &watch{next: make(chan struct{})} }

// answered notes that this incarnation of the master has answered a heartbeat.
func (w *watch) answered(now time.Time, master int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	stopped := now.Sub(w.last) > timing.BeatLimit+timing.Beat // this process was, or all of the machine
	if w.since.IsZero() || stopped || master != w.master {
		w.since = now.Add(timing.Return) // until then it judges nobody who has yet to find it
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

// kept returns how long the master has been there without a break after a time, as far as is known, and what is closed when more is.
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

// unexplained returns when the master would have said, if a worker was lost before the call, that one is. It waits for as long as ctx lasts
// and the master is away.
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
