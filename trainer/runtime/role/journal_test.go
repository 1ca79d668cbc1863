package role

import (
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/curve"
	"github.com/elasticdl/elasticdl/trainer/elastic/goodput"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// A resumed job has the account of the job before. Time after the end does not count, also if no
// master could write the end.
func TestAccountOfAResumedJob(t *testing.T) {
	before := journal.Snapshot{Goodput: goodput.Snapshot{At: 7000, Asked: 2, Wanted: 5000,
		Lost: map[string]int64{"queue": 300}, Workers: [][]int64{{1}}}}
	text, err := EncodePast(Concluded(before, &wire.JobStatus{State: "Failed", EndedUnixMs: 9000}), curve.Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := JournalOf(nil, text)
	if g := s.Goodput; err != nil || g.At != 0 || g.Wanted != 5000 || g.Lost["queue"] != 300 || len(g.Workers) > 0 {
		t.Errorf("%+v, %v", g, err)
	}
	s = Concluded(before, &wire.JobStatus{State: "Suspended"})
	if g := s.Goodput; g.At != 7000 || g.Wanted != 5000 {
		t.Errorf("of a suspended job: %+v", g)
	}
}
