package zoo

import (
	"github.com/elasticdl/elasticdl/trainer/train/nn"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
)

// mnistMLP is the smallest useful model: two dense layers.
var mnistMLP = &Model{
	Package: "mnist",
	Name:    "mnist_mlp",
	Class:   "custom_model",

	New: func(b *nn.Builder) nn.Module {
		return nn.Sequential{
			nn.Flatten{},
			b.Dense(28*28, nn.Dense{Units: 256, ReLU: true}),
			b.Dense(256, nn.Dense{Units: 10}),
		}
	},
	Loss: func(t *nn.Tape, outputs *nn.Tensor, b *Batch) *nn.Tensor {
		return t.SoftmaxCrossEntropy(outputs, b.Labels)
	},
	Optimizer: func() optim.Config { return optim.Config{Name: optim.Adam, LearningRate: 0.001} },
	Feed:      digitPictures.feed,
	Metrics:   func() []Metric { return []Metric{Accuracy(), Loss()} },
	Processor: Classes(),
}
