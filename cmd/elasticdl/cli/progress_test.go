package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/audit"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Of records in shards of unknown length no total, percentage or remaining time is shown.
func TestProgressWithoutTotal(t *testing.T) {
	now := time.UnixMilli(100_000)
	s := &wire.JobStatus{Name: "reads", State: "Running", Type: "run", Program: "python train.py", Epoch: 1, Epochs: 3,
		RecordsDone: 12_345, RecordsPerSecond: 67.8, StartedUnixMs: 1000}
	if got := strings.Join(progress(s), ", "); got != "12,345 records, 67 records/s" {
		t.Errorf("progress %q", got)
	}
	shown := screen(s, 100, 30, now) + summary(s, "logs") + progressLine(s, now)
	for _, want := range []string{"epoch 1 of 3", "12,345 records", "python train.py"} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not in\n%s", want, shown)
		}
	}
	for _, invented := range []string{"%", "left", "of 0", "/0", "░"} {
		if strings.Contains(shown, invented) {
			t.Errorf("%q is in\n%s", invented, shown)
		}
	}
	a := audited{Job: "reads", State: "Succeeded", Report: audit.Report{Verdict: audit.Proved, Shards: 9, Finished: 3,
		Epochs: 3, Applied: 300}}
	if got := a.text(); !strings.Contains(got, "PROVED: each record of 9 shards, from the first to the last, was "+
		"applied exactly once in each of 3 epochs") || !strings.Contains(got, "300 records are in the model") {
		t.Errorf("audit:\n%s", got)
	}
	a.State, a.Finished, a.Open = "Running", 1, 40
	if got := a.text(); !strings.Contains(got, "epoch 2 has 40 records\n") {
		t.Errorf("audit:\n%s", got)
	}
}
