package nn

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/train/nn/kernel"
)

// values returns the same numbers as the function values of testdata/goldens.py.
func values(salt, n int, scale, shift float64) []float32 {
	out := make([]float32, n)
	for i := range out {
		h := uint32(i)*2654435761 + uint32(salt)*40503 + 12345
		h = (h ^ h>>15) * 2246822519
		h = (h ^ h>>13) * 3266489917
		h ^= h >> 16
		out[i] = float32(float64((float64(h)/(1<<31)-1)*scale) + shift)
	}
	return out
}

func array(salt int, scale, shift float64, shape ...int) Array {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return Array{Shape: shape, Data: values(salt, n, scale, shift)}
}

// dot is a loss for tests: the sum of the products of inputs and weights.
type dot struct {
	node
	weights []float32
	sums    [parts]float64
}

func (t *Tape) dot(x *Tensor, weights []float32) *Tensor {
	o := next[dot](t)
	o.weights, o.sums = weights, [parts]float64{}
	out := t.record(o, nil, x)
	out.dims, out.size, out.data = out.dims[:0], 0, out.data[:1]
	return out
}

func (o *dot) forward(s examples) {
	size := o.in[0].from.size
	for i, v := range s.of(o.in[0].from.data, size) {
		o.sums[s.part] += float64(v) * float64(o.weights[s.lo*size+i])
	}
}

func (o *dot) gather() {
	sum := 0.0
	for _, v := range o.sums {
		sum += v
	}
	o.out.data[0] = float32(sum)
}

func (o *dot) backward(s examples) {
	size := o.in[0].from.size
	copy(s.of(o.in[0].grad, size), s.of(o.weights, size))
}

// result has copies of the output, loss and gradients of a pass.
type result struct {
	output []float32
	loss   float32
	// gradients of the input, then of the trainable parameters
	grads [][]float32
}

// model is a network for a test, with its input. Its parameters get values(2), values(3) and so on,
// with these scales and shifts.
type model struct {
	build        func(b *Builder) Module
	scale, shift []float64
	input        Array
	// nil: the loss is the product with values(99)
	labels  []int32
	threads int
	noise   uint64
}

func (m model) tape(t testing.TB) (*Tape, Module) {
	t.Helper()
	b := NewBuilder(1)
	module := m.build(b)
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range p.vars {
		if v.Trainable && i < len(m.scale) {
			copy(v.Value, values(i+2, v.Len(), m.scale[i], m.shift[i]))
		}
	}
	tape := NewTape(p, m.threads, m.noise)
	t.Cleanup(tape.Close)
	return tape, module
}

func (m model) run(t testing.TB) result {
	t.Helper()
	tape, module := m.tape(t)
	return m.pass(t, tape, module)
}

func (m model) pass(t testing.TB, tape *Tape, module Module) result {
	t.Helper()
	var r result
	var y, loss *Tensor
	err := tape.Pass(true, []Array{m.input}, func(t *Tape) {
		x := t.Input(0)
		x.live = true
		y = module.Forward(t, x)
		if m.labels != nil {
			loss = t.SoftmaxCrossEntropy(y, m.labels)
		} else {
			loss = t.dot(y, values(99, t.batch*y.size, 1, 0))
		}
		t.Backward(loss)
	})
	if err != nil {
		t.Fatal(err)
	}
	r.output, r.loss = slices.Clone(y.Data()), loss.Scalar()
	r.grads = append(r.grads, slices.Clone(tape.Input(0).grad))
	for _, v := range tape.params.vars {
		if v.Trainable {
			r.grads = append(r.grads, slices.Clone(v.Grad))
		}
	}
	return r
}

type golden struct {
	Every   int
	Values  []float64
	Squares float64
}

// check compares got with the numbers of PyTorch. They may differ by tolerance times the largest
// element.
func (g golden) check(t *testing.T, what string, got []float32, tolerance float64) {
	t.Helper()
	if want := (len(got) + g.Every - 1) / g.Every; len(g.Values) != want {
		t.Fatalf("%s: %d elements, PyTorch has other ones: %d stored, not %d", what, len(got), len(g.Values), want)
	}
	top, sum := 0.0, 0.0
	for _, v := range got {
		top = max(top, math.Abs(float64(v)))
		sum += float64(v) * float64(v)
	}
	for i, want := range g.Values {
		if v := float64(got[i*g.Every]); !(math.Abs(v-want) <= tolerance*top) {
			t.Errorf("%s[%d] = %v, PyTorch has %v", what, i*g.Every, v, want)
		}
	}
	if !(math.Abs(sum-g.Squares) <= 10*tolerance*g.Squares) {
		t.Errorf("%s: squares sum to %v, PyTorch's to %v", what, sum, g.Squares)
	}
}

func one(m Module) func(*Builder) Module { return func(*Builder) Module { return m } }

func convolution(in int, c Conv2D) func(*Builder) Module {
	return func(b *Builder) Module { return b.Conv2D(in, c) }
}

// mnist returns the network of zoo's mnist_functional_api without dropout.
func mnist(b *Builder) Module {
	return Sequential{
		b.Conv2D(1, Conv2D{Filters: 32, Kernel: [2]int{3, 3}, ReLU: true}),
		b.Conv2D(32, Conv2D{Filters: 64, Kernel: [2]int{3, 3}, ReLU: true}),
		b.BatchNorm(64, BatchNorm{}),
		MaxPool{},
		Flatten{},
		b.Dense(9216, Dense{Units: 10}),
	}
}

var (
	layerScale = []float64{.5, .5}
	noShift    = []float64{0, 0}
	normShift  = []float64{1, 0}
	blockShift = []float64{0, 1, 0, 0, 1, 0}
)

func halves(n int) []float64 { return slices.Repeat([]float64{.5}, n) }

// models are the cases of testdata/goldens.py.
var models = map[string]model{
	"conv valid": {build: convolution(2, Conv2D{Filters: 5, Kernel: [2]int{3, 3}}),
		scale: layerScale, shift: noShift, input: array(1, 1, 0, 3, 7, 6, 2)},
	"conv valid relu": {build: convolution(3, Conv2D{Filters: 4, Kernel: [2]int{3, 3}, ReLU: true}),
		scale: layerScale, shift: noShift, input: array(1, 1, 0, 2, 9, 8, 3)},
	"conv same": {build: convolution(3, Conv2D{Filters: 17, Kernel: [2]int{3, 3}, Padding: Same, ReLU: true}),
		scale: layerScale, shift: noShift, input: array(1, 1, 0, 2, 6, 5, 3)},
	"conv same even kernel": {build: convolution(2, Conv2D{Filters: 3, Kernel: [2]int{4, 2}, Padding: Same}),
		scale: layerScale, shift: noShift, input: array(1, 1, 0, 2, 5, 6, 2)},
	"conv valid stride": {build: convolution(2, Conv2D{Filters: 3, Kernel: [2]int{5, 3}, Stride: [2]int{2, 3}}),
		scale: layerScale, shift: noShift, input: array(1, 1, 0, 2, 11, 10, 2)},
	"conv same stride": {build: convolution(3, Conv2D{Filters: 3, Kernel: [2]int{5, 3},
		Stride: [2]int{3, 2}, Padding: Same, ReLU: true}),
		scale: layerScale, shift: noShift, input: array(1, 1, 0, 2, 10, 7, 3)},
	"conv stride beyond kernel": {build: convolution(2, Conv2D{Filters: 3, Kernel: [2]int{2, 2},
		Stride: [2]int{3, 3}, Padding: Same}),
		scale: layerScale, shift: noShift, input: array(1, 1, 0, 2, 9, 9, 2)},
	"conv 1x1": {build: convolution(7, Conv2D{Filters: 33, Kernel: [2]int{1, 1}, ReLU: true}),
		scale: layerScale, shift: noShift, input: array(1, 1, 0, 2, 4, 5, 7)},
	"dense": {build: func(b *Builder) Module {
		return b.Dense(7, Dense{Units: 4})
	}, scale: layerScale, shift: noShift, input: array(1, 1, 0, 5, 7)},
	"dense relu, three dimensions": {build: func(b *Builder) Module { return b.Dense(6, Dense{Units: 5, ReLU: true}) },
		scale: layerScale, shift: noShift, input: array(1, 1, 0, 3, 4, 6)},
	"max pool":      {build: one(MaxPool{}), input: array(1, 1, 0, 2, 7, 6, 3)},
	"max pool same": {build: one(MaxPool{Padding: Same}), input: array(1, 1, 0, 2, 7, 5, 3)},
	"max pool overlapping": {build: one(MaxPool{Window: [2]int{3, 2}, Stride: [2]int{2, 1},
		Padding: Same}), input: array(1, 1, 0, 2, 8, 7, 2)},
	"batch norm": {build: func(b *Builder) Module { return b.BatchNorm(6, BatchNorm{}) },
		scale: layerScale, shift: normShift, input: array(1, 1, .5, 3, 4, 5, 6)},
	"batch norm, two dimensions": {build: func(b *Builder) Module { return b.BatchNorm(4, BatchNorm{}) },
		scale: layerScale, shift: normShift, input: array(1, 3, -1, 9, 4)},
	"cross-entropy": {build: one(Sequential{}), input: array(1, 4, 0, 6, 10), labels: []int32{3, 9, 0, 5, 5, 1}},
	"conv half": {build: convolution(3, Conv2D{Filters: 4, Kernel: [2]int{3, 3}, Padding: Half, NoBias: true}),
		scale: layerScale, shift: noShift, input: array(1, 1, 0, 2, 7, 6, 3)},
	"conv half stride": {build: convolution(3, Conv2D{Filters: 4, Kernel: [2]int{3, 3},
		Stride: [2]int{2, 2}, Padding: Half, NoBias: true}),
		scale: layerScale, shift: noShift, input: array(1, 1, 0, 2, 8, 7, 3)},
	"conv half even kernel": {build: convolution(2, Conv2D{Filters: 3, Kernel: [2]int{4, 2},
		Stride: [2]int{2, 1}, Padding: Half, ReLU: true}),
		scale: layerScale, shift: noShift, input: array(1, 1, 0, 2, 7, 6, 2)},
	"max pool half": {build: one(MaxPool{Window: [2]int{3, 3}, Stride: [2]int{2, 2}, Padding: Half}),
		input: array(1, 1, 0, 2, 7, 5, 3)},
	"batch norm relu": {build: func(b *Builder) Module { return b.BatchNorm(6, BatchNorm{ReLU: true}) },
		scale: layerScale, shift: normShift, input: array(1, 1, .5, 3, 4, 5, 6)},
	"global average pool": {build: one(GlobalAveragePool{}), input: array(1, 1, 0, 3, 5, 4, 6)},
	"shortcut":            {build: one(Shortcut{Stride: 2, Channels: 7}), input: array(1, 1, 0, 2, 5, 4, 3)},
	"residual block": {build: func(b *Builder) Module { return residual(b, 4, 4) },
		scale: halves(6), shift: blockShift, input: array(1, 1, 0, 3, 5, 6, 4)},
	"residual block that halves": {build: func(b *Builder) Module { return residual(b, 4, 8) },
		scale: halves(6), shift: blockShift, input: array(1, 1, 0, 3, 6, 5, 4)},
	"resnet": {build: func(b *Builder) Module { return resnet(b, 5, 4, 4, 8, 8) },
		scale: halves(29), shift: append(slices.Repeat([]float64{0, 1, 0}, 9), 0, 0),
		input: array(1, 1, 0, 4, 8, 8, 3), labels: []int32{3, 0, 4, 1}},
	"mnist": {build: mnist, scale: []float64{.14, .1, .08, .1, .1, .1, .025, .1},
		shift: []float64{0, 0, 0, 0, 1, 0, 0, 0},
		input: array(1, .5, .5, 5, 28, 28, 1), labels: []int32{7, 2, 1, 0, 4}},
}

// TestGoldens compares every layer and network of models with PyTorch in float64, with every set of
// kernels.
func TestGoldens(t *testing.T) {
	data, err := os.ReadFile("testdata/goldens.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name   string
		Output golden
		Loss   float64
		Grads  []golden
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) != len(models) {
		t.Fatalf("%d goldens for %d models", len(cases), len(models))
	}
	eachKernels(t, func(t *testing.T) {
		for _, c := range cases {
			t.Run(c.Name, func(t *testing.T) {
				got := models[c.Name].run(t)
				const tolerance = 1e-5
				c.Output.check(t, "output", got.output, tolerance)
				if math.Abs(float64(got.loss)-c.Loss) > tolerance*max(1, math.Abs(c.Loss)) {
					t.Errorf("loss is %v, PyTorch has %v", got.loss, c.Loss)
				}
				if len(got.grads) != len(c.Grads) {
					t.Fatalf("%d gradients, PyTorch has %d", len(got.grads), len(c.Grads))
				}
				for i, g := range c.Grads {
					g.check(t, "gradient "+string(rune('0'+i)), got.grads[i], tolerance)
				}
			})
		}
	})
}

// eachKernels runs f with each set of kernels.
func eachKernels(t *testing.T, f func(t *testing.T)) {
	before := kernel.Name()
	defer kernel.Use(before)
	for _, name := range kernel.Names() {
		if err := kernel.Use(name); err != nil {
			t.Fatal(err)
		}
		t.Run(name, f)
	}
}

// residual returns a block of zoo's cifar10_resnet20. It halves the image if it has more filters
// than inputs.
func residual(b *Builder, in, filters int) Module {
	conv := func(in, stride int) *Conv2D {
		return b.Conv2D(in, Conv2D{Filters: filters, Kernel: [2]int{3, 3},
			Stride: [2]int{stride, stride}, Padding: Half, NoBias: true})
	}
	norm := func(relu bool) *BatchNorm { return b.BatchNorm(filters, BatchNorm{ReLU: relu}) }
	body, past := Sequential{conv(in, filters/in), norm(true), conv(filters, 1), norm(false)}, Sequential{}
	if filters > in {
		past = Sequential{Shortcut{Stride: 2, Channels: filters}}
	}
	return forward(func(t *Tape, x *Tensor) *Tensor { return t.AddReLU(body.Forward(t, x), past.Forward(t, x)) })
}

// resnet returns the network of zoo's cifar10_resnet20 with blocks of these numbers of filters.
func resnet(b *Builder, classes int, filters ...int) Module {
	in := filters[0]
	net := Sequential{
		b.Conv2D(3, Conv2D{Filters: in, Kernel: [2]int{3, 3}, Padding: Half, NoBias: true}),
		b.BatchNorm(in, BatchNorm{ReLU: true}),
	}
	for _, f := range filters {
		net = append(net, residual(b, in, f))
		in = f
	}
	return append(net, GlobalAveragePool{}, b.Dense(in, Dense{Units: classes}))
}
