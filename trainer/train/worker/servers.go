package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/elasticdl/elasticdl/trainer/train/optim"
	"github.com/elasticdl/elasticdl/trainer/train/ps"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

// maxStale limits how often one minibatch is computed again because the servers had moved on. It is
// ElasticDL's limit.
const maxStale = 64

// States of the engine's values, besides the snapshot of a version. Live ones are those of the last
// pull, with local updates since; final ones those after the last update, which an evaluation of
// version 0 measures.
const (
	unknown int64 = iota - 2
	live
	final
)

// servers is the parameter-server strategy: pull, step, push.
type servers struct {
	*worker
	// state of the engine's values: unknown, live, final, or the version of a snapshot
	holds int64
	// the version that is evaluated, if holds is final or a version
	evaluates int64
	// versions of the last pull of current values
	versions ps.Versions
	// steps since that pull
	sincePull int
	// with --get_model_steps > 1
	behind *behind
}

// behind does local updates between pulls: a gradient moves the worker's own values at once, and is
// pushed while the next step computes.
type behind struct {
	optimizer *optim.Optimizer
	slots     [][]float32
	steps     int64
	// the gradient that is being pushed
	grads    []float32
	gradient ps.Gradient
	// the item of that gradient
	item item
	// result of the push in flight; nil if none
	pushed chan delivered
}

// delivered is the result of a push.
type delivered struct {
	ps.Pushed
	err error
}

func newBehind(config optim.Config, trainable, length int) (*behind, error) {
	optimizer, err := optim.New(config)
	if err != nil {
		return nil, err
	}
	b := &behind{optimizer: optimizer, grads: make([]float32, length)}
	b.slots = optimizer.NewSlots(trainable)
	return b, nil
}

// apply moves the engine's values by its gradients as a server would.
func (b *behind) apply(engine Engine, rate float64) {
	b.steps++
	values, grads := engine.Values(), engine.Grads()
	engine.Parallel(engine.Layout().Trainable(), func(lo, hi int) {
		b.optimizer.ApplyRange(lo, hi, values, grads, b.slots, b.steps, rate)
	})
	engine.Layout().Average(0, values, grads)
}

func newServers(w *worker) (*servers, error) {
	s := &servers{worker: w, holds: unknown}
	if w.Job.GetModelSteps > 1 {
		layout := w.Engine.Layout()
		b, err := newBehind(w.Model.Optimizer(), layout.Trainable(), layout.Len())
		if err != nil {
			return nil, err
		}
		s.behind = b
	}
	return s, nil
}

// run implements strategy.
func (w *servers) run(ctx context.Context, feed *feeder) error {
	defer w.awaitPush()
	err := w.each(ctx, feed, func(it item) error { return w.work(ctx, it, feed) })
	if errors.Is(err, membership.ErrLeft) {
		return cmp.Or(w.settlePush(ctx, feed), err)
	}
	return err
}

func (w *servers) beat(*wire.HeartbeatRequest) {}
func (w *servers) beaten(*wire.HeartbeatReply) {}

// work processes one item and returns its batch to the feeder. It returns an error if the worker,
// or its time in this model generation, has to end; what is wrong with the lease is reported to
// the master instead.
func (w *servers) work(ctx context.Context, it item, feed *feeder) error {
	if w.leases.abandoned(it.task.Lease) {
		feed.recycle(it.batch)
		return nil
	}
	err, kept := it.err, false
	switch {
	case err != nil:
	case it.task.Kind == wire.TaskKind_TRAINING:
		kept, err = w.train(ctx, it, feed)
	case it.task.Kind == wire.TaskKind_EVALUATION:
		err = w.evaluate(ctx, it, feed)
	case it.task.Kind == wire.TaskKind_EXPORT:
		err = w.export(ctx, it.task.Lease, feed)
	}
	if !kept {
		feed.recycle(it.batch)
	}
	if err == nil && it.last {
		err = w.settlePush(ctx, feed)
	}
	switch {
	case errors.Is(err, ps.ErrStaleModel):
		return err
	case err != nil:
		w.settlePush(ctx, feed)
		return w.fail(ctx, it.task, err)
	case it.last:
		return w.settle(ctx, it.task)
	}
	return nil
}

func (w *servers) evaluate(ctx context.Context, it item, feed *feeder) error {
	if err := w.settlePush(ctx, feed); err != nil {
		return err
	}
	if err := w.holdForEvaluation(ctx, it.task.Version); err != nil {
		return err
	}
	return w.measure(it, w.evaluates)
}

func (w *servers) export(ctx context.Context, lease int64, feed *feeder) error {
	if err := w.settlePush(ctx, feed); err != nil {
		return err
	}
	versions, err := w.pull(ctx, ps.PullOptions{Whole: true})
	if err != nil {
		return err
	}
	return w.worker.export(ctx, lease, slices.Min(versions))
}

// train applies one minibatch: each of its records once, whatever the servers have of them already.
// kept reports that the batch is in use until its push is settled.
func (w *servers) train(ctx context.Context, it item, feed *feeder) (kept bool, err error) {
	if w.holds != live || w.sincePull >= w.Job.GetModelSteps { // it is about to pull
		if err := w.settlePush(ctx, feed); err != nil {
			return false, err
		}
	}
	err = w.learn(ctx, it, it.done-int64(it.batch.Size), feed)
	return err == nil && w.behind != nil, err
}

// learn applies the records of a minibatch that begin at the task's record number from.
func (w *servers) learn(ctx context.Context, it item, from int64, feed *feeder) error {
	first := it.done - int64(it.batch.Size)
	for range maxStale {
		if err := w.refresh(ctx); err != nil {
			return err
		}
		w.Engine.SetNoise(noise(w.Job.Seed, it.task, from))
		w.watch.begin(computing)
		loss, err := w.Engine.Step(part(it.batch, int(from-first), it.batch.Size))
		w.watch.end(computing)
		if err == nil {
			err = context.Cause(ctx) // another worker has the lease now
		}
		if err != nil {
			return err
		}
		pushed, err := w.push(ctx, it, from, feed)
		switch {
		case err != nil:
			return err
		case pushed.Accepted:
			w.learnt(loss)
			return nil
		case pushed.Cut >= 0:
			if from, err = cutAt(it, first, pushed.Cut); err != nil {
				return err
			}
		default:
			w.progress.reject()
		}
		w.holds = unknown
	}
	return fmt.Errorf("a gradient was too old for the servers %d times: raise "+
		"--sync_version_tolerance or lower --grads_to_wait", maxStale)
}

// cutAt returns the record from which to continue when a server has records of a minibatch that the
// worker did not know of.
func cutAt(it item, first, had int64) (from int64, err error) {
	if had < first || had >= it.done {
		return 0, fmt.Errorf("a server has %d records of the task, and records [%d, %d) are to "+
			"follow: its ledger and the master's differ", had, first, it.done)
	}
	return had, nil
}

// refresh pulls the current values where the mode asks for newer ones. A synchronous worker waits
// for the update that contains its last gradient.
func (w *servers) refresh(ctx context.Context) error {
	if w.holds == live && w.sincePull < w.Job.GetModelSteps {
		return nil
	}
	sync := w.Job.Synchronous()
	versions, err := w.pull(ctx, ps.PullOptions{After: sync, Whole: sync})
	if err != nil {
		return err
	}
	w.holds, w.versions, w.sincePull = live, versions, 0
	return nil
}

// pull reads the servers' values into the engine. No push is in flight.
func (w *servers) pull(ctx context.Context, options ps.PullOptions) (ps.Versions, error) {
	w.holds = unknown // until it has succeeded
	w.watch.begin(forServers)
	defer w.watch.end(forServers)
	return w.Servers.Pull(ctx, w.Engine.Values(), options)
}

// push sends the engine's gradient, of the task's records that begin at from, to every server.
func (w *servers) push(ctx context.Context, it item, from int64, feed *feeder) (ps.Pushed, error) {
	w.sincePull++
	gradient := ps.Gradient{Versions: w.versions, Epoch: int(it.task.Epoch), Task: it.task.Number,
		From: from, To: it.done,
		Of: it.task.End - it.task.Start}
	if w.behind != nil {
		return ps.Pushed{Accepted: true}, w.pushBehind(ctx, it, gradient, feed)
	}
	w.watch.begin(forServers)
	pushed, err := w.Servers.Push(ctx, w.Engine.Grads(), gradient)
	w.watch.end(forServers)
	if err == nil && pushed.Accepted {
		w.leases.advance(it.task.Lease, it.done)
	}
	return pushed, err
}

// pushBehind starts the push of a copy of the gradient, and moves the worker's own values. The mode
// is asynchronous: no gradient is too old.
func (w *servers) pushBehind(ctx context.Context, it item, gradient ps.Gradient, feed *feeder) error {
	if err := w.settlePush(ctx, feed); err != nil {
		return err
	}
	b := w.behind
	copy(b.grads, w.Engine.Grads())
	pushed := make(chan delivered, 1)
	b.gradient, b.item, b.pushed = gradient, it, pushed
	go func() {
		answer, err := w.Servers.Push(ctx, b.grads, gradient)
		pushed <- delivered{answer, err}
	}()
	rate := b.optimizer.Rate(w.Model.LearningRate, slices.Max(gradient.Versions), 1)
	b.apply(w.Engine, rate)
	return nil
}

// settlePush waits for the push in flight, if there is one. If a server had some of its records
// already, it computes the others again.
func (w *servers) settlePush(ctx context.Context, feed *feeder) error {
	b := w.behind
	if b == nil || b.pushed == nil {
		return nil
	}
	w.watch.begin(forServers)
	d, it := <-b.pushed, b.item
	w.watch.end(forServers)
	b.pushed = nil
	err := d.err
	if err == nil && !d.Accepted {
		if err = w.complete(ctx, it, d.Cut, feed); err == nil {
			return w.settlePush(ctx, feed)
		}
	}
	if err == nil {
		w.leases.advance(it.task.Lease, b.gradient.To)
	}
	feed.recycle(it.batch)
	return err
}

// complete applies the records of a minibatch that a server lacks.
func (w *servers) complete(ctx context.Context, it item, had int64, feed *feeder) error {
	from, err := cutAt(it, it.done-int64(it.batch.Size), had)
	if err != nil {
		return err
	}
	w.holds = unknown
	return w.learn(ctx, it, from, feed)
}

// holdForEvaluation makes the engine's values those of a version; 0 stands for the current model.
func (w *servers) holdForEvaluation(ctx context.Context, version int64) error {
	if w.holds == version {
		return nil
	}
	versions, err := w.pull(ctx, ps.PullOptions{Snapshot: version})
	if err != nil {
		return err
	}
	w.holds, w.evaluates = version, cmp.Or(version, slices.Max(versions))
	return nil
}

// awaitPush waits for the push in flight to end, with or without success.
func (w *servers) awaitPush() {
	if b := w.behind; b != nil && b.pushed != nil {
		<-b.pushed
		b.pushed = nil
	}
}
