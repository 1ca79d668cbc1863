// Package worker trains: it leases records, reads them, steps, and reports.
//
//	feeder ── minibatches ──> loop ── reports ──> reporter
//	(leases, reads ahead)     (pull, step, push)  (settles leases, retries)
//
// The feeder is a few minibatches ahead of the loop and leases the next task
// while the last one is still in it, so a worker holds two leases at times and
// never waits for its disk. The loop is alone with the engine. The reporter
// and the heartbeat talk to the master, so that a master that is away stops
// nobody: what is held is worked on, what is done is reported when it is back.
//
// Laws:
//
//  1. A lease is reported done after every minibatch of it has been accepted
//     by every server, and not before.
//  2. A gradient that a server refuses as stale is computed again from newer
//     values; its records are not skipped.
//  3. A master that cannot be reached is never taken for the end of the data:
//     only DONE ends a worker with success.
//  4. What cannot be read or computed is reported as failed with its reason; the
//     worker goes on with its next lease.
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/elasticdl/elasticdl/trainer/data"
	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/param"
	"github.com/elasticdl/elasticdl/trainer/ps"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/zoo"
)

// ErrReplaced ends a worker whose place another has taken.
var ErrReplaced = errors.New("the master has replaced this worker")

// Engine computes. Its arrays are flat, in the order of its layout: the pulled
// values are written into Values, the pushed gradient is read from Grads.
type Engine interface {
	Layout() param.Layout
	Values() []float32
	Grads() []float32
	// Step runs one minibatch forward and backward: its mean loss, and Grads, which
	// holds gradients of what is trainable and observations of what is averaged.
	Step(*zoo.Batch) (loss float32, err error)
	// Evaluate adds one minibatch to the states of the model's metrics.
	Evaluate(b *zoo.Batch, states [][]float64) error
}

// Config is what a worker works with.
type Config struct {
	Index      int
	Job        *job.Job
	Model      *zoo.Model
	Engine     Engine
	Master     wire.MasterClient
	Servers    *ps.Client
	Training   data.Reader // nil if the job has no such data
	Validation data.Reader
	Log        *slog.Logger
}

// worker is the loop and what it shares with the feeder, reporter and heartbeat.
type worker struct {
	Config
	leases   *leases
	reports  chan *wire.ReportTaskRequest
	progress progress

	servers serverState
	metrics []zoo.Metric
	states  [][]float64 // of the evaluation lease in work
}

// Run works until the master says that the job has ended, or ctx is done.
func Run(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &worker{
		Config:  cfg,
		leases:  newLeases(),
		reports: make(chan *wire.ReportTaskRequest, 16),
		metrics: cfg.Model.Metrics(),
	}
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel(nil)
	if err := w.connect(ctx); err != nil {
		return err
	}
	defer w.awaitPush()

	feed := newFeeder(w)
	background.Go(func() {
		if err := feed.run(ctx); err != nil {
			cancel(err)
		}
	})
	background.Go(func() { w.heartbeats(ctx, cancel) })
	var reporting sync.WaitGroup
	reporting.Go(func() { w.report(ctx) })

	err := w.loop(ctx, feed)
	close(w.reports)
	reporting.Wait() // the last reports are delivered, or ctx is done
	if err != nil {
		cancel(err)
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return nil
}

// loop works off the feeder's minibatches until it has no more.
func (w *worker) loop(ctx context.Context, feed *feeder) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case it, ok := <-feed.items:
			if !ok {
				return nil
			}
			if err := w.work(ctx, it); err != nil {
				return err
			}
			feed.recycle(it.batch)
		}
	}
}

// work does one item. An error is the worker's end; what is wrong with the
// lease is reported to the master instead.
func (w *worker) work(ctx context.Context, it item) error {
	if w.leases.abandoned(it.task.Lease) {
		return nil
	}
	err := it.err
	if err == nil {
		switch it.task.Kind {
		case wire.TaskKind_TRAINING:
			err = w.train(ctx, it)
		case wire.TaskKind_EVALUATION:
			err = w.evaluate(ctx, it)
		case wire.TaskKind_EXPORT:
			err = w.export(ctx)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		w.Log.Error("Task failed", "shard", it.task.Shard, "records", fmt.Sprintf("[%d,%d)", it.task.Start, it.task.End), "error", err)
		w.leases.abandon(it.task.Lease)
		w.states = nil // of what was evaluated before it failed
		return w.settle(ctx, it.task, err, nil)
	}
	if !it.last {
		return nil
	}
	var metrics []*wire.Metric
	if it.task.Kind == wire.TaskKind_EVALUATION {
		for i, m := range w.metrics {
			metrics = append(metrics, &wire.Metric{Name: m.Name, State: w.states[i]})
		}
		w.states = nil
	}
	return w.settle(ctx, it.task, nil, metrics)
}

// settle hands the end of a lease to the reporter. Nothing of it is in flight by then.
func (w *worker) settle(ctx context.Context, task *wire.Task, failure error, metrics []*wire.Metric) error {
	if err := w.settlePush(ctx); err != nil && failure == nil {
		failure = err
	}
	report := &wire.ReportTaskRequest{Worker: int32(w.Index), Lease: task.Lease, Metrics: metrics}
	if failure != nil {
		report.Error = failure.Error()
	}
	select {
	case w.reports <- report:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// evaluate adds one minibatch to the metrics of its lease.
func (w *worker) evaluate(ctx context.Context, it item) error {
	if w.states == nil {
		w.states = make([][]float64, len(w.metrics))
		for i, m := range w.metrics {
			w.states[i] = make([]float64, m.Size)
		}
	}
	if err := w.holdForEvaluation(ctx, it.task.Version); err != nil {
		return err
	}
	return w.Engine.Evaluate(it.batch, w.states)
}
