package worker

import (
	"testing"

	"github.com/elasticdl/elasticdl/trainer/train/ps"
)

// At the rate 0 of a schedule the worker's own copy of the model stands still, too, and does not
// move at the optimizer's rate.
func TestLocalUpdatesAtRateZero(t *testing.T) {
	bubble(t, func(t *testing.T) {
		schedule := func(int64, int) float64 { return 0 }
		b := newBench(t, ps.ServerConfig{Async: true, LearningRate: schedule}, training(1, 0, 12, 0))
		b.Job.GetModelSteps = 5
		b.Model.LearningRate = schedule
		if err := work(t.Context(), b.Config); err != nil {
			t.Fatal(err)
		}
		if got := b.engine.values[0]; got != 0 || b.pull(t) != got {
			t.Errorf("the worker's own value is %v, the servers' %v, want 0", got, b.pull(t))
		}
	})
}
