// Package optim updates parameters from gradients: SGD, Momentum, Nesterov,
// Adam, AMSGrad and Adagrad over flat float32 slices.
//
// Laws:
//
//  1. An update is element-wise: applied to ranges of the parameters, in any
//     order, it gives the same bits as applied to all of them at once.
//  2. An optimizer has no state: the caller holds the slots of the parameters
//     and counts the updates.
//  3. An update allocates nothing.
package optim

import (
	"fmt"
	"math"

	"github.com/elasticdl/elasticdl/trainer/train/nn/kernel"
)

// Optimizer applies gradients by the rule of its [Config]. It is safe for
// concurrent use, on distinct parameters.
type Optimizer struct {
	c Config
}

// New returns the optimizer that c describes, or the error of [Config.Validate].
func New(c Config) (*Optimizer, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Optimizer{c.withDefaults()}, nil
}

// Config returns the configuration, with defaults in place of zeros.
func (o *Optimizer) Config() Config { return o.c }

// NewSlots returns the slots of n parameters before the first update.
func (o *Optimizer) NewSlots(n int) [][]float32 {
	slots := make([][]float32, o.c.Slots())
	for i := range slots {
		slots[i] = make([]float32, n)
		if o.c.Name == Adagrad {
			for j := range slots[i] {
				slots[i][j] = float32(o.c.InitialAccumulator)
			}
		}
	}
	return slots
}

// leastRate is too small to change a parameter, and large enough to stay above 0 when it is
// divided.
const leastRate = 1e-200

// Rate returns the learning rate for [Optimizer.Apply] that a schedule gives for the update of a
// version with that many workers. A nil schedule gives that of the configuration. If the schedule
// gives 0 or less, the update changes no parameter.
func (o *Optimizer) Rate(schedule func(version int64, workers int) float64, version int64, workers int) float64 {
	if schedule == nil {
		return o.c.LearningRate
	}
	if rate := schedule(version, workers); rate > leastRate {
		return rate
	}
	return leastRate
}

// Apply updates the parameters p by the gradient g, with the learning rate lr,
// or that of the configuration if lr is 0 or less. Here g and every slot are as long as p, and
// step is the number of this update of these parameters, from 1, for
// Adam's bias correction. It panics if the number of slots is not that of the optimizer.
//
//	SGD       p -= lr·g
//	Momentum  v = μ·v + g; p -= lr·v                  Polyak 1964
//	Nesterov  v = μ·v + g; p -= lr·(g + μ·v)          Sutskever et al. 2013
//	Adam      m, v = moving means of g, g²;           Kingma and Ba 2015, section 2
//	          p -= lr·√(1-β₂ᵗ)/(1-β₁ᵗ)·m/(√v + ε)
//	AMSGrad   with the largest v so far under the root  Reddi et al. 2018
//	Adagrad   a += g²; p -= lr·g/(√a + ε)             Duchi et al. 2011
//
// ε is added as Keras does, which for Adam is "ε hat" of the paper.
func (o *Optimizer) Apply(p, g []float32, slots [][]float32, step int64, lr float64) {
	if len(slots) != o.c.Slots() {
		panic(fmt.Sprintf("optim: %d slots for %s, want %d", len(slots), o.c.Name, o.c.Slots()))
	}
	if !(lr > 0) {
		lr = o.c.LearningRate
	}
	c := o.c
	switch c.Name {
	case Adam:
		t := float64(max(step, 1))
		lr *= math.Sqrt(1-math.Pow(c.Beta2, t)) / (1 - math.Pow(c.Beta1, t))
		if c.AMSGrad {
			kernel.AMSGrad(p, g, slots[0], slots[1], slots[2], lr, c.Beta1, c.Beta2, c.Epsilon)
		} else {
			kernel.Adam(p, g, slots[0], slots[1], lr, c.Beta1, c.Beta2, c.Epsilon)
		}
	case Adagrad:
		kernel.Adagrad(p, g, slots[0], lr, c.Epsilon)
	default:
		if c.Momentum > 0 {
			kernel.Momentum(p, g, slots[0], lr, c.Momentum, c.Nesterov)
		} else {
			kernel.SGD(p, g, lr)
		}
	}
}

// ApplyRange does what [Optimizer.Apply] does, for the range [lo, hi) of p, g and the slots.
func (o *Optimizer) ApplyRange(lo, hi int, p, g []float32, slots [][]float32, step int64, lr float64) {
	var views [3][]float32
	for i, slot := range slots {
		views[i] = slot[lo:hi]
	}
	o.Apply(p[lo:hi], g[lo:hi], views[:len(slots)], step, lr)
}
