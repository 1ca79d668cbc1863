package master

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// The time of an output is by the master's clock, whatever that of the worker's node, and stays the
// same as long as the output does.
func TestProcessesOfAWorker(t *testing.T) {
	now := time.UnixMilli(100_000)
	report := func(output string, quiet int64) []*wire.ProcessReport {
		return []*wire.ProcessReport{{Rank: 3, Local: 1, Pid: 42, Cores: 0.5, Output: output, QuietMs: quiet}}
	}
	var all []*wire.ProcessStatus
	for i, c := range []struct {
		after  time.Duration
		report []*wire.ProcessReport
		want   int64
		output string
	}{
		{0, report("", -1), 0, ""},
		{time.Second, report("step 1", 400), 100_600, "step 1"},
		// it took 50 ms longer to arrive
		{2 * time.Second, report("step 1", 1450), 100_600, "step 1"},
		{3 * time.Second, report("step 1", 100), 102_900, "step 1"}, // it was written again
		{4 * time.Second, report("step 2", 1000), 103_000, "step 2"},
		{5 * time.Second, report("a\nb\x1b[2J"+strings.Repeat("x", 1000), 0), 105_000, "a\nb\\x1b[2J" +
			strings.Repeat("x", mostOutput-10) + "…"},
		{6 * time.Second, nil, 0, ""}, // of an agent of an older version
	} {
		all = processesOf(all, c.report, now.Add(c.after))
		if c.report == nil {
			if len(all) != 0 {
				t.Errorf("%d: %v", i, all)
			}
			continue
		}
		want := &wire.ProcessStatus{Rank: 3, Local: 1, Pid: 42, Cores: 0.5, Output: c.output, OutputUnixMs: c.want}
		if len(all) != 1 || fmt.Sprint(all[0]) != fmt.Sprint(want) {
			t.Errorf("%d: %v, want %v", i, all, want)
		}
	}
	many := make([]*wire.ProcessReport, 10_000)
	for i := range many {
		many[i] = &wire.ProcessReport{Pid: int32(i)}
	}
	if n := len(processesOf(nil, many, now)); n != mostProcesses {
		t.Errorf("%d processes are kept", n)
	}
}

// The status shows the processes of the workers that run, and of no worker that has ended. Those of
// an agent of an older version, which reports none, are not known.
func TestStatusShowsProcesses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, _ := startProgram(t, 1)
		beat := func(index int32, all ...*wire.ProcessReport) {
			w.beat(&wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: index, Generation: 1, Processes: all})
		}
		beat(0, &wire.ProcessReport{Pid: 7, Cores: -1, QuietMs: -1},
			&wire.ProcessReport{Rank: 1, Local: 1, Pid: 8, Cores: 1.5, Output: "step 3", QuietMs: 2000})
		beat(1)
		shown := func() string {
			var all []string
			for _, p := range w.look().Pods {
				for _, r := range p.Processes {
					all = append(all, fmt.Sprintf("worker-%d rank %d pid %d cores %v %q %v", p.Index,
						r.Rank, r.Pid, r.Cores, r.Output, r.OutputUnixMs > 0))
				}
			}
			return strings.Join(all, ", ")
		}
		if got, want := shown(),
			`worker-0 rank 0 pid 7 cores -1 "" false, worker-0 rank 1 pid 8 cores 1.5 "step 3" true`; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		w.kill(worker(0))
		time.Sleep(time.Second)
		if got := shown(); got != "" {
			t.Errorf("of a worker that has ended: %s", got)
		}
	})
}
