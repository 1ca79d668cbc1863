package optim

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Names of the optimizers, for [Config].Name.
const (
	SGD      = "SGD"      // with Momentum > 0 the same as Momentum
	Momentum = "Momentum" // needs Momentum > 0
	// with AMSGrad it divides by the maximum of all second moments
	Adam    = "Adam"
	Adagrad = "Adagrad"
)

var names = []string{SGD, Momentum, Adam, Adagrad}

// Config selects an optimizer and its hyperparameters. A number that is zero takes the
// default of Keras, which the comment of the field states; Momentum has none.
type Config struct {
	Name string `json:"name"`
	// SGD and Momentum 0.01, Adam and Adagrad 0.001
	LearningRate float64 `json:"learning_rate,omitempty"`
	// SGD and Momentum: 0
	Momentum float64 `json:"momentum,omitempty"`
	// SGD and Momentum
	Nesterov bool `json:"nesterov,omitempty"`
	// Adam: 0.9
	Beta1 float64 `json:"beta_1,omitempty"`
	// Adam: 0.999
	Beta2 float64 `json:"beta_2,omitempty"`
	// Adam and Adagrad: 1e-7
	Epsilon float64 `json:"epsilon,omitempty"`
	// Adam
	AMSGrad bool `json:"amsgrad,omitempty"`
	// Adagrad: 0.1; ElasticDL's server starts from 0: give 1e-30
	InitialAccumulator float64 `json:"initial_accumulator,omitempty"`
}

// Validate returns an error that names every field whose value is out of range, or
// that the optimizer does not use.
func (c Config) Validate() error {
	if !slices.Contains(names, c.Name) {
		return fmt.Errorf("optimizer Name %q: want one of %q", c.Name, names)
	}
	var problems []error
	bad := func(field string, value any, why string) {
		problems = append(problems, fmt.Errorf("%s = %v: %s", field, value, why))
	}
	check := func(field string, value float64, used bool, below float64) {
		switch {
		case !used && value != 0:
			bad(field, value, c.Name+" has none")
		case math.IsNaN(value) || value < 0 || value >= below:
			bad(field, value, fmt.Sprintf("want at least 0, less than %v", below))
		}
	}
	sgd := c.Name == SGD || c.Name == Momentum
	check("LearningRate", c.LearningRate, true, math.Inf(1))
	check("Momentum", c.Momentum, sgd, 1)
	check("Beta1", c.Beta1, c.Name == Adam, 1)
	check("Beta2", c.Beta2, c.Name == Adam, 1)
	check("Epsilon", c.Epsilon, !sgd, math.Inf(1))
	check("InitialAccumulator", c.InitialAccumulator, c.Name == Adagrad, math.Inf(1))
	if c.Name == Momentum && c.Momentum == 0 {
		bad("Momentum", 0, "want more than 0")
	}
	if c.Nesterov && !(c.Momentum > 0) {
		bad("Nesterov", true, "want SGD or Momentum with Momentum > 0")
	}
	if c.AMSGrad && c.Name != Adam {
		bad("AMSGrad", true, c.Name+" has none")
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("optimizer %s: %w", c.Name, err)
	}
	return nil
}

// Slots returns the number of float32 that the optimizer keeps for each parameter.
func (c Config) Slots() int {
	switch {
	case c.Name == Adagrad:
		return 1
	case c.Name == Adam && c.AMSGrad:
		return 3
	case c.Name == Adam:
		return 2
	case c.Momentum > 0:
		return 1
	}
	return 0
}

// withDefaults replaces zeros by the defaults of Keras.
func (c Config) withDefaults() Config {
	set := func(v *float64, d float64) {
		if *v == 0 {
			*v = d
		}
	}
	switch c.Name {
	case Adam:
		set(&c.LearningRate, 0.001)
		set(&c.Beta1, 0.9)
		set(&c.Beta2, 0.999)
		set(&c.Epsilon, 1e-7)
	case Adagrad:
		set(&c.LearningRate, 0.001)
		set(&c.Epsilon, 1e-7)
		set(&c.InitialAccumulator, 0.1)
	default:
		set(&c.LearningRate, 0.01)
	}
	return c
}
