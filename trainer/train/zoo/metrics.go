package zoo

import (
	"fmt"
	"math"

	"github.com/elasticdl/elasticdl/trainer/train/nn"
)

// Accuracy returns the metric of how many of the examples have their largest output at their label.
func Accuracy() Metric {
	return Metric{Name: "accuracy", Size: 2, Result: ratio, Update: each(func(logits []float32, label int) float64 {
		best := 0
		for j, v := range logits {
			if v > logits[best] {
				best = j
			}
		}
		if best == label {
			return 1
		}
		return 0
	})}
}

// Loss returns the metric of the mean softmax cross-entropy of logits.
func Loss() Metric {
	return Metric{Name: "loss", Size: 2, Result: ratio, Update: each(nn.CrossEntropy)}
}

// each returns an Update that sums f over the examples of a batch whose outputs are logits: the
// state is the sum and the number of examples.
func each(f func(logits []float32, label int) float64) func([]float64, nn.Array, *Batch) error {
	return func(state []float64, outputs nn.Array, b *Batch) error {
		if len(outputs.Shape) != 2 || outputs.Shape[0] != len(b.Labels) {
			return fmt.Errorf("outputs %v for %d labels: want [labels classes]", outputs.Shape, len(b.Labels))
		}
		classes := outputs.Shape[1]
		for i, label := range b.Labels {
			if label < 0 || int(label) >= classes {
				return fmt.Errorf("example %d has label %d: want 0 to %d", i, label, classes-1)
			}
			state[0] += f(outputs.Data[i*classes:(i+1)*classes], int(label))
			state[1]++
		}
		return nil
	}
}

func ratio(state []float64) float64 {
	if state[1] == 0 {
		return math.NaN()
	}
	return state[0] / state[1]
}
