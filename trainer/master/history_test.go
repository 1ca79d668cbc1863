package master

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Events of faults are incidents; what was ordered is none.
func TestHistoryOfEvents(t *testing.T) {
	now := time.UnixMilli(42)
	for _, c := range []struct {
		events []Event
		want   string // kinds and texts
	}{
		{[]Event{PodEnded{ID: worker(1), Reason: "killed (signal 9)"}}, "pod: worker-1: killed (signal 9)"},
		{[]Event{PodEnded{ID: worker(1), Reason: "exit code 1", Counted: true, GivenUp: true}},
			"pod: worker-1: exit code 1; not replaced"},
		{[]Event{PodUnwanted{ID: worker(1), Reason: "scaled down"},
			PodEnded{ID: worker(1), Reason: "killed (signal 15)"}}, ""},
		{[]Event{PodEnded{ID: worker(1), Reason: "left"}}, ""},
		{[]Event{PodReplaced{ID: worker(1), Reason: "silent"}, PodUnwanted{ID: worker(1)},
			PodEnded{ID: worker(1), Reason: "deleted"}}, "pod: worker-1: replaced: silent"},
		{[]Event{PodUnwanted{ID: worker(1)}, PodEnded{ID: worker(1)},
			PodEnded{ID: worker(1), Reason: "evicted"}}, "pod: worker-1: evicted"},
		{[]Event{QuotaReturned{"1 of 3 pods has quota", 90 * time.Second}},
			"quota: the job gave its quota back for 1m30s: 1 of 3 pods has quota"},
		{[]Event{ProgramFailed{"rank 0 of worker-0 (pid 7): exit code 1"}},
			"program: rank 0 of worker-0 (pid 7): exit code 1"},
		{[]Event{TrainingRestarted{Reason: "ps-0 was lost"}}, "model: the training started over: ps-0 was lost"},
		{[]Event{RolledBack{Checkpoint: 3, Reason: "ps-0 was lost"}},
			"model: the training returned to checkpoint 3: ps-0 was lost"},
		{[]Event{MasterReplaced{Incarnation: 2}}, "master: the master was lost, and came back as its incarnation 2"},
		{[]Event{MasterReplaced{Incarnation: 2, Planned: true}}, ""},
		{[]Event{Evaluated{}, Ended{Err: errors.New("x")}, EpochFinished{}}, ""},
	} {
		var h history
		for _, e := range c.events {
			h.hear(e, now)
		}
		var got []string
		for _, i := range h.describe() {
			got = append(got, i.Kind+": "+i.Text)
			if i.UnixMs != 42 {
				t.Errorf("%v: at %d", i, i.UnixMs)
			}
		}
		if text := strings.Join(got, "|"); text != c.want {
			t.Errorf("%v: %q, want %q", c.events, text, c.want)
		}
	}
}

// A history is bounded, whatever comes, and one kind drives out no other.
func TestHistoryIsBounded(t *testing.T) {
	h := newHistory([]*wire.Incident{{UnixMs: 1, Kind: IncidentJob, Text: "the job Failed: " +
		strings.Repeat("损", 1000)}})
	h.hear(ProgramFailed{"first \x1b[2J\xff"}, time.UnixMilli(2))
	for i := range 1000 {
		h.hear(PodEnded{ID: worker(i), Reason: "preempted"}, time.UnixMilli(int64(3+i)))
	}
	all := h.describe()
	if len(all) != keptIncidents || all[0].Kind != IncidentJob || all[1].Text != `first \x1b[2J` {
		t.Fatalf("%d incidents, the first: %v, %v", len(all), all[0], all[1])
	}
	if last := all[len(all)-1]; last.Text != "worker-999: preempted" {
		t.Errorf("the last: %v", last)
	}
	for i, a := range all {
		if len(a.Text) > keptIncident || !utf8.ValidString(a.Text) || i > 0 && a.UnixMs < all[i-1].UnixMs {
			t.Errorf("%d: %v", i, a)
		}
	}
	for i := range 100 { // also if the kinds are as frequent
		h.add(incident{int64(2000 + i), fmt.Sprint(i % 7), "x"})
	}
	if len(h.all) != keptIncidents || h.all[len(h.all)-1].UnixMs != 2099 {
		t.Errorf("%d incidents, the last: %v", len(h.all), h.all[len(h.all)-1])
	}
	var again history
	again.restore(h.save())
	if fmt.Sprint(again.describe()) != fmt.Sprint(h.describe()) {
		t.Errorf("restored: %v, want %v", again.describe(), h.describe())
	}
}

// Incidents before a resume are in the job's status, and stay there when its master is replaced.
func TestHistoryOfAResumedJob(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := reign(t, func(c *Config) {
			c.History = []*wire.Incident{{UnixMs: 7, Kind: IncidentJob, Text: "the job Failed: no data"}}
		})
		r.join()
		r.pods.end(worker(0), pod.Exit{Code: 1, Reason: "no such file"})
		time.Sleep(2 * time.Second)
		want := []string{"the job Failed: no data", "worker-0: exit code 1: no such file"}
		texts := func() (all []string) {
			for _, i := range r.look().History {
				all = append(all, i.Text)
			}
			return all
		}
		if got := texts(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("history %q, want %q", got, want)
		}
		r.ends(Leave, ErrLeft)
		r.follow()
		if got := texts(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("after a master: history %q, want %q", got, want)
		}
	})
}
