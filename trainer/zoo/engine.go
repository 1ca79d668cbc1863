package zoo

import (
	"errors"

	"github.com/elasticdl/elasticdl/trainer/nn"
	"github.com/elasticdl/elasticdl/trainer/param"
)

// Engine runs a model: its parameters, its tape, its threads. It is for one goroutine.
type Engine struct {
	model  *Model
	params *nn.Params
}

// NewEngine declares m's parameters, with initial values that depend on m and
// seed alone, and starts the threads; fewer than one means one.
func NewEngine(m *Model, threads int, seed uint64) (*Engine, error) {
	return nil, errors.New("not yet")
}

// Layout is what the flat arrays hold.
func (e *Engine) Layout() param.Layout { return e.params.Layout }

// Values is the parameters, flat; what is written there is what the next step uses.
func (e *Engine) Values() []float32 { return e.params.Values }

// Grads is what the last Step found, flat.
func (e *Engine) Grads() []float32 { return e.params.Grads }

// SetNoise chooses the noise of dropout. Workers of one job, which have the
// model's seed in common, are given different ones.
func (e *Engine) SetNoise(seed uint64) {}

// Step computes the loss of a batch of any size, and the gradients.
func (e *Engine) Step(b *Batch) (loss float32, err error) { return 0, errors.New("not yet") }

// Evaluate adds a batch to states, one for each of the model's Metrics, in inference mode.
func (e *Engine) Evaluate(b *Batch, states [][]float64) error { return errors.New("not yet") }

// Predict returns the outputs of a batch, in inference mode. They are valid until the next call.
func (e *Engine) Predict(b *Batch) (nn.Array, error) { return nn.Array{}, errors.New("not yet") }

// Close ends the threads.
func (e *Engine) Close() {}
