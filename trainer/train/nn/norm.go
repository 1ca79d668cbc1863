package nn

import (
	"math"

	"github.com/elasticdl/elasticdl/trainer/train/nn/kernel"
)

// BatchNorm normalises every channel, the last dimension, over the batch and all other dimensions:
// in training by the batch's own mean and variance, through which the gradient flows, otherwise by
// moving averages, which are state: see [Builder.State]. They move by the batch's mean and by its
// unbiased variance, Σ(x-mean)²/(n-1), as those of PyTorch and of TensorFlow's fused operation do.
type BatchNorm struct {
	// "" is batch_normalization and so on
	Name string
	// 0 is 0.99
	Momentum float64
	// 0 is 1e-3
	Epsilon float64
	// of the output
	ReLU bool

	channels int
	// gamma, beta, moving_mean, moving_variance
	vars []*Param
}

// BatchNorm declares a normalisation of inputs of that many channels.
func (b *Builder) BatchNorm(channels int, n BatchNorm) *BatchNorm {
	n.Name = b.name(n.Name, "batch_normalization")
	n.channels = channels
	if n.Momentum == 0 {
		n.Momentum = 0.99
	}
	if n.Epsilon == 0 {
		n.Epsilon = 1e-3
	}
	n.vars = []*Param{
		b.Variable(n.Name+"/gamma", Ones, channels),
		b.Variable(n.Name+"/beta", Zeros, channels),
		b.State(n.Name+"/moving_mean", n.Momentum, Zeros, channels),
		b.State(n.Name+"/moving_variance", n.Momentum, Ones, channels),
	}
	return &n
}

// Forward normalises x.
func (n *BatchNorm) Forward(t *Tape, x *Tensor) *Tensor {
	if len(x.dims) < 2 || x.dims[len(x.dims)-1] != n.channels {
		t.fail("%s: input %v: want %d channels", n.Name, x.dims, n.channels)
	}
	m := next[moments](t)
	m.layer, m.training = n, t.training
	m.view, m.inPlace = true, true
	m.reset(n.channels, x.size)
	through := t.record(m, n.vars[2:], x, x.dims[1:]...)
	o := next[normalize](t)
	o.inPlace = true
	o.moments, o.absorbed = m, false
	y := t.record(o, n.vars[:2], through, x.dims[1:]...)
	y.again = o
	y.rectified = n.ReLU
	return y
}

// moments passes x through to normalize, and computes its mean and variance on the way. On the way
// back normalize computes the sums that its gradient needs, and moments applies them.
type moments struct {
	node
	layer    *BatchNorm
	training bool
	masking  bool

	// With few channels a row is several pixels, which makes it wide enough for the kernels.
	channels, width int
	// two for each element of a row, for each part
	sums           []float64
	mean, variance []float64
	// 1/standard deviation
	inverse []float64
	// y = x*a + b, for the elements of a row
	a, b []float32
	// dx = dy*k1 + x*k2 + k3
	k1, k2, k3 []float32
}

func (o *moments) reset(channels, size int) {
	width := channels
	for w := 2 * channels; w <= 64 && size%w == 0; w *= 2 {
		width = w
	}
	if o.channels != channels || o.width != width {
		o.channels, o.width = channels, width
		o.sums = make([]float64, parts*2*width)
		o.mean, o.variance, o.inverse = make([]float64, channels), make([]float64, channels), make([]float64, channels)
		o.a, o.b = make([]float32, width), make([]float32, width)
		o.k1, o.k2, o.k3 = make([]float32, width), make([]float32, width), make([]float32, width)
	}
	clear(o.sums)
}

// sum adds the sums of x and of x*z to those of the span's part.
func (o *moments) sum(s examples, x, z []float32) {
	w, size := o.width, o.out.size
	sums := o.sums[s.part*2*w:]
	kernel.ColumnStats(sums[:w], sums[w:2*w], s.of(x, size), s.of(z, size))
}

// total folds the parts' sums into those of part 0, clears the others, and returns both sums of the
// channels.
func (o *moments) total() (s1, s2 []float64) {
	w := o.width
	total := o.sums[:2*w]
	for p := 1; p < parts; p++ {
		for i, v := range o.sums[p*2*w:][:2*w] {
			total[i] += v
		}
	}
	clear(o.sums[2*w:])
	s1, s2 = total[:w], total[w:]
	for i := o.channels; i < w; i++ {
		s1[i%o.channels] += s1[i]
		s2[i%o.channels] += s2[i]
	}
	return s1[:o.channels], s2[:o.channels]
}

// spread repeats the numbers of the channels along a row.
func (o *moments) spread(rows ...[]float32) {
	for _, row := range rows {
		for n := o.channels; n < o.width; n *= 2 {
			copy(row[n:], row[:n])
		}
	}
}

func (o *moments) rows() float64 { return float64(len(o.out.data) / o.channels) }

func (o *moments) forward(s examples) {
	if o.training {
		o.sum(s, o.out.data, o.out.data)
	}
}

func (o *moments) gather() {
	if o.training {
		s1, s2 := o.total()
		n := o.rows()
		for c := range o.mean {
			o.mean[c] = s1[c] / n
			o.variance[c] = max(0, s2[c]/n-o.mean[c]*o.mean[c])
		}
		clear(o.sums)
	} else {
		for c, v := range o.layer.vars[2].Value {
			o.mean[c], o.variance[c] = float64(v), float64(o.layer.vars[3].Value[c])
		}
	}
	gamma, beta := o.layer.vars[0].Value, o.layer.vars[1].Value
	for c, v := range o.variance {
		o.inverse[c] = 1 / math.Sqrt(v+o.layer.Epsilon)
		a := float64(gamma[c]) * o.inverse[c]
		o.a[c], o.b[c] = float32(a), float32(float64(beta[c])-o.mean[c]*a)
	}
	o.spread(o.a, o.b)
}

// prepare lets backward, which reads x anyway, mask the gradient of x.
func (o *moments) prepare() { o.masking = o.masks() }

func (o *moments) backward(s examples) {
	if dx := o.in[0].grad; dx != nil {
		size := o.out.size
		kernel.BatchNormGrad(s.of(dx, size), s.of(o.out.grad, size), s.of(o.out.data, size), o.k1, o.k2,
			o.k3, o.masking)
	}
}

func (o *moments) fold(part int) {
	if part > 0 {
		return
	}
	n := o.rows()
	for i, batch := range [][]float64{o.mean, o.variance} {
		moving, unbiased := o.layer.vars[2+i], 1.0
		if i == 1 {
			unbiased = n / max(n-1, 1)
		}
		for c, v := range batch {
			v *= unbiased
			// the layer was used before in this pass: half of each
			if o.add[i] {
				v = (v + float64(moving.Grad[c])) / 2
			}
			moving.Grad[c] = float32(v)
		}
	}
}

type normalize struct {
	node
	moments *moments
	// the operation that reads the output does this work
	absorbed      bool
	dgamma, dbeta []float32
}

func (o *normalize) forward(s examples) {
	if !o.absorbed {
		o.apply(o.out.data[s.lo*o.out.size:], s.lo*o.out.size, s.hi*o.out.size)
	}
}

// apply normalises the elements [lo, hi) of all, which are rows, to dst.
func (o *normalize) apply(dst []float32, lo, hi int) {
	kernel.ScaleShift(dst, o.in[0].from.data[lo:hi], o.moments.a, o.moments.b, o.out.rectified)
}

func (o *normalize) recompute() {
	o.out.data = o.out.dataMemory
	o.apply(o.out.data, 0, len(o.out.data))
}

// absorbs returns before if it is a normalisation whose output x only the next operation needs;
// otherwise nil.
func absorbs(before op, x *Tensor) *normalize {
	if o, ok := before.(*normalize); ok && x == &o.out && x.readers == 1 && !x.asked {
		return o
	}
	return nil
}

func (o *normalize) backward(s examples) {
	o.mask(s)
	o.moments.sum(s, o.out.grad, o.in[0].from.data)
	if o.in[0].add {
		copy(s.of(o.in[0].grad, o.out.size), s.of(o.out.grad, o.out.size))
	}
}

// gatherGrad computes the gradients: with x' = (x-mean)/deviation, dgamma = Σdy*x', dbeta = Σdy and
// dx = gamma/deviation * (dy - dbeta/n - x'*dgamma/n).
func (o *normalize) gatherGrad() {
	m := o.moments
	s1, s2 := m.total()
	n := m.rows()
	gamma, beta := o.vars[0], o.vars[1]
	o.dgamma, o.dbeta = resize(o.dgamma, len(s1)), resize(o.dbeta, len(s1))
	for c, inverse := range m.inverse {
		dgamma := (s2[c] - m.mean[c]*s1[c]) * inverse
		k := float64(gamma.Value[c]) * inverse
		m.k1[c] = float32(k)
		m.k2[c] = float32(-k * inverse * dgamma / n)
		m.k3[c] = float32(k * (m.mean[c]*inverse*dgamma - s1[c]) / n)
		o.dgamma[c], o.dbeta[c] = float32(dgamma), float32(s1[c])
	}
	m.spread(m.k1, m.k2, m.k3)
	setGrad(gamma, o.dgamma, o.add[0])
	setGrad(beta, o.dbeta, o.add[1])
}

func setGrad(p *Param, grad []float32, add bool) {
	if add {
		kernel.Add(p.Grad, grad)
	} else {
		copy(p.Grad, grad)
	}
}
