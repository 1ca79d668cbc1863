package nn

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
)

// Param is one variable of a model. Value and Grad are views into the model's
// flat arrays; they are nil until [Builder.Build]. [Params.Use] gives Value another array.
type Param struct {
	param.Variable
	Value []float32
	// gradient of the mean loss; of a state: what is to be subtracted from it
	Grad []float32

	init Initializer
	// index of the operation that writes Grad last in this backward pass, the first one on the
	// tape; the number of operations: none
	writer int
}

// Initializer fills a stretch of the first value of a variable: dst holds the elements from index
// at on. The stretches of a variable come in their order, from the first, with the same r.
type Initializer func(r *rand.Rand, shape []int, at int, dst []float32)

// Zeros is the initial value of biases.
func Zeros(_ *rand.Rand, _ []int, _ int, dst []float32) { clear(dst) }

// Ones is the initial value of scales.
func Ones(_ *rand.Rand, _ []int, _ int, dst []float32) {
	for i := range dst {
		dst[i] = 1
	}
}

// GlorotUniform is Keras' initial value of kernels: uniform in ±√(6/(in+out)), where in and out are
// the last two dimensions of shape, each times the size of the window before them.
func GlorotUniform(r *rand.Rand, shape []int, _ int, dst []float32) {
	in, out := 1, 1
	if n := len(shape); n >= 2 {
		window := 1
		for _, d := range shape[:n-2] {
			window *= d
		}
		in, out = window*shape[n-2], window*shape[n-1]
	} else if n == 1 {
		in, out = shape[0], shape[0]
	}
	limit := math.Sqrt(6 / float64(in+out))
	for i := range dst {
		dst[i] = float32((2*r.Float64() - 1) * limit)
	}
}

// Builder collects the variables that a model declares. Layers are declared by
// its methods ([Builder.Dense], [Builder.Conv2D], [Builder.BatchNorm]); a model
// with parameters of its own takes them from [Builder.Variable] and [Builder.State].
type Builder struct {
	seed     uint64
	declared []*Param
	used     map[string]int // layer names
}

// NewBuilder returns an empty builder. Initial values depend on seed and on the
// names of the variables, and on nothing else.
func NewBuilder(seed uint64) *Builder {
	return &Builder{seed: seed, used: make(map[string]int)}
}

// Variable declares a trainable variable.
func (b *Builder) Variable(name string, init Initializer, shape ...int) *Param {
	return b.add(param.Variable{Name: name, Shape: shape, Trainable: true}, init)
}

// State declares a moving average, such as BatchNorm's moving mean. The backward pass leaves in its
// Grad what the step observed; momentum is the share of the old value that an update keeps.
func (b *Builder) State(name string, momentum float64, init Initializer, shape ...int) *Param {
	return b.add(param.Variable{Name: name, Shape: shape, Momentum: momentum}, init)
}

func (b *Builder) add(v param.Variable, init Initializer) *Param {
	p := &Param{Variable: v, init: init}
	b.declared = append(b.declared, p)
	return p
}

// name returns the name of the next layer of a kind, unless the model has given one: dense,
// dense_1, dense_2, as in Keras.
func (b *Builder) name(given, kind string) string {
	if given != "" {
		return given
	}
	n := b.used[kind]
	b.used[kind]++
	if n == 0 {
		return kind
	}
	return fmt.Sprintf("%s_%d", kind, n)
}

// Params holds the variables of a built model.
type Params struct {
	Layout param.Layout
	// flat: the trainable variables, then the state
	Values []float32
	// the gradients, in the same order
	Grads []float32

	vars []*Param
}

// Layout returns the layout of the declared variables, trainable ones first. It allocates no
// values.
func (b *Builder) Layout() (param.Layout, error) {
	p, err := b.layOut()
	return p.Layout, err
}

func (b *Builder) layOut() (*Params, error) {
	p := &Params{}
	for _, trainable := range []bool{true, false} {
		for _, v := range b.declared {
			if v.Trainable == trainable {
				p.vars = append(p.vars, v)
				p.Layout = append(p.Layout, v.Variable)
			}
		}
	}
	return p, p.Layout.Validate()
}

// Build allocates the variables in the order of [Builder.Layout], and sets their initial values.
func (b *Builder) Build() (*Params, error) {
	p, err := b.layOut()
	if err != nil {
		return nil, err
	}
	n := p.Layout.Len()
	p.Values, p.Grads = b.draw(p.vars, param.Range{End: n}), make([]float32, n)
	at := 0
	for _, v := range p.vars {
		end := at + v.Len()
		v.Value, v.Grad = p.Values[at:end:end], p.Grads[at:end:end]
		at = end
	}
	return p, nil
}

// Initial returns the layout, and what one of that many parts of Values is after [Builder.Build],
// as [param.Partition] cuts it. Its memory is that of the part.
func (b *Builder) Initial(part, parts int) (param.Layout, []float32, error) {
	p, err := b.layOut()
	if err != nil {
		return nil, nil, err
	}
	return p.Layout, b.draw(p.vars, param.Partition(p.Layout.Len(), parts)[part]), nil
}

// draw returns the initial values of a range of the flat array of variables.
func (b *Builder) draw(vars []*Param, part param.Range) []float32 {
	values := make([]float32, part.Len())
	var before [4096]float32
	start := 0
	for _, v := range vars {
		// of the variable: what is in the range
		lo, hi := max(part.Start-start, 0), min(part.End-start, v.Len())
		if lo < hi {
			r := rand.New(rand.NewPCG(b.seed, hash(v.Name)))
			for at := 0; at < lo; at += len(before) {
				v.init(r, v.Shape, at, before[:min(lo-at, len(before))])
			}
			v.init(r, v.Shape, lo, values[lo-part.Start+start:hi-part.Start+start])
		}
		start += v.Len()
	}
	return values
}

// Use makes the next passes compute with values, as long as p.Values and laid out like it, in place
// of p.Values; nil: with p.Values again. It copies nothing: every Param's Value becomes a view of
// them. Another length panics.
func (p *Params) Use(values []float32) {
	if values == nil {
		values = p.Values
	}
	if len(values) != len(p.Values) {
		panic(fmt.Sprintf("nn: use of %d values by a model of %d", len(values), len(p.Values)))
	}
	at := 0
	for _, v := range p.vars {
		end := at + v.Len()
		v.Value = values[at:end:end]
		at = end
	}
}

func hash(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return h.Sum64()
}
