package optim

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// The names of the optimizers.
const (
	SGD      = "SGD"      // with Momentum > 0: as Momentum
	Momentum = "Momentum" // needs Momentum > 0
	Adam     = "Adam"     // with AMSGrad: the maximum of all second moments
	Adagrad  = "Adagrad"
)

var names = []string{SGD, Momentum, Adam, Adagrad}

// Config says how parameters are updated. A number that is zero takes Keras'
// default, which is given with the field; Momentum's is none.
type Config struct {
	Name               string  `json:"name"`
	LearningRate       float64 `json:"learning_rate,omitempty"`       // SGD and Momentum 0.01, Adam and Adagrad 0.001
	Momentum           float64 `json:"momentum,omitempty"`            // SGD and Momentum: 0
	Nesterov           bool    `json:"nesterov,omitempty"`            // SGD and Momentum
	Beta1              float64 `json:"beta_1,omitempty"`              // Adam: 0.9
	Beta2              float64 `json:"beta_2,omitempty"`              // Adam: 0.999
	Epsilon            float64 `json:"epsilon,omitempty"`             // Adam and Adagrad: 1e-7
	AMSGrad            bool    `json:"amsgrad,omitempty"`             // Adam
	InitialAccumulator float64 `json:"initial_accumulator,omitempty"` // Adagrad: 0.1; ElasticDL's server starts from 0: give 1e-30
}

// Validate reports every field that has an impossible value, or one that the
// optimizer would ignore, by its name.
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

// Slots is how many float32 the optimizer keeps for every parameter.
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

// withDefaults puts Keras' defaults in the place of zeros.
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
