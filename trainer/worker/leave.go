package worker

import (
	"context"
	"errors"
	"time"

	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/timing"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

var (
	// ErrLeft ends a worker that was asked to leave.
	ErrLeft = errors.New("left, as it was asked to")
	// ErrAbandoned ends a worker whose master could not be reached for too long.
	ErrAbandoned = errors.New("the master could not be reached")

	errLeaving = errors.New("asked to leave") // ends the feeder
)

// drainLimit is what a worker has to end the minibatch that it is at. What it has not by then somebody else does. A
// ring ends its round together, and says when a worker of it can be spared.
const drainLimit = timing.Drain

// drain waits until the worker is asked to leave. From then on it leases nothing, and the heartbeats say so.
func (w *worker) drain(ctx context.Context, unfeed, cancel context.CancelCauseFunc) {
	select {
	case <-w.Leave:
	case <-ctx.Done():
		return
	}
	w.Log.Info("Asked to leave: what is not done is handed back")
	close(w.asked)
	unfeed(errLeaving)
	w.hasten()
	if w.Job.Strategy != job.AllReduce {
		defer time.AfterFunc(drainLimit, func() { cancel(ErrLeft) }).Stop()
	}
	<-ctx.Done()
}

// leaving says whether the worker was asked to leave.
func (w *worker) leaving() bool {
	select {
	case <-w.asked:
		return true
	default:
		return false
	}
}

// handBack tells the master that the worker is at nothing any more, until it has heard. Who was cut short says nothing:
// what it was at may have got to some servers.
func (w *worker) handBack(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	w.idle.Store(true)
	w.hasten()
	<-ctx.Done() // the answer is that the worker is unknown
}

// leave is how far the worker is with that, for the heartbeats.
func (w *worker) leave() wire.Leave {
	switch {
	case w.idle.Load():
		return wire.Leave_READY
	case w.leaving():
		return wire.Leave_ASKED
	}
	return wire.Leave_STAYS
}

// hasten has the next heartbeat sent now.
func (w *worker) hasten() { signal(w.urgent) }

// signal leaves word for whoever looks next. It does not wait.
func signal(word chan<- struct{}) {
	select {
	case word <- struct{}{}:
	default:
	}
}
