package nn

import (
	"math"
	"slices"

	"github.com/elasticdl/elasticdl/trainer/train/nn/kernel"
)

// Flatten makes one dimension of all but the batch.
type Flatten struct{}

// Forward flattens x.
func (Flatten) Forward(t *Tape, x *Tensor) *Tensor { return t.Reshape(x, x.size) }

// ReLU computes max(x, 0). The ReLU option of Dense and Conv2D does the same at no cost.
type ReLU struct{}

// Forward rectifies x.
func (ReLU) Forward(t *Tape, x *Tensor) *Tensor { return t.ReLU(x) }

// Dropout is the module of [Tape.Dropout].
type Dropout struct{ Rate float64 }

// Forward drops some of x.
func (d Dropout) Forward(t *Tape, x *Tensor) *Tensor { return t.Dropout(x, d.Rate) }

// Reshape gives every example another shape of as many elements.
func (t *Tape) Reshape(x *Tensor, example ...int) *Tensor {
	size := 1
	for _, d := range example {
		size *= d
	}
	if size != x.size {
		t.fail("reshape of %v to %v: want as many elements", x.dims, slices.Clone(example))
	}
	o := next[through](t)
	o.view, o.inPlace = true, true
	return t.record(o, nil, x, example...)
}

// through is its input.
type through struct{ node }

func (o *through) forward(examples) {}

func (o *through) backward(s examples) { o.copyGrad(s, 0) }

// copyGrad passes the output's gradient on to input i.
func (n *node) copyGrad(s examples, i int) {
	if e := &n.in[i]; e.grad != nil && &e.grad[0] != &n.out.grad[0] {
		copy(s.of(e.grad, n.out.size), s.of(n.out.grad, n.out.size))
	}
}

// ReLU returns max(x, 0).
func (t *Tape) ReLU(x *Tensor) *Tensor {
	if len(x.dims) < 2 {
		t.fail("relu: input %v: want [batch ...]", x.dims)
	}
	o := next[relu](t)
	o.inPlace = true
	channels := x.dims[len(x.dims)-1]
	if len(o.one) != channels {
		o.one, o.zero = make([]float32, channels), make([]float32, channels)
		Ones(nil, nil, 0, o.one)
	}
	return t.record(o, nil, x, x.dims[1:]...)
}

type relu struct {
	node
	one, zero []float32
}

func (o *relu) forward(s examples) {
	size := o.out.size
	kernel.ScaleShift(s.of(o.out.data, size), s.of(o.in[0].from.data, size), o.one, o.zero, true)
}

func (o *relu) backward(s examples) {
	if o.in[0].grad == nil {
		return
	}
	o.copyGrad(s, 0)
	kernel.ReluGrad(s.of(o.in[0].grad, o.out.size), s.of(o.out.data, o.out.size))
}

// Add returns a + b, which have the same shape.
func (t *Tape) Add(a, b *Tensor) *Tensor { return t.add(a, b, false) }

// AddReLU returns max(a+b, 0), computed in one operation.
func (t *Tape) AddReLU(a, b *Tensor) *Tensor { return t.add(a, b, true) }

func (t *Tape) add(a, b *Tensor, relu bool) *Tensor {
	if len(a.dims) != len(b.dims) || a.size != b.size {
		t.fail("add %v to %v: want one shape", b.dims, a.dims)
	}
	o := next[add](t)
	o.inPlace, o.norm = true, nil
	out := t.record(o, nil, a, a.dims[1:]...)
	if len(o.in) < 2 {
		o.in = append(o.in, edge{})
	}
	o.in[1].from = b
	b.readers++
	b.restore()
	out.live = a.live || b.live
	out.rectified = relu
	return out
}

type add struct {
	node
	// the normalisation that computes in[0], if nothing else reads it
	norm *normalize
}

// absorb takes over a normalisation, which then writes to where the sum will be.
func (o *add) absorb(before op) {
	o.norm = nil
	if o.in[0].from != o.in[1].from {
		o.norm = absorbs(before, o.in[0].from)
	}
	if o.norm != nil {
		o.norm.out.data, o.norm.out.lost = o.out.data, true
	}
}

// shares reports that both inputs may have the same gradient: the normalisation and its moments
// only read theirs, and later additions to the gradient of in[1], or masks of it, come from
// operations before them.
func (o *add) shares() bool {
	if o.norm == nil || o.in[0].from.readers > 1 {
		return false
	}
	o.norm.moments.inPlace = false
	return true
}

func (o *add) forward(s examples) {
	y := s.of(o.out.data, o.out.size)
	kernel.Sum(y, s.of(o.in[0].from.data, o.out.size), s.of(o.in[1].from.data, o.out.size), o.out.rectified)
}

func (o *add) backward(s examples) {
	o.mask(s)
	o.copyGrad(s, 0)
	o.copyGrad(s, 1)
}

// Dropout sets elements to 0, each with probability rate, and divides the others by 1-rate; outside
// of training it does nothing. Which elements is a function of the noise's seed, the training pass,
// how many operations came before in it, and the element.
func (t *Tape) Dropout(x *Tensor, rate float64) *Tensor {
	if !(rate >= 0 && rate < 1) {
		t.fail("dropout: rate %v: want at least 0, less than 1", rate)
	}
	if !t.training || rate == 0 {
		return t.Reshape(x, x.dims[1:]...)
	}
	o := next[dropout](t)
	o.inPlace = true
	o.threshold = uint32(math.Ldexp(rate, 32))
	o.scale = float32(1 / (1 - rate))
	o.seed = t.noise + t.step<<16 + uint64(t.n)
	return t.record(o, nil, x, x.dims[1:]...)
}

type dropout struct {
	node
	seed      uint64
	threshold uint32
	scale     float32
}

func (o *dropout) forward(s examples) {
	o.drop(s, o.out.data, o.in[0].from.data)
}

func (o *dropout) backward(s examples) {
	if o.in[0].grad != nil {
		o.drop(s, o.in[0].grad, o.out.grad)
	}
}

func (o *dropout) drop(s examples, dst, src []float32) {
	size := o.out.size
	kernel.Dropout(s.of(dst, size), s.of(src, size), o.seed, uint32(s.lo*size), o.threshold, o.scale)
}
