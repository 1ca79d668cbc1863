package zoo

import (
	"errors"
	"fmt"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/train/nn"
)

// Engine runs a model: its parameters, its tape, its threads. It is for one goroutine.
type Engine struct {
	model   *Model
	module  nn.Module
	params  *nn.Params
	tape    *nn.Tape
	metrics []Metric

	// The batch of the current pass, and functions that are made once, so that a pass allocates
	// nothing.
	batch   *Batch
	loss    *nn.Tensor
	outputs *nn.Tensor
	train   func(t *nn.Tape)
	infer   func(t *nn.Tape)
}

// NewEngine declares m's parameters, with initial values that depend on m and
// seed alone, and starts the threads; fewer than one means one.
func NewEngine(m *Model, threads int, seed uint64) (*Engine, error) {
	b := nn.NewBuilder(seed)
	e := &Engine{model: m, module: m.New(b)}
	var err error
	if e.params, err = b.Build(); err != nil {
		return nil, fmt.Errorf("model %s: %w", m.Name, err)
	}
	if m.Metrics != nil {
		e.metrics = m.Metrics()
	}
	e.tape = nn.NewTape(e.params, threads, seed)
	e.train = func(t *nn.Tape) {
		e.loss = e.model.Loss(t, e.module.Forward(t, t.Input(0)), e.batch)
		t.Backward(e.loss)
	}
	e.infer = func(t *nn.Tape) { e.outputs = e.module.Forward(t, t.Input(0)) }
	return e, nil
}

// Layout returns m's layout without making its values.
func (m *Model) Layout() (param.Layout, error) {
	b := nn.NewBuilder(0)
	m.New(b)
	layout, err := b.Layout()
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", m.Name, err)
	}
	return layout, nil
}

// Initial makes m's layout, and the initial values of one of that many parts of it: those of an
// engine with that seed, as [param.Partition] cuts them. It needs no memory for the others.
func (m *Model) Initial(seed uint64, part, parts int) (param.Layout, []float32, error) {
	b := nn.NewBuilder(seed)
	m.New(b)
	layout, values, err := b.Initial(part, parts)
	if err != nil {
		return nil, nil, fmt.Errorf("model %s: %w", m.Name, err)
	}
	return layout, values, nil
}

// Layout returns what the flat arrays hold.
func (e *Engine) Layout() param.Layout { return e.params.Layout }

// Values returns the engine's own parameters, flat; the next step uses what is written there.
func (e *Engine) Values() []float32 { return e.params.Values }

// Grads returns the gradients of the last Step, flat.
func (e *Engine) Grads() []float32 { return e.params.Grads }

// Use makes Step, Evaluate and Predict compute with values, which are laid out like Values, in
// place of the engine's own, for example to evaluate a snapshot; nil: with its own again. It copies
// nothing. Another length than that of Values panics.
func (e *Engine) Use(values []float32) { e.params.Use(values) }

// OnGrads makes every Step tell f which stretches [lo, hi) of Grads are final, state included,
// while it still computes others. Step calls f on its own goroutine. The stretches do not overlap,
// cover all of Grads when Step returns, come mostly from the end to the beginning, and are the same
// for the same model whatever the number of threads. A Step that fails has not called f. Nil: no
// call.
func (e *Engine) OnGrads(f func(lo, hi int)) { e.tape.OnGrads(f) }

// Parallel calls f, on the engine's threads, with ranges [lo, hi) that cover [0, n) and do not
// overlap.
func (e *Engine) Parallel(n int, f func(lo, hi int)) { e.tape.Parallel(n, f) }

// SetNoise seeds the noise of dropout: that of the next Step depends on seed alone, and each
// further Step has another. Calling it before every Step costs nothing. The workers of a job have
// the model's seed in common, but are given different seeds of noise.
func (e *Engine) SetNoise(seed uint64) { e.tape.SetNoise(seed) }

// Step computes the loss of a batch of any size, and the gradients.
func (e *Engine) Step(b *Batch) (loss float32, err error) {
	if err := e.pass(true, b, e.train); err != nil {
		return 0, err
	}
	return e.loss.Scalar(), nil
}

// Evaluate adds a batch to states, one for each of the model's Metrics, in inference mode.
func (e *Engine) Evaluate(b *Batch, states [][]float64) error {
	if len(states) != len(e.metrics) {
		return fmt.Errorf("evaluate: %d states for %d metrics", len(states), len(e.metrics))
	}
	outputs, err := e.Predict(b)
	if err != nil {
		return err
	}
	for i, m := range e.metrics {
		if len(states[i]) != m.Size {
			return fmt.Errorf("evaluate: state of %s has %d elements: want %d", m.Name, len(states[i]), m.Size)
		}
		if err := m.Update(states[i], outputs, b); err != nil {
			return fmt.Errorf("evaluate %s: %w", m.Name, err)
		}
	}
	return nil
}

// Predict returns the outputs of a batch, in inference mode. They are valid until the next call.
func (e *Engine) Predict(b *Batch) (nn.Array, error) {
	if err := e.pass(false, b, e.infer); err != nil {
		return nn.Array{}, err
	}
	return nn.Array{Shape: e.outputs.Shape(), Data: e.outputs.Data()}, nil
}

func (e *Engine) pass(training bool, b *Batch, f func(*nn.Tape)) error {
	if len(b.Inputs) == 0 || len(b.Inputs[0].Shape) == 0 || b.Inputs[0].Shape[0] != b.Size {
		return errors.New("batch: Size differs from the first dimension of an input")
	}
	e.batch = b
	return e.tape.Pass(training, b.Inputs, f)
}

// Close ends the threads.
func (e *Engine) Close() { e.tape.Close() }
