package master

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

// Events of faults are incidents; what was ordered is none.
func TestHistoryOfEvents(t *testing.T) {
	for _, c := range []struct {
		events []Event
		want   string // kinds and texts
	}{
		{[]Event{PodEnded{ID: worker(1), Reason: "killed (signal 9)"}}, "PodLost: worker-1: killed (signal 9)"},
		{[]Event{PodEnded{ID: worker(1), Reason: "exit code 1", Counted: true, GivenUp: true}},
			"PodFailed: worker-1: exit code 1; it is not replaced: --relaunch_on_worker_failure allows no more"},
		{[]Event{PodUnwanted{ID: worker(1), Reason: "scaled down"},
			PodEnded{ID: worker(1), Reason: "killed (signal 15)"}}, ""},
		{[]Event{PodEnded{ID: worker(1), Reason: "left", Cause: "left"}}, ""},
		{[]Event{PodReplaced{ID: worker(1), Reason: "silent"}, PodUnwanted{ID: worker(1)},
			PodEnded{ID: worker(1), Reason: "deleted"}}, "PodReplaced: worker-1: replaced: silent"},
		{[]Event{PodUnwanted{ID: worker(1)}, PodEnded{ID: worker(1)},
			PodEnded{ID: worker(1), Reason: "evicted"}}, "PodLost: worker-1: evicted"},
		{[]Event{QuotaReturned{"1 of 3 pods has quota", 90 * time.Second}},
			"QuotaReturned: the job gave its quota back for 1m30s: 1 of 3 pods has quota"},
		{[]Event{ProgramFailed{"rank 0 of worker-0 (pid 7): exit code 1"}},
			"ProgramFailed: rank 0 of worker-0 (pid 7): exit code 1"},
		{[]Event{TrainingRestarted{Reason: "ps-0 was lost"}},
			"TrainingStartedOver: the training started over from the initial values: " +
				"ps-0 was lost; 0 records were trained on till then"},
		{[]Event{RolledBack{Checkpoint: 3, Reason: "ps-0 was lost"}},
			"TrainingRolledBack: the training returned to checkpoint 3 at version 0, with 0 of 0 records: " +
				"ps-0 was lost"},
		{[]Event{MasterReplaced{Incarnation: 2}},
			"MasterLost: the master was lost, and came back as its incarnation 2"},
		{[]Event{MasterReplaced{Incarnation: 2, Planned: true}}, ""},
		{[]Event{Evaluated{}, EpochFinished{}}, ""},
		{[]Event{Ended{State: "Failed", Err: errors.New("x")}}, ""},
		{[]Event{Ended{State: "Failed", Err: errors.New("x")}, Started{Resumed: true}},
			"TrainingFailed: the job Failed: x"},
	} {
		var es events
		for _, e := range c.events {
			es.happen(e)
		}
		var got []string
		for _, i := range es.describe() {
			got = append(got, i.Kind+": "+i.Text)
		}
		if text := strings.Join(got, "|"); text != c.want {
			t.Errorf("%v: %q, want %q", c.events, text, c.want)
		}
	}
}

// Incidents before a resume are in the job's status, and stay there when its master is replaced.
func TestHistoryOfAResumedJob(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := reign(t, func(c *Config) {
			c.Journal.Entries = []journal.Entry{{N: 7, Kind: journal.TrainingFailed, Text: "no data"}}
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

// An end that was ordered is no loss for the next master either.
func TestOrderedEndsOutliveTheMaster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := reign(t, nil)
		r.join()
		r.task(0)
		r.pods.beStubborn()
		time.Sleep(5*time.Minute + 10*time.Second) // it makes no progress
		former, err := readRecord(r.memory.read())
		if err != nil {
			t.Fatal(err)
		}
		next := newEvents(&Config{}, former)
		for want, id := range map[journal.Kind]pod.ID{journal.PodEnded: worker(0), journal.PodLost: worker(1)} {
			next.happen(PodEnded{ID: id, Reason: "deleted"})
			if e, _ := next.journal.Newest(func(journal.Entry) bool { return true }); e.Kind != want {
				t.Errorf("the end of %v: %+v, want %s", id, e, want)
			}
		}
	})
}
