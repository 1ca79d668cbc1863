package cli

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// The last line of a command, and status, report what a program saved when it was stopped, or why
// it saved nothing.
func TestWhatAProgramSaved(t *testing.T) {
	saved := &wire.Saved{Round: 1033, Path: "/data/ck.pt", UnixMs: 1_000}
	for name, c := range map[string]struct {
		saved        *wire.Saved
		unsaved      string
		last, status string
	}{
		"saved": {saved, "", "; checkpoint of round 1,033 saved to /data/ck.pt",
			"of round 1,033, 2s ago, in /data/ck.pt"},
		"nothing": {nil, "no round was completed",
			"; nothing was saved: no round was completed", "none: no round was completed"},
		"only an earlier": {saved, "too slow",
			"; its newest checkpoint is that of round 1,033 in /data/ck.pt, as too slow",
			"of round 1,033, 2s ago, in /data/ck.pt; none when it was stopped: too slow"},
		"unmodified": {nil, "",
			"; its processes had time to save their state: elasticdl resume restarts them", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for state, words := range map[job.State]func(s *wire.JobStatus) string{
				job.Suspended: func(s *wire.JobStatus) string {
					return rested(s, time.UnixMilli(3_000))
				}, job.Stopped: stopped,
			} {
				s := &wire.JobStatus{Name: "j", Type: string(job.Run), Program: "main.py",
					State: string(state), Saved: c.saved, Unsaved: c.unsaved}
				if got, want := words(s), "job j "+strings.ToLower(string(state))+c.last; got != want {
					t.Errorf("%s: %q, want %q", state, got, want)
				}
				text := statusText(s, time.UnixMilli(3_000))
				_, row, found := strings.Cut(text, "Checkpoint:")
				row, _, _ = strings.Cut(row, "\n")
				if found != (c.status != "") || strings.TrimSpace(row) != c.status {
					t.Errorf("status: %q, want %q", row, c.status)
				}
			}
		})
	}
}

// The last line of a training that was stopped or suspended says what it continues from. It never
// says that there is no checkpoint where nobody could look.
func TestWhatATrainingSaved(t *testing.T) {
	for name, c := range map[string]struct {
		checkpoint         *wire.Checkpoint
		stopped, suspended string
	}{
		"without checkpoints": {nil, "", ": it has no checkpoint, and starts over when it is resumed"},
		"saved": {&wire.Checkpoint{Dir: "/c", Number: 3, Version: 40, Records: 1_000, UnixMs: 1_000},
			"; elasticdl resume continues from its newest checkpoint, 3, with 1,000 of the 1,200 " +
				"records that were trained on",
			" at checkpoint 3 (version 40, 1,000 records), 2s ago, in /c"},
		"none": {&wire.Checkpoint{Dir: "/c"}, "; it has no checkpoint: elasticdl resume starts over",
			": it has no checkpoint, and starts over when it is resumed"},
		"failed": {&wire.Checkpoint{Dir: "/c", Problem: "no space left on device"},
			"; it has no checkpoint, and resume starts over: no space left on device",
			": it has no checkpoint, and starts over when it is resumed"},
		"not readable": {&wire.Checkpoint{Dir: "/c", Unread: true, Problem: "reading /c fails: no route to host"},
			"; whether it has a checkpoint is not known: reading /c fails: no route to host",
			": whether it has a checkpoint is not known: reading /c fails: no route to host"},
		"not read yet": {&wire.Checkpoint{Dir: "/c", Unread: true},
			"; whether it has a checkpoint is not known: /c was not read yet",
			": whether it has a checkpoint is not known: /c was not read yet"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &wire.JobStatus{Name: "j", Type: string(job.Train), State: string(job.Stopped),
				RecordsDone: 1_200, Checkpoint: c.checkpoint}
			if got, want := stopped(s), "job j stopped"+c.stopped; got != want {
				t.Errorf("%q, want %q", got, want)
			}
			s.State = string(job.Suspended)
			if got, want := rested(s, time.UnixMilli(3_000)), "job j suspended"+c.suspended; got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// A command that is asked to end says what follows and how long it may take.
func TestStopWords(t *testing.T) {
	j := job.DefaultOf(job.Run)
	j.Name, j.GracePeriod.Duration = "j", 2*time.Minute
	want := "job j is stopped by SIGTERM: its processes have 2m0s to save what they need and to end " +
		"(--grace_period); Ctrl-C again ends it at once"
	if got := stopWords(j, errors.New("by SIGTERM")); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	j = job.Default()
	j.Name, j.CheckpointDir = "j", "/c"
	want = "job j is stopped by Ctrl-C (SIGINT): it writes a checkpoint, for which it has 30s " +
		"(--grace_period), and ends; Ctrl-C again ends it at once"
	if got := stopWords(j, errors.New("by Ctrl-C (SIGINT)")); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
