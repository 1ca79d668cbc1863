package nn

import "github.com/elasticdl/elasticdl/trainer/train/nn/kernel"

// Dense multiplies the last dimension by a kernel [in Units] and adds a bias.
type Dense struct {
	Name  string // "" is dense, dense_1 and so on
	Units int
	ReLU  bool

	in   int
	vars []*Param // kernel, bias
}

// Dense declares a dense layer of inputs whose last dimension is in.
func (b *Builder) Dense(in int, d Dense) *Dense {
	d.Name = b.name(d.Name, "dense")
	d.in = in
	d.vars = []*Param{
		b.Variable(d.Name+"/kernel", GlorotUniform, in, d.Units),
		b.Variable(d.Name+"/bias", Zeros, d.Units),
	}
	return &d
}

// Forward multiplies x.
func (d *Dense) Forward(t *Tape, x *Tensor) *Tensor {
	n := len(x.dims)
	if n < 2 || x.dims[n-1] != d.in {
		t.fail("%s: input %v: want %d in the last dimension", d.Name, x.dims, d.in)
	}
	o := next[dense](t)
	o.units, o.ins, o.tape = d.Units, d.in, t
	o.kernel, o.bias = d.vars[0], d.vars[1]
	o.rows = x.size / d.in
	o.shape = append(append(o.shape[:0], x.dims[1:n-1]...), d.Units)
	y := t.record(o, d.vars, x, o.shape...)
	y.rectified = d.ReLU
	return y
}

type dense struct {
	node
	rows, ins, units int // rows of one example
	kernel, bias     *Param
	tape             *Tape
	shape            []int
	turned           []float32 // the kernel transposed
}

// bulk marks a [bulkOp]: a product is faster with more rows, and does not sum over them.
func (o *dense) bulk() {}

func (o *dense) forward(s examples) {
	x := o.in[0].from
	kernel.Gemm(&kernel.GemmArgs{
		M: (s.hi - s.lo) * o.rows, N: o.units, K: o.ins,
		A: s.of(x.data, x.size), ARow: o.ins, AStep: 1,
		B: o.kernel.Value, BRow: o.units,
		C: s.of(o.out.data, o.out.size), CRow: o.units,
		Init: kernel.Bias, Bias: o.bias.Value, ReLU: o.out.rectified, Scratch: &o.tape.scratch[s.worker],
	})
}

func (o *dense) prepare() {
	if o.in[0].grad != nil {
		o.turned = resize(o.turned, o.ins*o.units)
		kernel.Transpose(o.turned, o.ins, o.kernel.Value, o.units, o.ins, o.units)
	}
}

func (o *dense) backward(s examples) {
	o.mask(s)
	if o.in[0].grad == nil {
		return
	}
	kernel.Gemm(&kernel.GemmArgs{
		M: (s.hi - s.lo) * o.rows, N: o.ins, K: o.units,
		A: s.of(o.out.grad, o.out.size), ARow: o.units, AStep: 1,
		B: o.turned, BRow: o.ins,
		C: s.of(o.in[0].grad, o.in[0].from.size), CRow: o.ins, Scratch: &o.tape.scratch[s.worker],
	})
}

// fold computes some rows of the kernel's gradient, over the whole batch.
func (o *dense) fold(part int) {
	lo, hi := part*o.ins/parts, (part+1)*o.ins/parts
	dy := o.out.grad[:o.tape.batch*o.out.size]
	if part == 0 {
		if !o.add[1] {
			clear(o.bias.Grad)
		}
		kernel.AddRows(o.bias.Grad, dy)
	}
	if lo == hi {
		return
	}
	g := kernel.GemmArgs{
		M: hi - lo, N: o.units, K: o.tape.batch * o.rows,
		A: o.in[0].from.data[lo:], ARow: 1, AStep: o.ins,
		B: dy, BRow: o.units,
		C: o.kernel.Grad[lo*o.units : hi*o.units], CRow: o.units,
	}
	if o.add[0] {
		g.Init = kernel.Accumulate
	}
	kernel.Gemm(&g)
}
