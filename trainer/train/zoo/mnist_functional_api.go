package zoo

import (
	"github.com/elasticdl/elasticdl/trainer/train/nn"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
)

// mnistFunctional is ElasticDL's first example: a small convolutional network
// for the handwritten digits, written as a chain of layers.
var mnistFunctional = &Model{
	Package: "mnist",
	Name:    "mnist_functional_api",
	Class:   "custom_model",

	New: func(b *nn.Builder) nn.Module {
		return nn.Sequential{
			b.Conv2D(1, nn.Conv2D{Filters: 32, Kernel: [2]int{3, 3}, ReLU: true}),
			b.Conv2D(32, nn.Conv2D{Filters: 64, Kernel: [2]int{3, 3}, ReLU: true}),
			// 0.99 is still half-way after the steps of a small data set
			b.BatchNorm(64, nn.BatchNorm{Momentum: 0.9}),
			nn.MaxPool{Window: [2]int{2, 2}},
			nn.Dropout{Rate: 0.25},
			nn.Flatten{},
			b.Dense(12*12*64, nn.Dense{Units: 10}),
		}
	},
	Loss: func(t *nn.Tape, outputs *nn.Tensor, b *Batch) *nn.Tensor {
		return t.SoftmaxCrossEntropy(outputs, b.Labels)
	},
	Optimizer: digitsOptimizer,
	Feed:      digitPictures.feed,
	Metrics:   func() []Metric { return []Metric{Accuracy(), Loss()} },
	Processor: Classes(),
}

// digitsOptimizer returns Adam: the last layer sums 9216 features of variance 1, so SGD with a rate
// at which the convolutions learn overshoots there, even more with the delayed gradients of several
// workers.
func digitsOptimizer() optim.Config {
	return optim.Config{Name: optim.Adam, LearningRate: 0.0003}
}
