package local

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// The masters of a resumed job know what happened before, after any number of resumes. Those of
// another job of its name do not.
func TestJournalOfAResumedJob(t *testing.T) {
	d := resting(t)
	// ends resumes the job after masters that have added entries to its journal
	ends := func(s *wire.JobStatus, added ...journal.Entry) []string {
		t.Helper()
		s.Name = d.name()
		past, _, err := d.readPast()
		if err != nil {
			t.Fatal(err)
		}
		if err := d.store(s); err != nil {
			t.Fatal(err)
		}
		if len(added) > 0 {
			j := journal.Restore(past)
			for _, e := range added {
				j.Add(e, time.UnixMilli(7))
			}
			text, err := json.Marshal(map[string]any{"journal": j.Snapshot()})
			if err := errors.Join(err, d.write(recordFile, text)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := d.reopen(nil); err != nil {
			t.Fatal(err)
		}
		now, err := d.journal()
		if err != nil {
			t.Fatal(err)
		}
		var texts []string
		for _, e := range now.Entries {
			texts = append(texts, e.Words())
		}
		return texts
	}
	is := func(got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if all, _, err := d.readPast(); err != nil || len(all.Entries) > 0 {
		t.Errorf("before it was resumed: %v, %v", all, err)
	}
	lost, over := "worker-1: evicted", "the job Failed: no data"
	is(ends(&wire.JobStatus{State: string(job.Failed), Reason: "no data", EndedUnixMs: 9},
		journal.Entry{Kind: journal.PodLost, Pod: "worker-1", Text: "evicted"}), lost, over)
	is(ends(&wire.JobStatus{State: string(job.Suspended)}), lost, over)
	// its master has written the end
	stopped := "the job Stopped: stopped: by the user"
	is(ends(&wire.JobStatus{State: string(job.Stopped), Reason: "stopped: by the user"},
		journal.Entry{Kind: journal.TrainingStopped, Text: "stopped: by the user"}), lost, over, stopped)
	// it was killed
	died := "the job Failed: launcher died; continue with: elasticdl resume rests"
	is(ends(&wire.JobStatus{State: "Running"}, journal.Entry{Kind: journal.JobContinued, Text: "The job is resumed"}),
		lost, over, stopped, "The job is resumed", died)

	if err := os.WriteFile(d.path(journalFile), []byte("{"), private); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.readPast(); err == nil {
		t.Error("a damaged journal is read")
	}
	if err := d.clear(); err != nil {
		t.Fatal(err)
	}
	if all, err := d.journal(); err != nil || len(all.Entries) > 0 {
		t.Errorf("of another job: %v, %v", all, err)
	}
}
