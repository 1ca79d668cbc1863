package rpc

import (
	"fmt"
	"math"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Variables returns a layout as a message has it.
func Variables(l param.Layout) []*wire.Variable {
	all := make([]*wire.Variable, len(l))
	for i, v := range l {
		shape := make([]int64, len(v.Shape))
		for k, d := range v.Shape {
			shape[k] = int64(d)
		}
		all[i] = &wire.Variable{Name: v.Name, Shape: shape, Trainable: v.Trainable, Momentum: v.Momentum}
	}
	return all
}

// maxElements is the size of a model beyond which a layout is taken for a mistake: 4 TB.
const maxElements = 1 << 40

// Layout reads the variables of a message, whose sizes nobody has checked yet.
func Layout(variables []*wire.Variable) (param.Layout, error) {
	layout := make(param.Layout, 0, len(variables))
	total := 0.0
	for _, v := range variables {
		n, shape := 1.0, make([]int, 0, len(v.GetShape()))
		for _, d := range v.GetShape() {
			n *= math.Abs(float64(d))
			shape = append(shape, int(d))
		}
		if total += n; total > maxElements {
			return nil, fmt.Errorf("layout: %s %v: more than %d elements", v.GetName(), shape, maxElements)
		}
		layout = append(layout, param.Variable{Name: v.GetName(), Shape: shape,
			Trainable: v.GetTrainable(), Momentum: v.GetMomentum()})
	}
	return layout, nil
}
