package nn

import "github.com/elasticdl/elasticdl/trainer/train/nn/kernel"

// MaxPool takes the maximum of every window of an image, channel by channel. Padding is never the
// maximum. The maximum of a window with a NaN is NaN, so that a diverging model is noticed.
type MaxPool struct {
	Window  [2]int // height, width; zero is 2, 2
	Stride  [2]int // zero is Window
	Padding Padding
}

// Forward pools x.
func (p MaxPool) Forward(t *Tape, x *Tensor) *Tensor {
	if p.Window == [2]int{} {
		p.Window = [2]int{2, 2}
	}
	if p.Stride == [2]int{} {
		p.Stride = p.Window
	}
	g := t.window("max_pooling2d", x, p.Window, p.Stride, p.Padding)
	if two := [2]int{2, 2}; p.Window == two && p.Stride == two && g.oh*2 <= g.h && g.ow*2 <= g.w {
		o := next[pool2x2](t)
		o.window, o.blind = g, true
		o.index = resize(o.index, t.batch*g.oh*g.ow*g.c)
		return t.record(o, nil, x, g.oh, g.ow, g.c)
	}
	o := next[pool](t)
	o.window = g
	o.index = resize(o.index, t.batch*g.oh*g.ow*g.c)
	return t.record(o, nil, x, g.oh, g.ow, g.c)
}

// pool2x2 pools windows of 2 by 2 with stride 2, the common case: each pair of rows becomes one.
type pool2x2 struct {
	node
	window
	index   []uint8
	masking bool
}

// prepare lets this operation mask the gradient of its input: if a maximum is not above 0, nothing
// in its window is, so only the gradients at the maxima have to be masked.
func (o *pool2x2) prepare() { o.masking = o.masks() }

func (o *pool2x2) forward(s examples) {
	in, out := o.w*o.c, o.ow*o.c
	x := o.in[0].from.data
	for i := s.lo; i < s.hi; i++ {
		for y := range o.oh {
			at := (i*o.oh + y) * out
			top := x[(i*o.h+2*y)*in:]
			kernel.MaxPool2x2(o.out.data[at:at+out], o.index[at:at+out], top[:2*out], top[in:][:2*out], o.c)
		}
	}
}

func (o *pool2x2) backward(s examples) {
	dx := o.in[0].grad
	if dx == nil {
		return
	}
	if o.masking {
		kernel.ReluGrad(s.of(o.out.grad, o.out.size), s.of(o.out.data, o.out.size))
	}
	in, out := o.w*o.c, o.ow*o.c
	if o.h&1 != 0 || o.w&1 != 0 {
		clear(s.of(dx, o.h*in))
	}
	for i := s.lo; i < s.hi; i++ {
		for y := range o.oh {
			at := (i*o.oh + y) * out
			top := dx[(i*o.h+2*y)*in:]
			kernel.MaxPool2x2Grad(top[:2*out], top[in:][:2*out], o.out.grad[at:at+out], o.index[at:at+out], o.c)
		}
	}
}

// pool pools windows of any size.
type pool struct {
	node
	window
	index []int32 // position of each maximum in its image
}

func (o *pool) forward(s examples) {
	image, out := o.h*o.w*o.c, o.out.size
	for i := s.lo; i < s.hi; i++ {
		x := o.in[0].from.data[i*image : (i+1)*image]
		at := i * out
		for y := range o.oh {
			for v := range o.ow {
				o.pixel(o.out.data[at:at+o.c], o.index[at:at+o.c], x, y*o.sh-o.top, v*o.sw-o.left)
				at += o.c
			}
		}
	}
}

// pixel pools the part of the window at (top, left) that lies on the image. Of equal maxima it
// takes the first, of NaNs the last.
func (o *pool) pixel(out []float32, index []int32, x []float32, top, left int) {
	first := true
	for y := max(0, top); y < min(o.h, top+o.kh); y++ {
		for v := max(0, left); v < min(o.w, left+o.kw); v++ {
			at := (y*o.w + v) * o.c
			for c, e := range x[at : at+o.c] {
				if first || e > out[c] || e != e {
					out[c], index[c] = e, int32(at+c)
				}
			}
			first = false
		}
	}
}

func (o *pool) backward(s examples) {
	if o.in[0].grad == nil {
		return
	}
	image, out := o.h*o.w*o.c, o.out.size
	for i := s.lo; i < s.hi; i++ {
		dx := o.in[0].grad[i*image : (i+1)*image]
		clear(dx)
		for j, dy := range o.out.grad[i*out : (i+1)*out] {
			dx[o.index[i*out+j]] += dy
		}
	}
}

// GlobalAveragePool computes the mean of every channel over the image: [batch channels].
type GlobalAveragePool struct{}

// Forward pools x.
func (GlobalAveragePool) Forward(t *Tape, x *Tensor) *Tensor {
	if len(x.dims) != 4 {
		t.fail("global_average_pooling2d: input %v: want [batch height width channels]", x.dims)
	}
	return t.record(next[average](t), nil, x, x.dims[3])
}

type average struct{ node }

func (o *average) forward(s examples) {
	image, c := o.in[0].from.size, o.out.size
	for i := s.lo; i < s.hi; i++ {
		y := o.out.data[i*c : (i+1)*c]
		clear(y)
		kernel.AddRows(y, o.in[0].from.data[i*image:(i+1)*image])
		kernel.Scale(float32(c)/float32(image), y)
	}
}

func (o *average) backward(s examples) {
	image, c := o.in[0].from.size, o.out.size
	if o.in[0].grad == nil {
		return
	}
	for i := s.lo; i < s.hi; i++ {
		dx := o.in[0].grad[i*image : (i+1)*image]
		copy(dx, o.out.grad[i*c:(i+1)*c])
		kernel.Scale(float32(c)/float32(image), dx[:c])
		for n := c; n < image; n *= 2 {
			copy(dx[n:], dx[:n])
		}
	}
}

// Shortcut fits an image to the output of a residual block without parameters (type A of "Deep
// Residual Learning for Image Recognition"): the pixels at every Stride-th place in both
// directions, and zeros for further channels.
type Shortcut struct {
	// 0 is 1
	Stride int
	// of the output, at least those of the input
	Channels int
}

// Forward fits x.
func (p Shortcut) Forward(t *Tape, x *Tensor) *Tensor {
	stride := max(p.Stride, 1)
	g := t.window("shortcut", x, [2]int{1, 1}, [2]int{stride, stride}, Valid)
	if p.Channels < g.c {
		t.fail("shortcut: input %v: has more than %d channels", x.dims, p.Channels)
	}
	o := next[shortcut](t)
	o.window = g
	return t.record(o, nil, x, g.oh, g.ow, p.Channels)
}

type shortcut struct {
	node
	window
}

// pixels calls f with the offsets of each kept pixel of an image in the input and in the output.
func (o *shortcut) pixels(i int, f func(in, out int)) {
	filters := o.out.size / (o.oh * o.ow)
	for p := range o.oh * o.ow {
		y, x := p/o.ow*o.sh, p%o.ow*o.sw
		f(((i*o.h+y)*o.w+x)*o.c, i*o.out.size+p*filters)
	}
}

func (o *shortcut) forward(s examples) {
	clear(s.of(o.out.data, o.out.size))
	for i := s.lo; i < s.hi; i++ {
		o.pixels(i, func(in, out int) { copy(o.out.data[out:out+o.c], o.in[0].from.data[in:]) })
	}
}

func (o *shortcut) backward(s examples) {
	dx := o.in[0].grad
	if dx == nil {
		return
	}
	clear(s.of(dx, o.in[0].from.size))
	for i := s.lo; i < s.hi; i++ {
		o.pixels(i, func(in, out int) { copy(dx[in:in+o.c], o.out.grad[out:]) })
	}
}
