package scale

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/rpc"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

const (
	heartbeat = 500 * time.Millisecond // how often a pod says how far it is, as real ones do
	anewPause = 100 * time.Millisecond // before a worker asks how things stand in another life of the model
)

// errReplaced ends a player whose place another has taken.
var errReplaced = errors.New("the master does not know this pod any more")

// Worker plays a worker: it says what one says, and sleeps where one computes.
type Worker struct {
	Self      *rpc.Self
	Master    wire.MasterClient
	Ledger    *Ledger
	Batch     int64         // records of a minibatch
	Minibatch time.Duration // that one takes

	steps atomic.Int64
	mu    sync.Mutex
	lease *wire.LeaseProgress // nil while it holds none
}

// Run works until the master says that the job has ended. When ctx is done it ends at once, as a killed one does.
func (w *Worker) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := w.join(ctx); err != nil {
		return err
	}
	var beating sync.WaitGroup
	defer beating.Wait()
	defer cancel(nil)
	beating.Go(func() { cancel(beat(ctx, w.Master, w.state)) })
	for {
		err := w.work(ctx)
		if !errors.Is(err, errAnew) {
			return err
		}
		if err := sleep(ctx, anewPause); err != nil { // the servers may have to hear of it first
			return err
		}
		if err := w.join(ctx); err != nil {
			return err
		}
	}
}

// work does one task after the other, in one life of the model.
func (w *Worker) work(ctx context.Context) error {
	for {
		t, err := w.next(ctx)
		switch {
		case err != nil:
			return err
		case t.Kind == wire.TaskKind_DONE:
			return nil
		case t.Kind == wire.TaskKind_TRAINING:
			err = w.train(ctx, t)
		case t.Kind != wire.TaskKind_WAIT:
			err = fmt.Errorf("a player cannot do a task of kind %v", t.Kind)
		}
		if err != nil {
			return err
		}
	}
}

func (w *Worker) index() int32 { return int32(w.Self.Header().Index) }

// join waits for the servers, too: a first call is answered at once, the next ones when all servers are there.
func (w *Worker) join(ctx context.Context) error {
	for {
		var servers []*wire.Server
		err := retry(ctx, func() error {
			reply, err := w.Master.Join(ctx, &wire.JoinRequest{Role: wire.Role_WORKER, Index: w.index()})
			servers = reply.GetServers()
			if err == nil {
				w.Self.SetLife(reply.Life)
			}
			return err
		})
		if err != nil || len(servers) > 0 {
			return err
		}
	}
}

func (w *Worker) next(ctx context.Context) (t *wire.Task, err error) {
	err = retry(ctx, func() error {
		reply, err := w.Master.GetTask(ctx, &wire.GetTaskRequest{Worker: w.index()})
		t = reply.GetTask()
		return err
	})
	return t, err
}

// train takes its time for each minibatch, pushes it, and reports at the end. Where the ledger has more of the task than the
// worker knows of, it goes on from there.
func (w *Worker) train(ctx context.Context, t *wire.Task) error {
	w.hold(&wire.LeaseProgress{Lease: t.Lease, Done: t.Done})
	defer w.hold(nil)
	for done, records := t.Done, t.End-t.Start; done < records; {
		if err := sleep(ctx, w.Minibatch); err != nil {
			return err
		}
		had, err := w.Ledger.push(w.Self.Life(), t, done, min(done+w.Batch, records))
		switch {
		case err != nil:
			return err
		case had <= done:
			return fmt.Errorf("the servers have %d records of a task of which the master credits %d", had, done)
		}
		done = had
		w.steps.Add(1)
		w.hold(&wire.LeaseProgress{Lease: t.Lease, Done: done})
	}
	err := retry(ctx, func() error {
		_, err := w.Master.ReportTask(ctx, &wire.ReportTaskRequest{Worker: w.index(), Lease: t.Lease})
		return err
	})
	if status.Code(err) == codes.FailedPrecondition { // told before, and the answer was lost
		return nil
	}
	return err
}

func (w *Worker) hold(l *wire.LeaseProgress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lease = l
}

func (w *Worker) state() *wire.HeartbeatRequest {
	r := &wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: w.index(), Steps: w.steps.Load(), Loss: 1}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lease != nil {
		r.Leases = []*wire.LeaseProgress{w.lease}
	}
	return r
}

// beat tells the master how a pod is until ctx is done, or the master does not know it.
func beat(ctx context.Context, master wire.MasterClient, state func() *wire.HeartbeatRequest) error {
	for {
		reply, err := master.Heartbeat(ctx, state())
		if err == nil && reply.Unknown {
			return errReplaced
		}
		if err := sleep(ctx, heartbeat); err != nil {
			return err
		}
	}
}

// retry calls f until the master answers. An answer that repeating cannot change is returned.
func retry(ctx context.Context, f func() error) error {
	const first, last = 10 * time.Millisecond, time.Second
	for pause := first; ; pause = min(2*pause, last) {
		err := f()
		switch status.Code(err) {
		case codes.OK:
			return nil
		case codes.NotFound:
			return errReplaced
		case codes.Aborted:
			return fmt.Errorf("%w: %v", errAnew, err)
		case codes.FailedPrecondition, codes.InvalidArgument, codes.Unauthenticated, codes.PermissionDenied:
			return err
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// sleep answers why ctx is done, if it is before d has passed.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
