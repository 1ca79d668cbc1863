package zoo

import (
	"github.com/elasticdl/elasticdl/trainer/train/nn"
)

// mnistSubclass is the network of mnistFunctional as a type with a Forward
// method, which may compute its output in any way.
var mnistSubclass = &Model{
	Package:   "mnist",
	Name:      "mnist_subclass",
	Class:     "CustomModel",
	New:       newDigits,
	Loss:      digitsLoss,
	Optimizer: digitsOptimizer,
	Feed:      digitPictures.feed,
	Metrics:   func() []Metric { return []Metric{Accuracy(), Loss()} },
}

type digits struct {
	conv1, conv2 *nn.Conv2D
	norm         *nn.BatchNorm
	output       *nn.Dense
}

func newDigits(b *nn.Builder) nn.Module {
	return &digits{
		conv1:  b.Conv2D(1, nn.Conv2D{Filters: 32, Kernel: [2]int{3, 3}, ReLU: true}),
		conv2:  b.Conv2D(32, nn.Conv2D{Filters: 64, Kernel: [2]int{3, 3}, ReLU: true}),
		norm:   b.BatchNorm(64, nn.BatchNorm{Momentum: 0.9}),
		output: b.Dense(12*12*64, nn.Dense{Units: 10}),
	}
}

// Forward computes logits [batch 10] from images [batch 28 28 1].
func (m *digits) Forward(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
	x = m.conv1.Forward(t, x)
	x = m.conv2.Forward(t, x)
	x = m.norm.Forward(t, x)
	x = nn.MaxPool{Window: [2]int{2, 2}}.Forward(t, x)
	x = t.Dropout(x, 0.25)
	x = t.Reshape(x, 12*12*64)
	return m.output.Forward(t, x)
}

func digitsLoss(t *nn.Tape, outputs *nn.Tensor, b *Batch) *nn.Tensor {
	return t.SoftmaxCrossEntropy(outputs, b.Labels)
}
