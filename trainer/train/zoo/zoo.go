// Package zoo holds the built-in models and runs any model that is written like them, including the
// user's own.
//
// A [Model] is ElasticDL's model contract in Go: what a module of the model zoo
// defines in Python as custom_model, loss, optimizer, feed and eval_metrics_fn
// are the fields of one struct. Each built-in model is one file and is meant to be read
// as an example. An [Engine] runs a model with trainer/train/nn.
package zoo

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/train/nn"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
)

// Mode says what a batch is for.
type Mode int

// Modes. A record to predict may have no label.
const (
	Training Mode = iota + 1
	Evaluation
	Prediction
)

// Model describes a model; users write their own.
type Model struct {
	// "mnist"
	Package string
	// "mnist_functional_api"
	Name string
	// what --model_def ends with: "custom_model", or the class of a subclassed model
	Class string

	// New declares the parameters and returns the forward pass.
	New func(b *nn.Builder) nn.Module
	// Loss returns the mean loss over the batch, a scalar.
	Loss func(t *nn.Tape, outputs *nn.Tensor, b *Batch) *nn.Tensor
	// Optimizer returns how gradients are applied.
	Optimizer func() optim.Config
	// Feed turns records into b, reusing its memory. An error names the index of the record in
	// records.
	Feed func(mode Mode, records [][]byte, b *Batch) error
	// Metrics are the measurements of an evaluation, always in the same order.
	Metrics func() []Metric
	// LearningRate returns the rate of the update that follows a version of the model; nil means
	// the optimizer's. workers is the number of workers whose gradients one update averages: in a
	// ring its current size, with synchronous parameter servers --grads_to_wait, with asynchronous
	// ones 1.
	LearningRate func(version int64, workers int) float64
	// Processor makes what elasticdl predict writes of the outputs; nil: all of them, as [Outputs]
	// does. It is ElasticDL's PredictionOutputsProcessor.
	Processor *Processor
}

// Processor makes a row of a CSV file from the outputs of a model for a record. The row must depend
// on the arguments alone: a record whose worker was lost is processed again, and the new row
// replaces the old one.
type Processor struct {
	// Header returns the names of the fields, given how many numbers the model puts out for a
	// record; nil: the file has no header.
	Header func(outputs int) []string
	// Row appends the fields of a record's row to fields. The outputs are valid until it returns;
	// the record is as it was read, and must not be changed.
	Row func(fields []string, outputs []float32, record []byte) ([]string, error)
}

// Def returns the model's --model_def.
func (m *Model) Def() string { return m.Package + "." + m.Name + "." + m.Class }

// Batch holds records as arrays.
type Batch struct {
	Size   int
	Inputs []nn.Array // the first dimension of each is Size
	Labels []int32    // Size of them, or none
}

// Reset makes b a batch of size examples with one input of the given shape
// each, and returns the memory of that input, to be filled. Labels is size long.
func (b *Batch) Reset(size int, shape ...int) []float32 {
	b.Size = size
	if len(b.Inputs) != 1 {
		b.Inputs = make([]nn.Array, 1)
	}
	in := &b.Inputs[0]
	in.Shape = append(append(in.Shape[:0], size), shape...)
	n := size
	for _, d := range shape {
		n *= d
	}
	in.Data = slices.Grow(in.Data[:0], n)[:n]
	b.Labels = slices.Grow(b.Labels[:0], size)[:size]
	return in.Data
}

// Metric measures outputs. Its state is additive: the states of disjoint sets
// of records, added element by element, are the state of their union.
type Metric struct {
	Name string
	// of a state
	Size int
	// adds a batch to a state that starts as zeros
	Update func(state []float64, outputs nn.Array, b *Batch) error
	// NaN if there is nothing in the state
	Result func(state []float64) float64
}

// models are the built-in models, in the order in which Names lists them; added are the user's,
// which [Add] sets before anything else begins.
var (
	models = []*Model{mnistFunctional, mnistSubclass, mnistMLP, cifar10ResNet20}
	added  []*Model
)

// Add makes the user's own models known to Lookup, with precedence over built-in ones of the same
// name. Call it at the beginning of main. Its error names everything that is wrong with them.
func Add(user ...*Model) error {
	var problems []error
	for i, m := range user {
		if m == nil {
			problems = append(problems, fmt.Errorf("model %d of %d is nil", i+1, len(user)))
			continue
		}
		for _, missing := range m.missing() {
			problems = append(problems, fmt.Errorf("model %q has no %s", m.Def(), missing))
		}
		if slices.ContainsFunc(added, func(other *Model) bool { return other.Def() == m.Def() }) {
			problems = append(problems, fmt.Errorf("model %q is given twice", m.Def()))
		}
		added = append(added, m)
	}
	return errors.Join(problems...)
}

// missing returns the names of required fields that a model lacks.
func (m *Model) missing() []string {
	var names []string
	for _, f := range []struct {
		name string
		ok   bool
	}{
		{"Package", m.Package != ""}, {"Name", m.Name != ""}, {"Class", m.Class != ""},
		{"New", m.New != nil}, {"Loss", m.Loss != nil}, {"Optimizer", m.Optimizer != nil},
		{"Feed", m.Feed != nil}, {"Metrics", m.Metrics != nil},
	} {
		if !f.ok {
			names = append(names, f.name)
		}
	}
	return names
}

// all returns all models, the user's first.
func all() []*Model { return slices.Concat(added, models) }

// Lookup finds a model by its --model_def, as
// "mnist.mnist_functional_api.custom_model", or by its name alone.
func Lookup(modelDef string) (*Model, error) {
	for _, m := range all() {
		switch modelDef {
		case m.Def(), m.Name + "." + m.Name + "." + m.Class, // as in ElasticDL's older directory layout
			m.Package + "." + m.Name, m.Name + "." + m.Class, m.Name:
			return m, nil
		}
	}
	return nil, fmt.Errorf("model %q: unknown; there are %s", modelDef, strings.Join(Names(), ", "))
}

// Names lists what Lookup finds, as --model_def would say it.
func Names() []string {
	var names []string
	for _, m := range all() {
		// a built-in model may be hidden by the user's
		if !slices.Contains(names, m.Def()) {
			names = append(names, m.Def())
		}
	}
	return names
}
