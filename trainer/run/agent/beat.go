package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/supervise"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

// beats holds the content of heartbeats.
type beats struct {
	mu sync.Mutex
	// has an element when a heartbeat is to be sent at once
	urgent chan struct{}
	supervise.Beat
	// answer to the master's question which records are in the state of every rank; nil: there is
	// no answer to send
	account []byte
	// minimum time that the processes have to end after the end of the job, given by the master; 0:
	// the master has not given it
	grace time.Duration
	// the newest checkpoint that a process has written; nil: none
	saved *wire.Saved
	// why the newest checkpoint could not be written; "": it was written
	unsaved string
	// the last round before the job stops; nil: the processes have not completed it
	rest *wire.Rest
	// state with which rank 0 has begun a world without a source, until the master has replied;
	// nil: there is no such report
	origin *wire.Origin
	signs  signs
}

// set changes what heartbeats report. With urgent the next one is sent at once.
func (b *beats) set(urgent bool, change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
	if urgent {
		select {
		case b.urgent <- struct{}{}:
		default:
		}
	}
}

// answers reports whether the answer to the master's last question has yet to be sent.
func (b *beats) answers() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.account != nil
}

// endGrace returns the time that the processes have to end after the end of the job; 0: the job has
// not ended, or the master has not given the time.
func (b *beats) endGrace() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.grace
}

// replied handles the reply to a heartbeat, or the error of a heartbeat without a reply. It reports
// false after it has ended the worker by cancel: the job has ended, the master does not know the
// worker any more, or the master was unreachable for longer than the limit.
func (a *agent) replied(reply *wire.HeartbeatReply, err error, now time.Time, cancel context.CancelCauseFunc) bool {
	if err != nil {
		if away := a.contact.missed(now); away > 0 {
			cancel(fmt.Errorf("%w for %v: %w", membership.ErrAbandoned, away.Round(time.Second), err))
			return false
		}
		return true
	}
	a.contact.answered(now, a.Self.Header().Master)
	a.stacksAsked(reply.Stacks)
	a.mail.put(supervise.Others{Generation: reply.World, Ranks: int(reply.Ranks)})
	for _, h := range reply.Hung {
		a.mail.put(supervise.Hung{Generation: h.Generation, Pid: int(h.Pid), Why: h.Why})
	}
	if reply.StopMs > 0 {
		a.mail.put(supervise.StopAsked{By: now.Add(time.Duration(reply.StopMs) * time.Millisecond)})
	}
	if reply.Over {
		// before cancel ends the loop that reads it
		a.beats.set(false, func() { a.beats.grace = time.Duration(reply.GraceMs) * time.Millisecond })
	}
	if reply.Ledger && !reply.Unknown && !a.beats.answers() {
		a.mail.put(supervise.AccountAsked{})
	}
	switch {
	case reply.Unknown:
		cancel(membership.ErrReplaced)
	case reply.Over:
		cancel(errDone)
	}
	return !reply.Unknown && !reply.Over
}

// exchange sends a heartbeat with all that is to be reported, and returns the master's reply.
func (a *agent) exchange(ctx context.Context, now time.Time) (*wire.HeartbeatReply, error) {
	ctx, cancel := context.WithTimeout(ctx, timing.BeatLimit)
	defer cancel()
	r := &wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: int32(a.Self.Header().Index)}
	b := &a.beats
	b.set(false, func() {
		r.Generation, r.Met, r.Finished, r.Keeps, r.Asks = b.Generation, b.Met, b.Finished, b.Keeps, b.Asks
		r.Ledger, r.Origin, b.account = b.account, b.origin, nil
		if b.Leaving {
			r.Leave = wire.Leave_ASKED
		}
		r.Saved, r.Rest, r.Unsaved = b.saved, b.rest, b.unsaved
		r.Processes = b.signs.reports(now)
		r.Stage = a.stages.least()
	})
	a.records.beat(r)
	r.Spent = a.records.spents.report(a.count)
	reply, err := a.Master.Heartbeat(ctx, r)
	b.set(false, func() {
		if err == nil && b.origin == r.Origin {
			b.origin = nil
		}
	})
	return reply, err
}
