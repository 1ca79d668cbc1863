package main

import (
	"os"
	"strings"

	"github.com/elasticdl/elasticdl/cmd/elasticdl/cli"
	"github.com/elasticdl/elasticdl/trainer/train/nn"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
)

// The models for measurements of checkpoints: multilayer perceptrons of different sizes for the
// shipped digits.
const (
	gigabyte     = "bench.gigabyte.custom_model"     // 1 GB with Adam's two slots
	hundredBytes = "bench.hundred_mb.custom_model"   // 100 MB, and 200 MB of slots
	tinyModel    = "bench.tiny.custom_model"         // 32 kB
	perUnit      = 784 + 1 + 10                      // parameters
	largeUnits   = 1_000_000_000 / 3 / 4 / perUnit   // 83 million parameters
	middleUnits  = 100_000_000 / 4 / perUnit         // 25 million
	largeBytes   = 3 * 4 * (largeUnits*perUnit + 10) // values and slots
)

// models returns bench's own models, by which it acts as elasticdl.
func models() ([]*zoo.Model, error) {
	digits, err := zoo.Lookup("mnist_mlp")
	if err != nil {
		return nil, err
	}
	sized := func(name string, units int) *zoo.Model {
		return &zoo.Model{
			Package: "bench", Name: name, Class: "custom_model",
			New: func(b *nn.Builder) nn.Module {
				return nn.Sequential{nn.Flatten{}, b.Dense(28*28, nn.Dense{Units: units, ReLU: true}),
					b.Dense(units, nn.Dense{Units: 10})}
			},
			Loss:      digits.Loss,
			Optimizer: func() optim.Config { return optim.Config{Name: optim.Adam, LearningRate: 1e-5} },
			Feed:      digits.Feed,
			Metrics:   digits.Metrics,
		}
	}
	return []*zoo.Model{sized("gigabyte", largeUnits), sized("hundred_mb", middleUnits), sized("tiny", 10)}, nil
}

// beElasticdl runs the program elasticdl with bench's own models, if its arguments are those of a
// command.
func beElasticdl() error {
	if len(os.Args) < 2 || strings.HasPrefix(os.Args[1], "-") {
		return nil
	}
	own, err := models()
	if err == nil {
		cli.Main(own...)
	}
	return err
}
