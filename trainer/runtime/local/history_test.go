package local

import (
	"errors"
	"os"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// The masters of a resumed job know its incidents, after any number of resumes. Those of another
// job of its name do not.
func TestHistoryOfAResumedJob(t *testing.T) {
	d := resting(t)
	ends := func(s *wire.JobStatus) []*wire.Incident {
		t.Helper()
		s.Name = d.name()
		if err := d.store(s); err != nil {
			t.Fatal(err)
		}
		if _, err := d.reopen(nil); err != nil {
			t.Fatal(err)
		}
		all, err := d.readHistory()
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	is := func(got []*wire.Incident, want ...string) {
		t.Helper()
		var texts []string
		for _, i := range got {
			texts = append(texts, i.Text)
		}
		if len(texts) != len(want) {
			t.Fatalf("%q, want %q", texts, want)
		}
		for i := range want {
			if texts[i] != want[i] {
				t.Errorf("%q, want %q", texts, want)
			}
		}
	}
	if all, err := d.readHistory(); err != nil || len(all) > 0 {
		t.Errorf("before it was resumed: %v, %v", all, err)
	}
	failed := &wire.JobStatus{State: string(job.Failed), Reason: "no data", EndedUnixMs: 9,
		History: []*wire.Incident{{UnixMs: 7, Text: "worker-1: evicted"}}}
	first := ends(failed)
	is(first, "worker-1: evicted", "the job Failed: no data")
	is(ends(&wire.JobStatus{State: string(job.Suspended), History: first}), "worker-1: evicted",
		"the job Failed: no data")
	is(ends(&wire.JobStatus{State: string(job.Stopped), History: first,
		Reason: "stopped: by the user"}), "worker-1: evicted", "the job Failed: no data",
		"the job Stopped: stopped: by the user")
	// it was killed
	is(ends(&wire.JobStatus{State: "Running"}), "the job Failed: launcher died; continue with: elasticdl resume rests")

	if err := os.WriteFile(d.path(historyFile), []byte("{"), private); err != nil {
		t.Fatal(err)
	}
	if _, err := d.readHistory(); err == nil {
		t.Error("a damaged history is read")
	}
	if err := errors.Join(d.clear()); err != nil {
		t.Fatal(err)
	}
	if all, err := d.readHistory(); err != nil || len(all) > 0 {
		t.Errorf("of another job: %v, %v", all, err)
	}
}
