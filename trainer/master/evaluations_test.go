package master

import (
	"fmt"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// A record has the newest results and the number of all. A model generation that begins with a
// checkpoint has the results of the checkpoint, any other has none.
func TestEvaluationsAreSaved(t *testing.T) {
	m := newShell(Config{Job: job.Default(), Log: config(t).Log, Self: firstMaster()}, nil, nil)
	e := m.evaluations
	e.plan()
	for n := range int64(keptResults + 1) {
		e.newest = append(e.newest, &wire.Evaluation{Version: n + 1})
	}
	e.number = 300
	var r record
	e.save(&r)
	next := &evaluations{shared: m.shared, work: m.work}
	next.restore(&r)
	if err := next.restorePlan(&r); err != nil {
		t.Fatal(err)
	}
	if n := len(next.newest); n != keptResults || next.newest[0].Version != 2 || next.number != 300 {
		t.Errorf("%d of %d results, from version %d", n, next.number, next.newest[0].Version)
	}
	commit := &checkpoint.Commit{Evaluated: 7, Evaluations: []checkpoint.Evaluation{{Version: 9}}}
	for want, base := range map[string]kept{
		"0 of 0": {},
		"1 of 7": {commit: commit},
	} {
		next.restart(base)
		if got := fmt.Sprintf("%d of %d", len(next.newest), next.number); got != want {
			t.Errorf("restarted with %s results, want %s", got, want)
		}
	}
	other := kept{commit: commit}
	other.Fresh = true // of another job
	if next.restart(other); next.number != 0 {
		t.Errorf("%d results of another job", next.number)
	}
}
