package agent

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/supervise"
	"github.com/elasticdl/elasticdl/trainer/run/program"
)

// ooms is a program whose cgroup has killed some processes.
type ooms struct {
	Program
	killed int
}

func (o ooms) OOMKills() int { return o.killed }

// The supervisor gets all that its decision about the end of a process depends on.
func TestTheEndOfAProcess(t *testing.T) {
	a := &agent{program: ooms{killed: 2}}
	at := time.Unix(1700000009, 5)
	p := &process{pid: 7}
	events, err := a.translate(exited{p, program.Exit{Pid: 7, Code: -9, Signal: 9, At: at, Forked: true,
		Failure: &program.Failure{Message: "it broke", Time: time.Unix(1700000001, 0)}}})
	want := []supervise.Event{supervise.Exited{Pid: 7, Code: -9, Signal: 9, Forked: true, At: at, Second: 1700000001,
		Message: "it broke", OOMKills: 2}}
	if err != nil || !reflect.DeepEqual(events, want) {
		t.Errorf("%+v, %v; want %+v", events, err, want)
	}
	if p.exit == nil {
		t.Error("the process still counts as running")
	}
}

// A worker that counts as lost ends with the signal that has ended its processes.
func TestGiveUp(t *testing.T) {
	for _, signal := range []int{0, 9} {
		err := giveUp(supervise.GiveUp{Why: "it broke", Signal: signal})
		lost, is := errors.AsType[KilledError](err)
		if lost.Signal != signal || is != (signal > 0) || err.Error() != "it broke" {
			t.Errorf("%v by signal %d, want %d", err, lost.Signal, signal)
		}
	}
}
