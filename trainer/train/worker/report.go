package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/store/outage"
	"github.com/elasticdl/elasticdl/trainer/train/ps"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

// interval returns the time between two heartbeats.
func (w *worker) interval() time.Duration {
	if w.Job.Strategy == job.AllReduce {
		return timing.Interval(w.Job.HeartbeatTimeout.Duration)
	}
	return timing.Interval(timing.Silence)
}

// leases are the leases that this worker holds, each from its grant until its report is delivered.
type leases struct {
	mu    sync.Mutex
	held  map[int64]*lease
	floor int64 // leases with smaller numbers are void
	// looked returns how many bytes were read to find records, which is effort of the lease that
	// needs them. Nil: no lease searches.
	looked func() int64
}

type lease struct {
	// zero unless the lease is of training
	task ledger.Task
	// records that are in the model and cannot be lost
	done int64
	// failed: what the feeder has read for it is dropped
	abandoned bool
	// waiting for the next attempt to reach storage that fails
	resting bool
	// why the storage fails for which it waits; "": it does not wait
	waits string
	// number of heartbeats while it rested, plus the rounds to which its records were brought
	effort int64
}

func newLeases() *leases { return &leases{held: make(map[int64]*lease)} }

func (l *leases) hold(t *wire.Task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// the news that the lease is void came before its grant
	if t.Lease < l.floor {
		return
	}
	h := &lease{done: t.Done}
	if t.Kind == wire.TaskKind_TRAINING {
		h.task = ledger.Task{Epoch: int(t.Epoch), Number: int(t.Number)}
	}
	l.held[t.Lease] = h
}

func (l *leases) advance(id, done int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.held[id]; h != nil {
		h.done = done
	}
}

// rest notes that a lease begins or ends waiting for storage.
func (l *leases) rest(id int64, rests bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.held[id]; h != nil {
		h.resting = rests
	}
}

// fails notes why the storage for which a lease waits fails; nil: it does not fail any more. The
// first reason stays.
func (l *leases) fails(id int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch h := l.held[id]; {
	case h == nil:
	case err == nil:
		h.waits = ""
	case h.waits == "":
		h.waits = outage.Trouble(err)
	}
}

// turn notes the end of a round to which records of a lease were brought, whether or not the round
// took them.
func (l *leases) turn(id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.held[id]; h != nil {
		h.effort++
	}
}

// abandon marks a lease as failed, and returns how many of its records were done.
func (l *leases) abandon(id int64) (done int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.held[id]; h != nil {
		h.abandoned = true
		done = h.done
	}
	return done
}

// abandoned reports whether a lease is not worth working on: it failed, or is settled.
func (l *leases) abandoned(id int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.held[id]
	return h == nil || h.abandoned
}

// void drops the leases below floor: they are settled, or another worker has them.
func (l *leases) void(floor int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.floor = max(l.floor, floor)
	maps.DeleteFunc(l.held, func(id int64, _ *lease) bool { return id < l.floor })
}

func (l *leases) release(id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, id)
}

func (l *leases) ids() []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.held))
}

func (l *leases) progress() []*wire.LeaseProgress {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*wire.LeaseProgress
	var looked int64
	if l.looked != nil {
		looked = l.looked()
	}
	for id, h := range l.held {
		if h.resting {
			h.effort++
		}
		all = append(all, &wire.LeaseProgress{
			Lease: id, Done: h.done, Epoch: int32(h.task.Epoch), Number: int64(h.task.Number),
			Effort: h.effort + looked, Waits: h.waits,
		})
	}
	slices.SortFunc(all, func(a, b *wire.LeaseProgress) int { return int(a.Lease - b.Lease) })
	return all
}

// progress returns the strategy's progress, for the heartbeats.
type progress struct {
	mu       sync.Mutex
	steps    int64
	rejected int64
	loss     float32
}

func (p *progress) step(loss float32) (steps int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps++
	p.loss = loss
	return p.steps
}

func (p *progress) reject() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rejected++
}

func (p *progress) snapshot() (steps, rejected int64, loss float32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.steps, p.rejected, p.loss
}

// report delivers the reports of ended leases, in order, until there are no more or ctx is done.
func (w *worker) report(ctx context.Context) {
	for r := range w.reports {
		err := membership.Retry(ctx, func() error {
			_, err := w.Master.ReportTask(ctx, r)
			// the lease is of another model generation, and void
			if status.Code(err) == codes.Aborted {
				return status.Error(codes.FailedPrecondition, status.Convert(err).Message())
			}
			return err
		})
		switch {
		case status.Code(err) == codes.FailedPrecondition:
			w.Log.Warn("The lease was taken back before its report", "lease", r.Lease)
		case err != nil && !errors.Is(err, membership.ErrReplaced) && ctx.Err() == nil:
			w.Log.Error("Report refused", "lease", r.Lease, "error", err)
		}
		w.leases.release(r.Lease)
	}
}

// heartbeats tells the master how far this worker is. It cancels the worker when the master does
// not know it any more, and when the master was unreachable for longer than the limit.
func (w *worker) heartbeats(ctx context.Context, how strategy, cancel context.CancelCauseFunc) {
	ticker := time.NewTicker(w.interval())
	defer ticker.Stop()
	answered, missed := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-w.urgent:
		}
		reply, err := w.beat(ctx, how)
		if err != nil {
			// several in a row: after one, the worker itself may have been suspended
			missed++
			if away := time.Since(answered); w.Abandoned > 0 && missed > 1 && away >= w.Abandoned {
				cancel(fmt.Errorf("%w for %v: %w", membership.ErrAbandoned, away.Round(time.Second), err))
				return
			}
			continue
		}
		answered, missed = time.Now(), 0
		if reply.Unknown {
			cancel(membership.ErrReplaced)
			return
		}
		// a ring learns the generation with its world
		if modelGeneration := w.Self.ModelGeneration(); reply.ModelGeneration != modelGeneration &&
			w.Job.Strategy != job.AllReduce {
			cancel(fmt.Errorf("%w: generation %d of it after generation %d", ps.ErrStaleModel,
				reply.ModelGeneration, modelGeneration))
			return
		}
		how.beaten(reply)
	}
}

func (w *worker) beat(ctx context.Context, how strategy) (*wire.HeartbeatReply, error) {
	ctx, cancel := context.WithTimeout(ctx, timing.BeatLimit)
	defer cancel()
	// read before the progress: after READY the progress does not change
	leave := w.leaveState()
	steps, rejected, loss := w.progress.snapshot()
	beat := &wire.HeartbeatRequest{
		Role: wire.Role_WORKER, Index: int32(w.Index), Leave: leave,
		Steps: steps, Rejected: rejected, Loss: loss, Leases: w.leases.progress(),
		Spent: w.watch.report(),
	}
	how.beat(beat)
	return w.Master.Heartbeat(ctx, beat)
}
