// Package worker trains, or runs a trained model: it leases records, reads them, steps, and
// reports.
//
//	feeder ── minibatches ──> strategy ── reports ──> reporter
//	(leases, reads ahead)         │       (settles leases, retries)
//	                 servers: pull, step, push
//	                 ring:    step, all-reduce, update
//	                 fixed:   nothing is trained: evaluate, or predict and write
//
// The feeder is a few minibatches ahead of the strategy and leases the next task
// while the last one is still in work, so a worker holds two leases at times and
// never waits for its disk. Only the strategy uses the engine. The reporter
// and the heartbeat talk to the master, so that the work continues while the master
// is away: held leases are worked on, and finished ones are reported when it is back.
//
// Laws:
//
//  1. A lease is reported done after every minibatch of it is in the model, and not
//     before: accepted by every server, or in the state of every member of the ring.
//  2. A gradient that a server refuses as stale is computed again from newer
//     values; its records are not skipped.
//  3. An unreachable master is never taken for the end of the data:
//     only DONE ends a worker with success.
//  4. Records that cannot be read or computed are reported as failed with the reason; the worker
//     continues with its next lease. Storage that fails, under the data or the output, is waited
//     for first, for timing.Storage; the lease is given back then, and the next one is taken when
//     the storage answers, or after that time again.
//  5. A worker that is asked to leave begins nothing new. With servers it completes its minibatch;
//     in a ring the round, and it stays as long as it alone has the model. The rest of its leases
//     goes to another worker, not counted. (leave.go)
//  6. The members of a ring hold the same bits after every round. A round is in the state of a
//     member whole or not at all, and a minibatch is in it once. (ring.go)
//  7. A member's copy for a checkpoint is the state between two rounds, with its ledger. It is
//     written in parallel with the rounds. (copy.go)
//  8. A lease of a prediction is reported done when all of what was predicted of it is written.
//     (fixed.go)
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/store/outage"
	"github.com/elasticdl/elasticdl/trainer/train/data"
	"github.com/elasticdl/elasticdl/trainer/train/mesh"
	"github.com/elasticdl/elasticdl/trainer/train/nn"
	"github.com/elasticdl/elasticdl/trainer/train/ps"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// Engine computes gradients. Its arrays are flat, in the order of its layout: Values holds the
// parameters, Grads what a step finds.
type Engine interface {
	Layout() param.Layout
	Values() []float32
	Grads() []float32
	// Step runs one minibatch forward and backward. It returns the mean loss and fills Grads: with
	// gradients of the trainable parameters, and observations of the averaged ones.
	Step(*zoo.Batch) (loss float32, err error)
	// Evaluate adds one minibatch to the states of the model's metrics.
	Evaluate(b *zoo.Batch, states [][]float64) error
	// SetNoise seeds what is random in the next Step.
	SetNoise(seed uint64)
	// OnGrads makes Step call the function with each stretch of Grads that is final, while it
	// computes the others.
	OnGrads(func(lo, hi int))
	// Parallel calls f with ranges that cover [0, n), on the engine's threads.
	Parallel(n int, f func(lo, hi int))
	// Use makes the engine compute with the given values instead of Values; nil: with Values again.
	Use(values []float32)
}

// Config holds what a worker needs for its job.
type Config struct {
	Index  int
	Self   *rpc.Self
	Job    *job.Job
	Model  *zoo.Model
	Engine Engine
	Master wire.MasterClient
	// for the parameter-server strategy
	Servers *ps.Client
	// for a ring: the port at which other workers reach this one
	Peers *mesh.Node
	// for a ring: the address of that port
	Address string
	// for a ring: returns the engine's initial values
	Initial func() ([]float32, error)
	// nil if the job has no such data
	Training   data.Reader
	Validation data.Reader
	Prediction data.Reader
	// version of the model in the engine, for a job that trains nothing
	Version int64
	// Predict returns the model's outputs for a minibatch, valid until the next call. For a job
	// that predicts.
	Predict func(*zoo.Batch) (nn.Array, error)
	// closed when the worker is asked to leave; nil: it never is
	Leave <-chan struct{}
	// how long the master may be unreachable before the worker ends; 0: without limit
	Abandoned time.Duration
	// Open opens a directory of checkpoints or of an export; nil: on this machine.
	Open checkpoint.Opener
	// OnUpdate is called after each update of a ring's model, before the next one begins, with the
	// world's generation and the model's version. It must not block. Nil: no call.
	OnUpdate func(generation, version int64)
	// Meter counts what the worker does; nil: nothing counts it.
	Meter *Meter
	Log   *slog.Logger
}

// strategy is a way to apply the gradients of a worker to the shared model.
type strategy interface {
	// run processes the feeder's items until there are no more.
	run(ctx context.Context, feed *feeder) error
	// beat adds to a heartbeat what the strategy knows.
	beat(*wire.HeartbeatRequest)
	beaten(*wire.HeartbeatReply)
}

// worker holds what the strategy shares with the feeder, the reporter and the heartbeats.
type worker struct {
	Config
	leases   *leases
	reports  chan *wire.ReportTaskRequest
	progress progress
	watch    stopwatch
	// the next heartbeat is due now
	urgent chan struct{}
	// closed when the worker was asked to leave
	asked chan struct{}
	// asked to leave, and nothing is in flight any more
	idle atomic.Bool

	metrics []zoo.Metric
	// states of the metrics of the evaluation lease in work
	states [][]float64
	// number of that lease
	measured int64
	// version of the model on which it is measured
	on int64
}

// work leases and works until the master says that the job has ended, or ctx is done. A worker that
// is asked to leave finishes its current minibatch, hands back the rest, and returns
// [membership.ErrLeft].
func work(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &worker{
		Config:  cfg,
		leases:  newLeases(),
		reports: make(chan *wire.ReportTaskRequest, 16),
		urgent:  make(chan struct{}, 1),
		asked:   make(chan struct{}),
		metrics: cfg.Model.Metrics(),
	}
	w.leases.looked = w.looked
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel(nil)
	how, err := w.strategy()
	if err != nil {
		return err
	}
	feed := newFeeder(w)
	feeding, unfeed := context.WithCancelCause(ctx)
	defer unfeed(nil)
	background.Go(func() {
		if err := feed.run(feeding); err != nil && !errors.Is(err, errLeaving) {
			cancel(err)
		}
	})
	background.Go(func() { w.drain(ctx, unfeed, cancel) })
	background.Go(func() { w.heartbeats(ctx, how, cancel) })
	var reporting sync.WaitGroup
	reporting.Go(func() { w.report(ctx) })

	err = how.run(ctx, feed)
	close(w.reports)
	// until the last reports are delivered, or ctx is done
	reporting.Wait()
	if errors.Is(err, membership.ErrLeft) {
		w.returnLeases(ctx)
	}
	if err != nil {
		cancel(err)
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, membership.ErrReplaced) && w.leaving() {
		return membership.ErrLeft
	}
	return cause
}

// looked returns how many bytes the worker has read to find records.
func (w *worker) looked() (bytes int64) {
	for _, reader := range []data.Reader{w.Training, w.Validation, w.Prediction} {
		if reader != nil {
			bytes += reader.Looked()
		}
	}
	return bytes
}

func (w *worker) strategy() (strategy, error) {
	switch {
	case !w.Job.Trains():
		return newFixed(w)
	case w.Job.Strategy == job.AllReduce:
		return newRing(w)
	}
	return newServers(w)
}

// fail reports that a lease cannot be done, and drops the rest of it. The records before the
// failure are in the model, and the report says how many.
func (w *worker) fail(ctx context.Context, task *wire.Task, failure error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	done, storage := w.leases.abandon(task.Lease), outage.Is(failure)
	if storage && w.leaving() {
		// the wait was cut short: the lease is handed back with all that is unfinished
		return nil
	}
	what := "Task failed"
	if storage {
		what = "Task handed back: the storage failed for too long"
	}
	w.Log.Error(what, "shard", task.Shard, "records", fmt.Sprintf("[%d,%d)", task.Start, task.End), "error", failure)
	return w.deliver(ctx, &wire.ReportTaskRequest{Worker: int32(w.Index), Lease: task.Lease,
		Error: failure.Error(), Storage: storage, Done: done})
}

// settle reports that a lease is done, when nothing of it is in flight any more.
func (w *worker) settle(ctx context.Context, task *wire.Task) error {
	report := &wire.ReportTaskRequest{Worker: int32(w.Index), Lease: task.Lease}
	switch task.Kind {
	case wire.TaskKind_PREDICTION:
		report.Version = w.Version
	case wire.TaskKind_EVALUATION:
		report.Version = w.on
		for i, m := range w.metrics {
			report.Metrics = append(report.Metrics, &wire.Metric{Name: m.Name, State: w.states[i]})
		}
	}
	return w.deliver(ctx, report)
}

// deliver hands the report of a lease to the reporter.
func (w *worker) deliver(ctx context.Context, report *wire.ReportTaskRequest) error {
	select {
	case w.reports <- report:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// measure adds one minibatch to the metrics of its lease. version is the version of the model with
// which the engine computes; it must be the same for the whole lease.
func (w *worker) measure(it item, version int64) error {
	// the previous lease may have been taken back before it was complete
	if lease := it.task.Lease; w.states == nil || w.measured != lease {
		w.measured, w.on = lease, version
		w.states = make([][]float64, len(w.metrics))
		for i, m := range w.metrics {
			w.states[i] = make([]float64, m.Size)
		}
	}
	if version != w.on {
		return fmt.Errorf("the model is at version %d after the first records were measured at %d", version, w.on)
	}
	if err := w.Engine.Evaluate(it.batch, w.states); err != nil {
		return err
	}
	w.leases.advance(it.task.Lease, it.done)
	return nil
}

// learnt counts a minibatch that is in the model.
func (w *worker) learnt(loss float32) {
	steps := w.progress.step(loss)
	if every := int64(w.Job.LogLossSteps); every > 0 && (steps == 1 || steps%every == 0) {
		w.Log.Info(fmt.Sprintf("Loss = %v, steps = %d", loss, steps))
	}
}
