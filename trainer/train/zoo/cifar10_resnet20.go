package zoo

import (
	"github.com/elasticdl/elasticdl/trainer/train/nn"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
)

// cifar10ResNet20 is the residual network of 20 layers for CIFAR-10 of "Deep Residual Learning for
// Image Recognition" (He et al. 2015, section 4.2), with its shortcuts without parameters (type A),
// but without its weight decay and its crops and flips: what a record becomes depends on the record
// alone.
var cifar10ResNet20 = &Model{
	Package: "cifar10",
	Name:    "cifar10_resnet20",
	Class:   "custom_model",

	New: func(b *nn.Builder) nn.Module {
		net := nn.Sequential{b.Conv2D(3, conv3x3(16, 1)), b.BatchNorm(16, resNetNorm(true))}
		in := 16
		for _, filters := range []int{16, 32, 64} {
			for range 3 {
				net = append(net, newResidual(b, in, filters))
				in = filters
			}
		}
		return append(net, nn.GlobalAveragePool{}, b.Dense(64, nn.Dense{Units: 10}))
	},
	Loss: func(t *nn.Tape, outputs *nn.Tensor, b *Batch) *nn.Tensor {
		return t.SoftmaxCrossEntropy(outputs, b.Labels)
	},
	// Momentum needs one slot where Adam needs two, so a newcomer has less to copy, and it is known
	// how its rate should follow the number of workers: --scale_learning_rate multiplies it.
	Optimizer: func() optim.Config {
		return optim.Config{Name: optim.Momentum, LearningRate: resNetRate, Momentum: 0.9}
	},
	LearningRate: resNetSchedule,
	// Pixels of all three colours get a mean of about 0, and a variance of about 1.
	Feed:    pictures{shape: [3]int{32, 32, 3}, classes: 10, scale: 1. / 64, shift: -121. / 64}.feed,
	Metrics: func() []Metric { return []Metric{Accuracy(), Loss()} },
}

// the paper's 0.1 is for minibatches of 128
const resNetRate = 0.05

// resNetSchedule divides the rate by 10 twice, after as many records as in the paper, computed as
// if there had always been this number of workers with minibatches of 64. It does not multiply the
// rate by their number: --scale_learning_rate does.
func resNetSchedule(version int64, workers int) float64 {
	switch minibatches := version * int64(max(workers, 1)); {
	case minibatches < 64_000:
		return resNetRate
	case minibatches < 96_000:
		return resNetRate / 10
	}
	return resNetRate / 100
}

func conv3x3(filters, stride int) nn.Conv2D {
	return nn.Conv2D{Filters: filters, Kernel: [2]int{3, 3}, Stride: [2]int{stride, stride},
		Padding: nn.Half, NoBias: true}
}

func resNetNorm(relu bool) nn.BatchNorm {
	return nn.BatchNorm{Momentum: 0.9, Epsilon: 1e-5, ReLU: relu}
}

// residual is a block: two convolutions, whose output is added to the input.
type residual struct {
	conv1, conv2 *nn.Conv2D
	norm1, norm2 *nn.BatchNorm
	shortcut     nn.Module
}

// newResidual declares a block; with more filters than inputs it halves the image.
func newResidual(b *nn.Builder, in, filters int) *residual {
	stride, shortcut := 1, nn.Module(nn.Sequential{})
	if filters > in {
		stride = 2
		shortcut = nn.Shortcut{Stride: stride, Channels: filters}
	}
	return &residual{
		conv1: b.Conv2D(in, conv3x3(filters, stride)), norm1: b.BatchNorm(filters, resNetNorm(true)),
		conv2: b.Conv2D(filters, conv3x3(filters, 1)), norm2: b.BatchNorm(filters, resNetNorm(false)),
		shortcut: shortcut,
	}
}

// Forward computes the block.
func (r *residual) Forward(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
	y := r.norm1.Forward(t, r.conv1.Forward(t, x))
	y = r.norm2.Forward(t, r.conv2.Forward(t, y))
	return t.AddReLU(y, r.shortcut.Forward(t, x))
}
