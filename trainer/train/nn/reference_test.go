package nn

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// exact is a tensor of a simple implementation of the layers in float64, of which finite
// differences are taken.
type exact struct {
	dims []int
	data []float64
}

func exactly(a Array) exact { return exact{a.Shape, widen(a.Data)} }

func widen(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

// at calls f for every output pixel of a window over x with every pixel of x that the window covers
// there.
func (x exact) at(kernel, stride [2]int, padding Padding, f func(out, kernel, in int)) (h, w int) {
	n, ih, iw := x.dims[0], x.dims[1], x.dims[2]
	var top, left int
	switch padding {
	case Half:
		top, left = kernel[0]/2, kernel[1]/2
		h, w = (ih+2*top-kernel[0])/stride[0]+1, (iw+2*left-kernel[1])/stride[1]+1
	case Same:
		h, w = (ih+stride[0]-1)/stride[0], (iw+stride[1]-1)/stride[1]
		top, left = max(0, (h-1)*stride[0]+kernel[0]-ih)/2, max(0, (w-1)*stride[1]+kernel[1]-iw)/2
	default:
		h, w = (ih-kernel[0])/stride[0]+1, (iw-kernel[1])/stride[1]+1
	}
	for out := range n * h * w {
		for k := range kernel[0] * kernel[1] {
			y, v := out/w%h*stride[0]+k/kernel[1]-top, out%w*stride[1]+k%kernel[1]-left
			if y >= 0 && y < ih && v >= 0 && v < iw {
				f(out, k, (out/(w*h)*ih+y)*iw+v)
			}
		}
	}
	return h, w
}

func (c *Conv2D) exact(x exact, weights, bias []float64) exact {
	stride := c.Stride
	if stride == [2]int{} {
		stride = [2]int{1, 1}
	}
	in, filters := x.dims[3], c.Filters
	h, w := x.at(c.Kernel, stride, c.Padding, func(int, int, int) {})
	y := make([]float64, x.dims[0]*h*w*filters)
	for i := range y {
		if !c.NoBias {
			y[i] = bias[i%filters]
		}
	}
	x.at(c.Kernel, stride, c.Padding, func(out, k, at int) {
		for f := range filters {
			for i := range in {
				y[out*filters+f] += x.data[at*in+i] * weights[(k*in+i)*filters+f]
			}
		}
	})
	return exact{[]int{x.dims[0], h, w, filters}, rectify(y, c.ReLU)}
}

func rectify(x []float64, relu bool) []float64 {
	for i := range x {
		if relu {
			x[i] = max(0, x[i])
		}
	}
	return x
}

func (d *Dense) exact(x exact, weights, bias []float64) exact {
	rows := len(x.data) / d.in
	y := make([]float64, rows*d.Units)
	for i := range y {
		y[i] = bias[i%d.Units]
		for k := range d.in {
			y[i] += x.data[i/d.Units*d.in+k] * weights[k*d.Units+i%d.Units]
		}
	}
	return exact{append(append([]int{}, x.dims[:len(x.dims)-1]...), d.Units), rectify(y, d.ReLU)}
}

func (p MaxPool) exact(x exact) exact {
	c := x.dims[3]
	h, w := x.at(p.Window, p.Stride, p.Padding, func(int, int, int) {})
	y := make([]float64, x.dims[0]*h*w*c)
	for i := range y {
		y[i] = math.Inf(-1)
	}
	x.at(p.Window, p.Stride, p.Padding, func(out, _, at int) {
		for i := range c {
			y[out*c+i] = max(y[out*c+i], x.data[at*c+i])
		}
	})
	return exact{[]int{x.dims[0], h, w, c}, y}
}

func (n *BatchNorm) exact(x exact, gamma, beta []float64) exact {
	c := n.channels
	rows := float64(len(x.data) / c)
	mean, variance := make([]float64, c), make([]float64, c)
	for i, v := range x.data {
		mean[i%c] += v / rows
	}
	for i, v := range x.data {
		variance[i%c] += (v - mean[i%c]) * (v - mean[i%c]) / rows
	}
	y := make([]float64, len(x.data))
	for i, v := range x.data {
		y[i] = (v-mean[i%c])/math.Sqrt(variance[i%c]+n.Epsilon)*gamma[i%c] + beta[i%c]
	}
	return exact{x.dims, y}
}

// product returns the loss of model.run without labels.
func (x exact) product() float64 {
	sum := 0.0
	for i, w := range values(99, len(x.data), 1, 0) {
		sum += x.data[i] * float64(w)
	}
	return sum
}

// compare checks the output, and compares some gradients of every tensor with finite differences of
// f, which computes the network from its input and its trainable parameters.
func compare(t *rapid.T, tb testing.TB, m model, f func(x exact, p [][]float64) exact) {
	tape, module := m.tape(tb)
	got := m.pass(tb, tape, module)
	x := exactly(m.input)
	var p [][]float64
	for _, v := range tape.params.vars {
		if v.Trainable {
			p = append(p, widen(v.Value))
		}
	}
	want := f(x, p)
	near(t, "output", got.output, want.data)
	for i, variable := range append([][]float64{x.data}, p...) {
		if len(variable) == 0 {
			continue
		}
		top := 1.0
		for _, g := range got.grads[i] {
			top = max(top, math.Abs(float64(g)))
		}
		for range 2 {
			at := rapid.IntRange(0, len(variable)-1).Draw(t, "element")
			const step = 1e-6
			before := variable[at]
			variable[at] = before + step
			up := f(x, p).product()
			variable[at] = before - step
			down := f(x, p).product()
			variable[at] = before
			slope := (up - down) / (2 * step)
			if g := float64(got.grads[i][at]); !(math.Abs(g-slope) <= 1e-4*top) {
				t.Fatalf("gradient %d[%d] = %v, finite differences give %v", i, at, g, slope)
			}
		}
	}
}

func near(t *rapid.T, what string, got []float32, want []float64) {
	if len(got) != len(want) {
		t.Fatalf("%s has %d elements, want %d", what, len(got), len(want))
	}
	top := 1.0
	for _, v := range want {
		top = max(top, math.Abs(v))
	}
	for i, v := range want {
		if !(math.Abs(float64(got[i])-v) <= 1e-5*top) {
			t.Fatalf("%s[%d] = %v, want %v", what, i, got[i], v)
		}
	}
}

func pair(t *rapid.T, name string, lo, hi int) [2]int {
	g := rapid.IntRange(lo, hi)
	return [2]int{g.Draw(t, name+" height"), g.Draw(t, name+" width")}
}

func images(t *rapid.T, kernel [2]int, channels int) Array {
	n := rapid.IntRange(1, 4).Draw(t, "batch")
	h := rapid.IntRange(kernel[0], 8).Draw(t, "height")
	w := rapid.IntRange(kernel[1], 8).Draw(t, "width")
	return array(1, 1, .2, n, h, w, channels)
}

func TestConvAgainstFiniteDifferences(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := Conv2D{
			Filters: rapid.IntRange(1, 35).Draw(r, "filters"),
			Kernel:  pair(r, "kernel", 1, 5), Stride: pair(r, "stride", 1, 4),
			Padding: Padding(rapid.IntRange(0, 2).Draw(r, "padding")),
			NoBias:  rapid.Bool().Draw(r, "no bias"),
		}
		in := rapid.IntRange(1, 9).Draw(r, "channels")
		m := model{build: convolution(in, c), scale: layerScale, shift: noShift, input: images(r, c.Kernel, in)}
		compare(r, t, m, func(x exact, p [][]float64) exact { return c.exact(x, p[0], p[len(p)-1]) })
	})
}

// TestTilesAgainstFiniteDifferences checks convolutions that are computed in tiles: in large ones
// if height and width are multiples of 4.
func TestTilesAgainstFiniteDifferences(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := Conv2D{
			Filters: rapid.IntRange(15, 20).Draw(r, "filters"),
			Kernel:  [2]int{3, 3}, Padding: Padding(rapid.IntRange(0, 2).Draw(r, "padding")),
			NoBias: rapid.Bool().Draw(r, "no bias"),
		}
		in := rapid.IntRange(256/c.Filters+1, 20).Draw(r, "channels")
		even := func(name string) int { return 2 * rapid.IntRange(2, 4).Draw(r, name) }
		input := array(1, 1, .2, rapid.IntRange(1, 9).Draw(r, "batch"), even("height"), even("width"), in)
		m := model{build: convolution(in, c), scale: layerScale, shift: noShift, input: input,
			threads: rapid.IntRange(1, 3).Draw(r, "threads")}
		compare(r, t, m, func(x exact, p [][]float64) exact { return c.exact(x, p[0], p[len(p)-1]) })
		tape, module := m.tape(t)
		m.pass(t, tape, module)
		if o, ok := tape.ops[0].(*conv); !ok || !o.tiled {
			r.Fatal("not computed in tiles")
		}
	})
}

func TestDenseAgainstFiniteDifferences(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		d := Dense{Units: rapid.IntRange(1, 40).Draw(r, "units"), in: rapid.IntRange(1, 40).Draw(r, "inputs")}
		shape := []int{rapid.IntRange(1, 30).Draw(r, "batch")}
		if rapid.Bool().Draw(r, "three dimensions") {
			shape = append(shape, rapid.IntRange(1, 5).Draw(r, "rows"))
		}
		m := model{
			build: func(b *Builder) Module { return b.Dense(d.in, d) },
			scale: layerScale, shift: noShift, input: array(1, 1, 0, append(shape, d.in)...),
		}
		compare(r, t, m, func(x exact, p [][]float64) exact { return d.exact(x, p[0], p[1]) })
	})
}

func TestMaxPoolAgainstFiniteDifferences(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := MaxPool{Window: pair(r, "window", 1, 4), Stride: pair(r, "stride", 1, 4),
			Padding: Padding(rapid.IntRange(0, 2).Draw(r, "padding"))}
		m := model{build: one(p), input: images(r, p.Window, rapid.IntRange(1, 20).Draw(r, "channels"))}
		compare(r, t, m, func(x exact, _ [][]float64) exact { return p.exact(x) })
	})
}

// TestNetworkAgainstFiniteDifferences checks the gradients of a whole network in which a tensor and
// a layer are used twice.
func TestNetworkAgainstFiniteDifferences(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		// with 16 and more channels the convolution may be computed in tiles
		channels := rapid.SampledFrom([]int{1, 2, 3, 4, 5, 6, 16}).Draw(r, "channels")
		n := &network{
			conv:  &Conv2D{Filters: channels, Kernel: [2]int{3, 3}, Padding: Same},
			norm:  &BatchNorm{},
			pool:  MaxPool{Window: [2]int{2, 2}, Stride: [2]int{2, 2}},
			dense: &Dense{Units: rapid.IntRange(1, 5).Draw(r, "units")},
		}
		m := model{
			build: func(b *Builder) Module {
				n.conv = b.Conv2D(channels, *n.conv)
				n.norm = b.BatchNorm(channels, *n.norm)
				n.dense = b.Dense(channels, *n.dense)
				return n
			},
			scale: []float64{.5, .5, .5, .5, .5, .5}, shift: []float64{0, 0, 1, 0, 0, 0},
			input: images(r, [2]int{3, 3}, channels),
		}
		compare(r, t, m, func(x exact, p [][]float64) exact {
			y := n.conv.exact(x, p[0], p[1])
			for i, v := range x.data {
				y.data[i] += v
			}
			y = n.norm.exact(n.conv.exact(y, p[0], p[1]), p[2], p[3])
			return n.dense.exact(n.pool.exact(y), p[4], p[5])
		})
	})
}

type network struct {
	conv  *Conv2D
	norm  *BatchNorm
	pool  MaxPool
	dense *Dense
}

// Forward computes a residual block, the same convolution again, and the other layers.
func (n *network) Forward(t *Tape, x *Tensor) *Tensor {
	y := t.Add(n.conv.Forward(t, x), x)
	y = n.norm.Forward(t, n.conv.Forward(t, y))
	return n.dense.Forward(t, n.pool.Forward(t, y))
}

// TestShortcutAgainstFiniteDifferences checks the gradients of Shortcut and GlobalAveragePool.
func TestShortcutAgainstFiniteDifferences(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		in := rapid.IntRange(1, 20).Draw(r, "channels")
		p := Shortcut{Stride: rapid.IntRange(1, 4).Draw(r, "stride"),
			Channels: in + rapid.IntRange(0, 20).Draw(r, "more")}
		m := model{build: one(Sequential{p, GlobalAveragePool{}}), input: images(r, [2]int{1, 1}, in)}
		compare(r, t, m, func(x exact, _ [][]float64) exact {
			y := exact{[]int{x.dims[0], p.Channels}, make([]float64, x.dims[0]*p.Channels)}
			stride := [2]int{p.Stride, p.Stride}
			h, w := x.at([2]int{1, 1}, stride, Valid, func(int, int, int) {})
			x.at([2]int{1, 1}, stride, Valid, func(out, _, at int) {
				for c := range in {
					y.data[out/(h*w)*p.Channels+c] += x.data[at*in+c] / float64(h*w)
				}
			})
			return y
		})
	})
}
