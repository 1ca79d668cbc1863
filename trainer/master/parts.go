package master

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/lifecycle"
)

// shared has the fields of the master and of every part of it. A part does not have the master: it
// has the objects that it needs, each of which owns some of the state, and its file has an
// interface of its requests to the master.
type shared struct {
	*Config
	stage *lifecycle.Lifecycle
	// guards all of the state
	mu      turn
	clock   *clock
	events  *events
	waiters *waiters
}

// early refuses a pod that calls before the job is planned: it is to call again. The caller holds
// the mutex.
func (s *shared) early() error {
	if s.stage.Left() != nil {
		return status.Error(codes.Unavailable, "another master replaces this one")
	}
	if s.stage.Planned() || s.stage.Over() {
		return nil
	}
	return status.Error(codes.Unavailable, "not yet: "+s.indexing())
}

// turn is a mutex under which the holder may wait for a record to be written.
type turn chan struct{}

func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }

// waiters are the calls that wait for a change.
type waiters struct {
	// closed when a waiting call should look again
	changed chan struct{}
}

func newWaiters() *waiters { return &waiters{make(chan struct{})} }

// wake makes every waiting call look again. The caller holds the mutex.
func (w *waiters) wake() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// wait calls ask under the mutex until it returns true or an error, or the long poll times out.
func (w *waiters) wait(ctx context.Context, mu turn, ask func() (bool, error)) error {
	var timeout <-chan time.Time
	for {
		mu.Lock()
		ok, err := ask()
		changed := w.changed
		mu.Unlock()
		if ok || err != nil {
			return err
		}
		if timeout == nil {
			timer := time.NewTimer(longPoll)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-changed:
		case <-timeout:
			return nil
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// background is the goroutines for which Run waits.
type background struct {
	sync.WaitGroup
	// ends when Run returns
	lasting context.Context
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
