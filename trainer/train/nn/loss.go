package nn

import "math"

// SoftmaxCrossEntropy returns the mean over the batch of -log softmax(logits)[label], a scalar.
// Logits are [batch classes]; there is one label for each example, from 0.
func (t *Tape) SoftmaxCrossEntropy(logits *Tensor, labels []int32) *Tensor {
	if len(logits.dims) != 2 {
		t.fail("softmax cross-entropy: logits %v: want [batch classes]", logits.dims)
	}
	if len(labels) != t.batch {
		t.fail("softmax cross-entropy: %d labels for %d examples", len(labels), t.batch)
	}
	for i, label := range labels {
		if label < 0 || int(label) >= logits.size {
			t.fail("softmax cross-entropy: example %d has label %d: want 0 to %d", i, label, logits.size-1)
		}
	}
	o := next[xent](t)
	o.labels = labels
	o.soft = resize(o.soft, t.batch*logits.size)
	o.parts = [parts]float64{}
	out := t.record(o, nil, logits)
	out.dims, out.size, out.data = out.dims[:0], 0, out.data[:1]
	return out
}

// Scalar computes and returns the value of a loss.
func (x *Tensor) Scalar() float32 { return x.Data()[0] }

type xent struct {
	node
	labels []int32
	soft   []float32 // softmax(logits)
	parts  [parts]float64
}

func (o *xent) forward(s examples) {
	x := o.in[0].from
	for i := s.lo; i < s.hi; i++ {
		o.parts[s.part] += softmax(o.soft[i*x.size:(i+1)*x.size], x.data[i*x.size:(i+1)*x.size], int(o.labels[i]))
	}
}

func (o *xent) gather() {
	sum := 0.0
	for _, p := range o.parts {
		sum += p
	}
	o.out.data[0] = float32(sum / float64(len(o.labels)))
}

func (o *xent) backward(s examples) {
	size := o.in[0].from.size
	dx := o.in[0].grad
	if dx == nil {
		return
	}
	scale := o.out.grad[0] / float32(len(o.labels))
	for i := s.lo; i < s.hi; i++ {
		row := dx[i*size : (i+1)*size]
		for j, p := range o.soft[i*size : (i+1)*size] {
			row[j] = p * scale
		}
		row[o.labels[i]] -= scale
	}
}

// CrossEntropy returns -log softmax(logits)[label].
func CrossEntropy(logits []float32, label int) float64 {
	top, sum := largest(logits), 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v - top))
	}
	return math.Log(sum) - float64(logits[label]-top)
}

// softmax sets dst to softmax(logits), and returns the cross-entropy.
func softmax(dst, logits []float32, label int) float64 {
	top, sum := largest(logits), 0.0
	for j, v := range logits {
		e := math.Exp(float64(v - top))
		dst[j] = float32(e)
		sum += e
	}
	scale := float32(1 / sum)
	for j := range dst {
		dst[j] *= scale
	}
	return math.Log(sum) - float64(logits[label]-top)
}

func largest(x []float32) float32 {
	top := x[0]
	for _, v := range x[1:] {
		top = max(top, v)
	}
	return top
}
