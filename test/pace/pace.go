// Package pace has models of digits for tests of whole jobs. [Small] needs almost no computation.
// [Patient] needs no more, but is slow on purpose: a test that has to disturb a running job can do
// so on a machine of any speed, and then calls [Hurry] to let the job end.
package pace

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/elasticdl/elasticdl/trainer/train/nn"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
)

// home is the variable that names the state directory of a job's processes, and hurry the file in
// it that [Hurry] makes.
const home, hurry = "ELASTICDL_HOME", "hurry"

// Small has two dense layers, 102 kB.
var Small = &zoo.Model{
	Package: "digits", Name: "small", Class: "custom_model",
	New: func(b *nn.Builder) nn.Module {
		return nn.Sequential{nn.Flatten{}, b.Dense(28*28, nn.Dense{Units: 32, ReLU: true}),
			b.Dense(32, nn.Dense{Units: 10})}
	},
	Loss: func(t *nn.Tape, outputs *nn.Tensor, b *zoo.Batch) *nn.Tensor {
		return t.SoftmaxCrossEntropy(outputs, b.Labels)
	},
	Optimizer: func() optim.Config { return optim.Config{Name: optim.Adam, LearningRate: 0.003} },
	Feed:      pictures(),
	Metrics:   func() []zoo.Metric { return []zoo.Metric{zoo.Accuracy(), zoo.Loss()} },
	Processor: zoo.Classes(),
}

// Patient is [Small], with a pause in each minibatch that grows by a millisecond, up to a tenth of
// a second, until [Hurry] is called for the state directory of the process.
var Patient = patient()

// Hurry ends the pauses of all present and future processes with that state directory.
func Hurry(dir string) error {
	return errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, hurry), nil, 0o644))
}

// pictures returns the feed of the built-in models of digits.
func pictures() func(zoo.Mode, [][]byte, *zoo.Batch) error {
	m, err := zoo.Lookup("mnist_mlp")
	if err != nil {
		panic(err)
	}
	return m.Feed
}

func patient() *zoo.Model {
	m := *Small
	m.Name = "patient"
	var fed atomic.Int64
	m.Feed = func(mode zoo.Mode, records [][]byte, b *zoo.Batch) error {
		if _, err := os.Stat(filepath.Join(os.Getenv(home), hurry)); err != nil {
			time.Sleep(time.Duration(min(fed.Add(1), 100)) * time.Millisecond)
		}
		return Small.Feed(mode, records, b)
	}
	return &m
}
