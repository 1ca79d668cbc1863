package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// scripted returns the status of an unmodified script on two workers, one of which starts.
func scripted() *wire.JobStatus {
	return &wire.JobStatus{
		Name: "train", State: "Running", Type: "run", Program: "train.py", StartedUnixMs: after(0),
		Workers: 3, Failures: 1,
		Failure: "rank 1 of worker-1 (pid 802): killed by SIGKILL; the program starts again (not counted)",
		Pods: []*wire.PodStatus{
			{Role: wire.Role_WORKER, Index: 0, State: "Running", Incarnation: 1, Pid: 700,
				StartedUnixMs: after(time.Second), Processes: []*wire.ProcessStatus{
					{Rank: 0, Local: 0, Pid: 801, Cores: 1.234, Output: `step 120 loss 0.5 \xff`,
						OutputUnixMs: after(33 * time.Second)},
					{Rank: 1, Local: 1, Pid: 812, Cores: 0, OutputUnixMs: 0},
				}},
			{Role: wire.Role_WORKER, Index: 1, State: "Running", Incarnation: 1, Pid: 701,
				StartedUnixMs: after(time.Second), Processes: []*wire.ProcessStatus{
					// its clock is ahead
					{Rank: -1, Local: 0, Pid: 820, Cores: -1, Output: "loading \x1b[2Jdata\t1\n2",
						OutputUnixMs: after(99 * time.Second)},
				}},
			{Role: wire.Role_WORKER, Index: 2, State: "Failed", Incarnation: 1, Reason: "killed (signal 9)",
				StartedUnixMs: after(time.Second), EndedUnixMs: after(9 * time.Second),
				Processes: []*wire.ProcessStatus{
					{Rank: 7, Pid: 899, Output: "of a worker that has ended"},
				}},
			{Role: wire.Role_MASTER, State: "Running", Incarnation: 1, Pid: 600, StartedUnixMs: after(0)},
		},
		History: []*wire.Incident{
			{UnixMs: after(-2 * time.Hour), Kind: "job", Text: "the job Failed: no\nspace"},
			{UnixMs: after(9 * time.Second), Kind: "pod", Text: "worker-2: killed (signal 9)"},
		},
	}
}

// The status of a script shows that its processes work, and what went wrong, also before it was
// resumed.
func TestSignsOfLifeShown(t *testing.T) {
	now := start.Add(35 * time.Second)
	golden(t, "status-program", statusText(scripted(), now))
	golden(t, "screen-program", screen(scripted(), 100, 24, now))
	there := scripted()
	there.Namespace = "training"
	if text := statusText(there, now); !strings.Contains(text, "\n0      worker-0   801   1.23   2s ago   step 120") {
		t.Errorf("on a cluster:\n%s", text)
	}
	silent := scripted()
	silent.History = nil
	// as a master or an agent of an older version reports it
	for _, p := range silent.Pods {
		p.Processes = nil
	}
	if text := statusText(silent, now); strings.Contains(text, "RANK") ||
		strings.Contains(text, "History") || lastOutput(silent, now) != "" {
		t.Errorf("nothing is known:\n%s", text)
	}
}
