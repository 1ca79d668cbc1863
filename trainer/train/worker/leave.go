package worker

import (
	"context"
	"errors"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

var errLeaving = errors.New("asked to leave") // ends the feeder

// drainLimit is the time that a worker that was asked to leave may take for its current minibatch.
// Another worker trains on what it has not finished by then. In a ring the ranks end the round
// together, and the master says when a worker can go.
const drainLimit = timing.Drain

// drain waits until the worker is asked to leave. From then on the worker leases nothing, and its
// heartbeats report that it leaves.
func (w *worker) drain(ctx context.Context, unfeed, cancel context.CancelCauseFunc) {
	select {
	case <-w.Leave:
	case <-ctx.Done():
		return
	}
	w.Log.Info("Asked to leave: handing back unfinished records")
	close(w.asked)
	unfeed(errLeaving)
	w.hasten()
	if w.Job.Strategy != job.AllReduce {
		defer time.AfterFunc(drainLimit, func() { cancel(membership.ErrLeft) }).Stop()
	}
	<-ctx.Done()
}

// leaving reports whether the worker was asked to leave.
func (w *worker) leaving() bool {
	select {
	case <-w.asked:
		return true
	default:
		return false
	}
}

// returnLeases tells the master that the worker has nothing in flight any more, until the master
// has answered. A worker that was cut short does not report it: some servers may have got its last
// gradient.
func (w *worker) returnLeases(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	w.idle.Store(true)
	w.hasten()
	// the master answers that it does not know the worker any more
	<-ctx.Done()
}

// leaveState returns for the heartbeats how far the worker is with leaving.
func (w *worker) leaveState() wire.Leave {
	switch {
	case w.idle.Load():
		return wire.Leave_READY
	case w.leaving():
		return wire.Leave_ASKED
	}
	return wire.Leave_STAYS
}

// hasten has the next heartbeat sent at once.
func (w *worker) hasten() { signal(w.urgent) }

// signal puts an element into a channel of capacity 1, unless it has one. It does not wait.
func signal(word chan<- struct{}) {
	select {
	case word <- struct{}{}:
	default:
	}
}
