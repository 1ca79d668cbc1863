package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/elasticdl/elasticdl/trainer/optim"
	"github.com/elasticdl/elasticdl/trainer/param"
	"github.com/elasticdl/elasticdl/trainer/ps"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// maxStale is how often one minibatch is computed again because the servers
// had moved on; ElasticDL's limit.
const maxStale = 64

// What the engine's values are, besides the snapshot of a version.
const (
	unknown int64 = iota - 2
	live          // the current ones, as of the last pull, and what was learnt since
	final         // the current ones after the last update: what an evaluation of version 0 asks for
)

// servers is the parameter-server strategy: pull, step, push.
type servers struct {
	*worker
	holds     int64       // what the engine's values are: unknown, live, final or a version
	versions  ps.Versions // of the last pull of current values
	sincePull int         // steps since then
	behind    *behind     // with --get_model_steps > 1
}

// behind is local updates between pulls: a gradient moves the worker's own
// values at once and is pushed while the next step computes.
type behind struct {
	optimizer *optim.Optimizer
	slots     [][]float32
	steps     int64
	grads     []float32 // what is being pushed
	gradient  ps.Gradient
	pushed    chan error // of the push in flight; nil if none
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

// apply moves values by grads as a server would.
func (b *behind) apply(layout param.Layout, values, grads []float32, rate float64) {
	b.steps++
	trainable := layout.Trainable()
	b.optimizer.Apply(values[:trainable], grads[:trainable], b.slots, b.steps, rate)
	layout.Average(0, values, grads)
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
	// Servers that have no values get this worker's initial ones.
	if err := w.Servers.Init(ctx, w.Engine.Values()); err != nil {
		return err
	}
	defer w.awaitPush()
	for {
		if w.leaving() {
			return cmp.Or(w.settlePush(ctx), ErrLeft)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.asked:
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

func (w *servers) beat(*wire.HeartbeatRequest) {}
func (w *servers) beaten(*wire.HeartbeatReply) {}

// work does one item. An error is the worker's end; what is wrong with the
// lease is reported to the master instead.
func (w *servers) work(ctx context.Context, it item) error {
	if w.leases.abandoned(it.task.Lease) {
		return nil
	}
	err := it.err
	switch {
	case err != nil:
	case it.task.Kind == wire.TaskKind_TRAINING:
		err = w.train(ctx, it)
	case it.task.Kind == wire.TaskKind_EVALUATION:
		err = w.evaluate(ctx, it)
	case it.task.Kind == wire.TaskKind_EXPORT:
		err = w.export(ctx)
	}
	if err == nil && it.last {
		err = w.settlePush(ctx)
	}
	switch {
	case err != nil:
		w.settlePush(ctx)
		return w.fail(ctx, it.task, err)
	case it.last:
		return w.settle(ctx, it.task)
	}
	return nil
}

func (w *servers) evaluate(ctx context.Context, it item) error {
	if err := w.holdForEvaluation(ctx, it.task.Version); err != nil {
		return err
	}
	return w.measure(it)
}

func (w *servers) export(ctx context.Context) error {
	versions, err := w.pull(ctx, ps.PullOptions{Whole: true})
	if err != nil {
		return err
	}
	return w.worker.export(slices.Min(versions))
}

// train applies one minibatch.
func (w *servers) train(ctx context.Context, it item) error {
	for range maxStale {
		if err := w.refresh(ctx); err != nil {
			return err
		}
		loss, err := w.Engine.Step(it.batch)
		if err == nil {
			err = context.Cause(ctx) // somebody else has it now
		}
		if err != nil {
			return err
		}
		accepted, err := w.push(ctx, it)
		if err != nil {
			return err
		}
		if accepted {
			w.learnt(loss)
			return nil
		}
		w.progress.reject()
		w.holds = unknown
	}
	return fmt.Errorf("a gradient was too old for the servers %d times: raise --sync_version_tolerance or lower --grads_to_wait", maxStale)
}

// refresh pulls the current values where the mode asks for newer ones. A
// synchronous worker waits for the update that its last gradient is in.
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

// pull reads the servers' values into the engine. A server that was replaced
// gets this worker's values first.
func (w *servers) pull(ctx context.Context, options ps.PullOptions) (ps.Versions, error) {
	if err := w.settlePush(ctx); err != nil {
		return nil, err
	}
	w.holds = unknown // until it has succeeded
	for {
		versions, err := w.Servers.Pull(ctx, w.Engine.Values(), options)
		if !errors.Is(err, ps.ErrUninitialized) {
			return versions, err
		}
		if err := w.initialize(ctx); err != nil {
			return nil, err
		}
	}
}

func (w *servers) initialize(ctx context.Context) error {
	w.Log.Warn("A parameter server starts anew: it gets this worker's values; its optimizer's slots start from zero")
	return w.Servers.Init(ctx, w.Engine.Values())
}

// push sends the engine's gradient to every server.
func (w *servers) push(ctx context.Context, it item) (accepted bool, err error) {
	w.sincePull++
	gradient := ps.Gradient{Versions: w.versions, Lease: it.task.Lease, Done: it.done}
	if w.behind != nil {
		return true, w.pushBehind(ctx, gradient)
	}
	return w.send(ctx, w.Engine.Grads(), gradient)
}

// send pushes until every server has answered.
func (w *servers) send(ctx context.Context, grads []float32, gradient ps.Gradient) (accepted bool, err error) {
	for {
		accepted, _, err := w.Servers.Push(ctx, grads, gradient)
		if errors.Is(err, ps.ErrUninitialized) {
			if err := w.initialize(ctx); err != nil {
				return false, err
			}
			continue
		}
		if accepted {
			w.leases.advance(gradient.Lease, gradient.Done)
		}
		return accepted, err
	}
}

// pushBehind starts the push of a copy of the gradient and moves the worker's
// own values. The mode is asynchronous: no gradient is too old.
func (w *servers) pushBehind(ctx context.Context, gradient ps.Gradient) error {
	if err := w.settlePush(ctx); err != nil {
		return err
	}
	b := w.behind
	copy(b.grads, w.Engine.Grads())
	pushed := make(chan error, 1)
	b.gradient, b.pushed = gradient, pushed
	go func() {
		_, _, err := w.Servers.Push(ctx, b.grads, gradient)
		pushed <- err
	}()
	rate := b.optimizer.Rate(w.Model.LearningRate, slices.Max(gradient.Versions), 1)
	b.apply(w.Engine.Layout(), w.Engine.Values(), w.Engine.Grads(), rate)
	return nil
}

// settlePush waits for the push in flight, if there is one.
func (w *servers) settlePush(ctx context.Context) error {
	b := w.behind
	if b == nil || b.pushed == nil {
		return nil
	}
	err := <-b.pushed
	b.pushed = nil
	switch {
	case errors.Is(err, ps.ErrUninitialized):
		_, err = w.send(ctx, b.grads, b.gradient) // by the goroutine that owns the values
	case err == nil:
		w.leases.advance(b.gradient.Lease, b.gradient.Done)
	}
	return err
}

// holdForEvaluation makes the engine's values those of a version; 0 is the
// model as it stands.
func (w *servers) holdForEvaluation(ctx context.Context, version int64) error {
	if w.holds == version {
		return nil
	}
	_, err := w.pull(ctx, ps.PullOptions{Snapshot: version})
	if errors.Is(err, ps.ErrNoSnapshot) {
		w.Log.Warn("The snapshot is gone: evaluating the model as it stands", "version", version)
		_, err = w.pull(ctx, ps.PullOptions{})
	}
	if err != nil {
		return err
	}
	w.holds = version
	return nil
}

// awaitPush waits for the push in flight to be over, whatever becomes of it.
func (w *servers) awaitPush() {
	if b := w.behind; b != nil && b.pushed != nil {
		<-b.pushed
		b.pushed = nil
	}
}
