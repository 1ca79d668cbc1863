package local

import (
	"os"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// A launcher that is killed after it was asked to stop its job, as by the interruption of a
// notebook's cell, leaves a job that was stopped, for the reason that it had written down. Without
// that the job has failed; one that had ended, or rests, stays as it was.
func TestLauncherIsKilledInAStop(t *testing.T) {
	for name, c := range map[string]struct {
		before job.State
		asked  bool
		state  job.State
		reason string
	}{
		"asked": {job.Running, true, job.Stopped,
			"stopped: by Ctrl-C (SIGINT); its command was killed before all had ended"},
		"at the start": {job.Pending, true, job.Stopped,
			"stopped: by Ctrl-C (SIGINT); its command was killed before all had ended"},
		"not asked":      {job.Running, false, job.Failed, "launcher died"},
		"it had ended":   {job.Succeeded, true, job.Succeeded, ""},
		"it was at rest": {job.Suspended, true, job.Suspended, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := resting(t)
			if err := d.store(&wire.JobStatus{Name: "rests", State: string(c.before)}); err != nil {
				t.Fatal(err)
			}
			if c.asked {
				if err := d.writeJSON(stopFile, stopRecord{Reason: "by Ctrl-C (SIGINT)"}); err != nil {
					t.Fatal(err)
				}
			}
			s, err := Status(t.Context(), "rests")
			if err != nil || s.State != string(c.state) || !strings.HasPrefix(s.Reason, c.reason) {
				t.Errorf("%v, %v", s, err)
			}
			// what was asked of one start is not asked of the next
			if c.state != job.Succeeded {
				if _, err := d.reopen(func(*job.Job) error { return nil }); err != nil {
					t.Errorf("resumed: %v", err)
				}
				if _, err := os.Stat(d.path(stopFile)); err == nil {
					t.Error("its next start would count as stopped")
				}
			}
		})
	}
}
