package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/elasticdl/elasticdl/trainer/optim"
	"github.com/elasticdl/elasticdl/trainer/param"
	"github.com/elasticdl/elasticdl/trainer/ps"
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

// serverState is the loop's view of the parameter servers.
type serverState struct {
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
	for range config.Slots() {
		b.slots = append(b.slots, make([]float32, trainable))
	}
	return b, nil
}

// apply moves values by grads as a server would.
// Rate 0 is the optimizer's.
func (b *behind) apply(layout param.Layout, values, grads []float32, rate float64) {
	b.steps++
	trainable := layout.Trainable()
	b.optimizer.Apply(values[:trainable], grads[:trainable], b.slots, b.steps, rate)
	layout.Average(0, values, grads)
}

// connect gives the servers their initial values if they have none.
func (w *worker) connect(ctx context.Context) error {
	w.servers.holds = unknown
	if w.Job.GetModelSteps > 1 {
		layout := w.Engine.Layout()
		b, err := newBehind(w.Model.Optimizer(), layout.Trainable(), layout.Len())
		if err != nil {
			return err
		}
		w.servers.behind = b
	}
	return w.Servers.Init(ctx, w.Engine.Values())
}

// train applies one minibatch.
func (w *worker) train(ctx context.Context, it item) error {
	for range maxStale {
		if err := w.refresh(ctx); err != nil {
			return err
		}
		loss, err := w.Engine.Step(it.batch)
		if err != nil {
			return err
		}
		accepted, err := w.push(ctx, it)
		if err != nil {
			return err
		}
		if accepted {
			w.logLoss(loss)
			return nil
		}
		w.progress.reject()
		w.servers.holds = unknown
	}
	return fmt.Errorf("a gradient was too old for the servers %d times: raise --sync_version_tolerance or lower --grads_to_wait", maxStale)
}

func (w *worker) logLoss(loss float32) {
	steps := w.progress.step(loss)
	if every := int64(w.Job.LogLossSteps); every > 0 && (steps == 1 || steps%every == 0) {
		w.Log.Info(fmt.Sprintf("Loss = %v, steps = %d", loss, steps))
	}
}

// refresh pulls the current values where the mode asks for newer ones. A
// synchronous worker waits for the update that its last gradient is in.
func (w *worker) refresh(ctx context.Context) error {
	s := &w.servers
	if s.holds == live && s.sincePull < w.Job.GetModelSteps {
		return nil
	}
	sync := w.Job.Synchronous()
	versions, err := w.pull(ctx, ps.PullOptions{After: sync, Whole: sync})
	if err != nil {
		return err
	}
	s.holds, s.versions, s.sincePull = live, versions, 0
	return nil
}

// pull reads the servers' values into the engine. A server that was replaced
// gets this worker's values first.
func (w *worker) pull(ctx context.Context, options ps.PullOptions) (ps.Versions, error) {
	if err := w.settlePush(ctx); err != nil {
		return nil, err
	}
	w.servers.holds = unknown // until it has succeeded
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

func (w *worker) initialize(ctx context.Context) error {
	w.Log.Warn("A parameter server starts anew: it gets this worker's values; its optimizer's slots start from zero")
	return w.Servers.Init(ctx, w.Engine.Values())
}

// push sends the engine's gradient to every server.
func (w *worker) push(ctx context.Context, it item) (accepted bool, err error) {
	s := &w.servers
	s.sincePull++
	gradient := ps.Gradient{Versions: s.versions, Lease: it.task.Lease, Done: it.done}
	if s.behind != nil {
		return true, w.pushBehind(ctx, gradient)
	}
	return w.send(ctx, w.Engine.Grads(), gradient)
}

// send pushes until every server has answered.
func (w *worker) send(ctx context.Context, grads []float32, gradient ps.Gradient) (accepted bool, err error) {
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
func (w *worker) pushBehind(ctx context.Context, gradient ps.Gradient) error {
	if err := w.settlePush(ctx); err != nil {
		return err
	}
	b := w.servers.behind
	copy(b.grads, w.Engine.Grads())
	pushed := make(chan error, 1)
	b.gradient, b.pushed = gradient, pushed
	go func() {
		_, _, err := w.Servers.Push(ctx, b.grads, gradient)
		pushed <- err
	}()
	var rate float64
	if w.Model.LearningRate != nil {
		rate = w.Model.LearningRate(slices.Max(gradient.Versions), 1)
	}
	b.apply(w.Engine.Layout(), w.Engine.Values(), w.Engine.Grads(), rate)
	return nil
}

// settlePush waits for the push in flight, if there is one.
func (w *worker) settlePush(ctx context.Context) error {
	b := w.servers.behind
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
func (w *worker) holdForEvaluation(ctx context.Context, version int64) error {
	if w.servers.holds == version {
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
	w.servers.holds = version
	return nil
}

// awaitPush waits for the push in flight to be over, whatever becomes of it.
func (w *worker) awaitPush() {
	if b := w.servers.behind; b != nil && b.pushed != nil {
		<-b.pushed
		b.pushed = nil
	}
}
