package agent

import (
	"slices"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// Processes get the minibatches of a task if the job sets the number.
func TestMinibatchesAreTold(t *testing.T) {
	a := &local{Config: Config{Job: job.DefaultOf(job.Run)}, count: 1}
	const variable = "ELASTICDL_NUM_MINIBATCHES_PER_TASK="
	if env := a.environment(); slices.ContainsFunc(env, func(v string) bool {
		return len(v) >= len(variable) && v[:len(variable)] == variable
	}) {
		t.Errorf("a job that says nothing: %q", env)
	}
	a.Job.NumMinibatchesPerTask = 4
	if env := a.environment(); !slices.Contains(env, variable+"4") {
		t.Errorf("four: %q", env)
	}
}

// The program gets the options of the job.
func TestOptions(t *testing.T) {
	a := &local{Config: Config{Job: job.DefaultOf(job.Run)}, count: 1}
	for text, want := range map[string][]int{"": nil, "0,3": {0, 3}} {
		a.Job.Program.LocalRanks = text
		if o, err := a.options([]string{"main.py"}); err != nil || !slices.Equal(o.LocalRanksFilter, want) {
			t.Errorf("%q: %v, %v", text, o.LocalRanksFilter, err)
		}
	}
}

// The processes of all workers on one machine share its processors. The processes of a pod share
// the pod's processors. For a single process on a machine OMP_NUM_THREADS is not set.
func TestThreads(t *testing.T) {
	for _, c := range []struct {
		processors, count, workers, world int
		limited                           bool
		want                              int
	}{
		// two workers on this machine, before the second has joined
		{2, 1, 2, 1, false, 1},
		{2, 1, 2, 2, false, 1},
		{8, 1, 2, 2, false, 4},
		{8, 2, 2, 4, false, 2},
		{8, 1, 1, 1, false, 0},
		{8, 1, 1, 4, false, 2}, // scaled after its start
		// the number of processes exceeds half of the processors
		{8, 1, 5, 1, false, 1},
		{4, 8, 1, 8, false, 1},
		{4, 1, 0, 16, false, 0}, // a pod that has a whole node
		{2, 1, 0, 16, true, 2},  // with --worker_resource_limit=cpu=2
		{16, 4, 0, 16, false, 4},
		{1, 4, 0, 16, true, 1},
	} {
		a := Config{Processors: c.processors, Workers: c.workers, Limited: c.limited}
		if n := a.threads(c.count, c.world); n != c.want {
			t.Errorf("%+v: %d", c, n)
		}
	}
}
