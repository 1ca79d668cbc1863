package cli

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// The last line of a command, and status, say what a program saved when it was stopped, or that nothing was and why.
func TestWhatAProgramSaved(t *testing.T) {
	saved := &wire.Saved{Round: 1033, Path: "/data/ck.pt", UnixMs: 1_000}
	for name, c := range map[string]struct {
		saved        *wire.Saved
		unsaved      string
		last, status string
	}{
		"saved":           {saved, "", "; checkpoint of round 1,033 saved to /data/ck.pt", "of round 1,033, 2s ago, in /data/ck.pt"},
		"nothing":         {nil, "no round was completed", "; nothing was saved: no round was completed", "none: no round was completed"},
		"only an earlier": {saved, "too slow", "; its newest checkpoint is that of round 1,033 in /data/ck.pt, as too slow", "of round 1,033, 2s ago, in /data/ck.pt; none when it was stopped: too slow"},
		"unmodified":      {nil, "", "; its processes had the time to save what they need: elasticdl resume starts them again", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for state, words := range map[job.State]func(s *wire.JobStatus) string{
				job.Suspended: func(s *wire.JobStatus) string { return rested(s, time.UnixMilli(3_000)) }, job.Stopped: stopped,
			} {
				s := &wire.JobStatus{Name: "j", Type: string(job.Run), Program: "main.py", State: string(state), Saved: c.saved, Unsaved: c.unsaved}
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

// A command that is asked to end says what follows and how long it may take.
func TestStopWords(t *testing.T) {
	j := job.DefaultOf(job.Run)
	j.Name, j.GracePeriod.Duration = "j", 2*time.Minute
	want := "job j is stopped by SIGTERM: its processes have 2m0s to save what they need and to end (--grace_period); Ctrl-C again ends it at once"
	if got := stopWords(j, errors.New("by SIGTERM")); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	j = job.Default()
	j.Name, j.CheckpointDir = "j", "/c"
	want = "job j is stopped by Ctrl-C (SIGINT): it writes a checkpoint, for which it has 30s (--grace_period), and ends; Ctrl-C again ends it at once"
	if got := stopWords(j, errors.New("by Ctrl-C (SIGINT)")); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
