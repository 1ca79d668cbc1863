package agent

import (
	"net"
	"path/filepath"
	"slices"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/job"
)

// Processes are told the minibatches of a task if the job says how many.
func TestMinibatchesAreTold(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	a := &agent{Config: Config{Job: job.DefaultOf(job.Run)}, scripts: &scripts{listener: listener}}
	const variable = "ELASTICDL_NUM_MINIBATCHES_PER_TASK="
	if env := a.environment(); slices.ContainsFunc(env, func(v string) bool { return len(v) >= len(variable) && v[:len(variable)] == variable }) {
		t.Errorf("a job that says nothing: %q", env)
	}
	a.Job.NumMinibatchesPerTask = 4
	if env := a.environment(); !slices.Contains(env, variable+"4") {
		t.Errorf("four: %q", env)
	}
}

// The program has the options that the job says.
func TestOptions(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	a := &agent{Config: Config{Job: job.DefaultOf(job.Run)}, scripts: &scripts{listener: listener}}
	for text, want := range map[string][]int{"": nil, "0,3": {0, 3}} {
		a.Job.Program.LocalRanks = text
		if o, err := a.options([]string{"main.py"}); err != nil || !slices.Equal(o.LocalRanksFilter, want) {
			t.Errorf("%q: %v, %v", text, o.LocalRanksFilter, err)
		}
	}
}
