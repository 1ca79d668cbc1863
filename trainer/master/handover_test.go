package master

import (
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/custody"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/lifecycle"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// Leases are withheld until every worker has reported those that it holds, or for some time, which
// begins when it is known what is in the model.
func TestAnnouncements(t *testing.T) {
	now := time.Now()
	var a announcements
	if a.pending() || a.withheld(now) || a.heard(0) {
		t.Error("a first master waits for reports")
	}
	a.expect([]int{0, 1})
	if !a.pending() || a.withheld(now) {
		t.Error("the wait has not begun")
	}
	a.by = now.Add(time.Second)
	if !a.withheld(now) || a.withheld(a.by) || !a.pending() {
		t.Error("leases are not withheld for a second")
	}
	if a.heard(0) || a.heard(0, 7) || !a.withheld(now) {
		t.Error("worker-1 has not reported")
	}
	if !a.heard(1) || a.pending() || a.withheld(now) || a.heard(1) {
		t.Error("all have reported, which is reported once")
	}
	a.expect(nil)
	if !a.pending() || !a.heard() {
		t.Error("no worker lives: all have reported")
	}
}

// A master skips the numbers of as many masters as may have written no record. One that wrote its
// last record has given out none since.
func TestHandoverIsBehind(t *testing.T) {
	for _, c := range []struct {
		is, by int
		last   bool
		want   int64
	}{{2, 1, false, 1}, {5, 1, false, 4}, {2, 2, false, 1}, {5, 1, true, 0}} {
		r := &record{By: c.by}
		r.Last = c.last
		h := &handover{record: r, shared: shared{Config: &Config{
			Self: rpc.NewSelf(identity.Header{Incarnation: c.is}, nil)}}}
		if got := h.behind(); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// A generation is untouched if the last record of a master says that no task was granted, and it
// began with the checkpoint that is the newest now.
func TestHandoverIsUntouched(t *testing.T) {
	now := time.Now()
	stage := lifecycle.New(lifecycle.Policy{}, now)
	stage.Plan(now)
	h := &handover{record: &record{Base: custody.Base{Number: 2}}, shared: shared{stage: stage},
		checkpoints: &checkpoints{kept: []kept{{Base: custody.Base{Number: 2}}}}}
	if h.record.Last = true; !h.untouched() {
		t.Error("it began with checkpoint 2")
	}
	if h.record.Last = false; h.untouched() {
		t.Error("the record may be older than the first lease")
	}
	h.record.Last = true
	if h.record.Base.Number = 1; h.untouched() {
		t.Error("it began with an older checkpoint")
	}
	h.record.Base.Number = 2
	if stage.Grant(); h.untouched() {
		t.Error("a task was granted")
	}
}
