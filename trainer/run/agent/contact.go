package agent

import (
	"context"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/supervise"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
)

// contact records when the master was reachable, for processes that ask about a lost member.
type contact struct {
	mu sync.Mutex
	supervise.Contact
	// how long the master may be unreachable; 0: no limit
	limit time.Duration
	// closed at the next answer
	next chan struct{}
}

func newContact(limit time.Duration) *contact {
	return &contact{limit: limit, next: make(chan struct{})}
}

// begin notes that heartbeats begin now.
func (c *contact) begin(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Begin(now)
}

// answered notes that this incarnation of the master has answered a heartbeat.
func (c *contact) answered(now time.Time, master int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Answered(now, master)
	close(c.next)
	c.next = make(chan struct{})
}

// missed notes that a heartbeat was not answered. It returns how long the master has been
// unreachable if that exceeds the limit, and 0 otherwise.
func (c *contact) missed(now time.Time) (away time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Missed(now, c.limit)
}

// kept returns how long the master is known to have been reachable without interruption, counted
// from the given time at the earliest, and a channel that is closed at its next answer.
func (c *contact) kept(after time.Time) (time.Duration, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Kept(after), c.next
}

// unexplained returns when the master would have reported any worker that was lost before a time.
// The wait is extended by the time in which the master is unreachable, until ctx ends.
func (a *agent) unexplained(ctx context.Context, asked time.Time) error {
	limit := timing.Explain(a.Job.HeartbeatTimeout.Duration)
	for {
		kept, next := a.contact.kept(asked)
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
