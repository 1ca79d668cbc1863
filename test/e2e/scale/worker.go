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

	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

const (
	heartbeat = 500 * time.Millisecond // interval of heartbeats, as in real pods
	// pause before a worker asks for the state in another model generation
	generationPause = 100 * time.Millisecond
)

// errReplaced ends a simulated pod that another has replaced.
var errReplaced = errors.New("the master does not know this pod any more")

// Worker simulates a worker: it sends the same messages as a real one, and sleeps instead of
// computing.
type Worker struct {
	Self      *rpc.Self
	Master    wire.MasterClient
	Ledger    *Ledger
	Batch     int64         // number of records of a minibatch
	Minibatch time.Duration // time of a minibatch
	// Hurry is closed when minibatches take no time any more; nil = never.
	Hurry <-chan struct{}

	steps atomic.Int64
	mu    sync.Mutex
	lease *wire.LeaseProgress // nil while it holds no lease
}

// Run works until the master reports that the job has ended. When ctx is done it ends at once, like
// a killed worker.
func (w *Worker) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := w.join(ctx); err != nil {
		return err
	}
	var beating sync.WaitGroup
	defer beating.Wait()
	defer cancel(nil)
	beating.Go(func() { cancel(beat(ctx, w.Master, nil, w.state)) })
	for {
		err := w.work(ctx)
		if !errors.Is(err, errGeneration) {
			return err
		}
		// the servers may not know of the new generation yet
		if err := sleep(ctx, generationPause); err != nil {
			return err
		}
		if err := w.join(ctx); err != nil {
			return err
		}
	}
}

// work trains tasks one after the other, in one model generation.
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

// join joins the job, and waits for the servers: the first call is answered at once, the next ones
// when all servers have joined.
func (w *Worker) join(ctx context.Context) error {
	for {
		var servers []*wire.Server
		err := retry(ctx, func() error {
			reply, err := w.Master.Join(ctx, &wire.JoinRequest{Role: wire.Role_WORKER, Index: w.index()})
			servers = reply.GetServers()
			if err == nil {
				w.Self.SetModelGeneration(reply.ModelGeneration)
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

// train sleeps for each minibatch, pushes it, and reports at the end. If the ledger has more of the
// task than the worker knows, it continues from there.
func (w *Worker) train(ctx context.Context, t *wire.Task) error {
	w.hold(&wire.LeaseProgress{Lease: t.Lease, Done: t.Done})
	defer w.hold(nil)
	for done, records := t.Done, t.End-t.Start; done < records; {
		if err := w.compute(ctx); err != nil {
			return err
		}
		had, err := w.Ledger.push(w.Self.ModelGeneration(), t, done, min(done+w.Batch, records))
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
	if status.Code(err) == codes.FailedPrecondition { // reported before, and the answer was lost
		return nil
	}
	return err
}

// compute takes the time of a minibatch. It returns the cause if ctx is done before.
func (w *Worker) compute(ctx context.Context) error {
	timer := time.NewTimer(w.Minibatch)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.Hurry:
	case <-ctx.Done():
	}
	return context.Cause(ctx)
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

// beat sends heartbeats with the pod's state to the master until ctx is done, or the master does
// not know the pod. News are sent at once.
func beat(ctx context.Context, master wire.MasterClient, news <-chan struct{},
	state func() *wire.HeartbeatRequest) error {
	for {
		reply, err := master.Heartbeat(ctx, state())
		if err == nil && reply.Unknown {
			return errReplaced
		}
		select {
		case <-time.After(heartbeat):
		case <-news:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// retry calls f until the master answers. It returns errors that a repetition cannot change.
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
			return fmt.Errorf("%w: %v", errGeneration, err)
		case codes.FailedPrecondition, codes.InvalidArgument, codes.Unauthenticated, codes.PermissionDenied:
			return err
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// sleep returns the cause if ctx is done before d has passed.
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
