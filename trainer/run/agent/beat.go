package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

// beats is what the heartbeats report.
type beats struct {
	mu sync.Mutex
	// has an element when a heartbeat is due at once
	urgent    chan struct{}
	formation int64
	// the newest formation of which all ranks are known to have the state that it began with
	met      int64
	finished int64
	leaves   bool
	// processes keep their state
	keeps bool
	// the records that are in the state of every rank, as a process has told it last; nil: none has
	account []byte
	// the master has asked for the account
	asked bool
	// the account is older than the question
	stale bool
	// that the processes have when the job has ended, as the master says; 0: it has not
	grace time.Duration
	// the master says that the job is to stop
	stopping bool
	// processes use the package, and can be asked to write a checkpoint
	asks bool
	// the newest checkpoint that a process has written; nil: none has
	saved *wire.Saved
	// why the newest checkpoint could not be written; "": it was
	unsaved string
	// the last round before the job stops; nil: the processes have not ended it
	rest *wire.Rest
	// a process has completed the training: the account does not change any more
	final bool
	// origin is what the first rank has begun a world with that has no source, until the master has
	// it; nil: nothing is to be told.
	origin *wire.Origin
	signs  signs
}

// world notes which world the processes are in; 0: none.
func (b *beats) world(formation int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.formation, b.finished, b.account, b.asked, b.stale, b.final = formation, 0, nil, false, false, false
}

// setAccount sets the account: the records that are in the state of every rank of a world, for a
// master that was replaced.
func (b *beats) setAccount(formation int64, ledger []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if formation == b.formation {
		b.met, b.account, b.stale = formation, ledger, false
		b.hasten()
	}
}

// ask notes that the master asks for the account of the world, and reports whether it is known.
func (b *beats) ask() (known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.asked && !b.final {
		b.stale = true
	}
	b.asked = true
	if b.account == nil || b.stale {
		return false
	}
	b.hasten()
	return true
}

// takeAccount returns the account, if the master has asked for it. The caller holds the mutex.
func (b *beats) takeAccount() []byte {
	if !b.asked || b.account == nil || b.stale {
		return nil
	}
	b.asked = false
	return b.account
}

// end notes that a process is at the end of its training. It has told its account just before.
func (b *beats) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.final, b.stale = true, false
	b.hasten()
}

// begin notes what the first rank begins a world with that has no source.
func (b *beats) begin(o *wire.Origin) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.origin = o
	b.hasten()
}

// meet notes that all ranks of a world have begun a round, or have looked for records together:
// each has the state that the world began with.
func (b *beats) meet(formation int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.met = max(b.met, formation)
	b.hasten()
}

// finish notes that all processes of a world have ended with 0.
func (b *beats) finish(formation int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.finished = formation
	b.hasten()
}

// keep notes that processes keep their state: the newcomers of such a program join when they are
// ready.
func (b *beats) keep() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.keeps {
		b.keeps = true
		b.hasten()
	}
}

// readyToLeave notes that a worker that was asked to leave can go.
func (b *beats) readyToLeave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leaves = true
	b.hasten()
}

func (b *beats) hasten() {
	select {
	case b.urgent <- struct{}{}:
	default:
	}
}

// heartbeats reports the state of this worker to the master. It cancels the worker when the master
// does not know it any more, and when the master was unreachable for longer than the limit.
func (a *agent) heartbeats(ctx context.Context, cancel context.CancelCauseFunc) {
	ticker := time.NewTicker(timing.Interval(a.Job.HeartbeatTimeout.Duration))
	defer ticker.Stop()
	answered, missed := time.Now(), 0
	for over := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-a.beats.urgent:
		}
		reply, err := a.beat(ctx)
		if err != nil {
			a.watch.missed()
			// several in a row: after one, the agent itself may have been suspended
			missed++
			if away := time.Since(answered); a.Abandoned > 0 && missed > 1 && away >= a.Abandoned {
				cancel(fmt.Errorf("%w for %v: %w", membership.ErrAbandoned, away.Round(time.Second), err))
				return
			}
			continue
		}
		answered, missed = time.Now(), 0
		a.watch.answered(answered, a.Self.Header().Master)
		if reply.Over { // before it is known
			a.beats.setGrace(time.Duration(reply.GraceMs) * time.Millisecond)
		}
		if reply.StopMs > 0 && a.beats.setStopping() {
			a.mail.put(event{stop: answered.Add(time.Duration(reply.StopMs) * time.Millisecond)})
		}
		if reply.Unknown {
			cancel(membership.ErrReplaced)
			return
		}
		if reply.Ledger && !a.beats.ask() { // only the processes can tell
			a.mail.put(event{})
		}
		if reply.Over && !over {
			over = true
			close(a.over)
		}
	}
}

func (a *agent) beat(ctx context.Context) (*wire.HeartbeatReply, error) {
	ctx, cancel := context.WithTimeout(ctx, timing.BeatLimit)
	defer cancel()
	r := &wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: int32(a.Self.Header().Index)}
	a.beats.mu.Lock()
	r.Formation, r.Met, r.Finished, r.Keeps = a.beats.formation, a.beats.met, a.beats.finished, a.beats.keeps
	r.Ledger, r.Origin = a.beats.takeAccount(), a.beats.origin
	if a.beats.leaves {
		r.Leave = wire.Leave_ASKED
	}
	r.Asks, r.Saved, r.Rest, r.Unsaved = a.beats.asks, a.beats.saved, a.beats.rest, a.beats.unsaved
	r.Processes = a.beats.signs.reports(time.Now())
	r.Stage = a.stages.least()
	a.beats.mu.Unlock()
	a.records.beat(r)
	reply, err := a.Master.Heartbeat(ctx, r)
	a.beats.mu.Lock()
	defer a.beats.mu.Unlock()
	if err == nil && a.beats.origin == r.Origin {
		a.beats.origin = nil
	}
	return reply, err
}
