package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/supervise"
	"github.com/elasticdl/elasticdl/trainer/run/program"
)

// ooms is a program whose cgroup has killed some processes.
type ooms struct {
	Program
	killed int
}

func (o ooms) OOMKills() int { return o.killed }

// A worker whose processes are killed from outside before they have joined counts as lost, not as
// failed.
func TestKilledBeforeItJoins(t *testing.T) {
	for _, c := range []struct {
		exits []program.Exit
		ooms  int
		want  int
	}{
		{[]program.Exit{{Pid: 1, Code: -9, Signal: 9}}, 1, 9},
		{[]program.Exit{{Pid: 1, Code: -9, Signal: 9}}, 2, 0}, // memory was used up
		{[]program.Exit{{Pid: 1, Code: -15, Signal: 15}, {Pid: 2, Code: -15, Signal: 15}}, 1, 15},
		{[]program.Exit{{Pid: 1, Code: -9, Signal: 9}, {Pid: 2, Code: 1}}, 1, 0},
		{[]program.Exit{{Pid: 1, Code: -11, Signal: 11}}, 1, 0},
		{[]program.Exit{{Pid: 1, Code: 137}}, 1, 0},
	} {
		a := &agent{program: ooms{killed: c.ooms}}
		a.world.ooms = 1
		var act supervise.GiveUp
		for _, e := range c.exits {
			a.procs = append(a.procs, &process{pid: e.Pid, exit: &e})
			act.Failed = append(act.Failed, e.Pid)
		}
		err := a.giveUp(act)
		lost, _ := errors.AsType[KilledError](err)
		if lost.Signal != c.want || !strings.Contains(err.Error(), "before it joined a world: ") {
			t.Errorf("%+v: %v by signal %d, want %d", c, err, lost.Signal, c.want)
		}
	}
}
