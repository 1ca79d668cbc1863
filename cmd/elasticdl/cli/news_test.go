package cli

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// script returns the status of a job of a program whose two workers run.
func script() *wire.JobStatus {
	return &wire.JobStatus{
		Name: "main", State: "Running", Type: "run", Program: "main.py", Strategy: "AllreduceStrategy",
		World: 1, WorldSize: 2, Workers: 2,
		Pods: []*wire.PodStatus{
			{Role: wire.Role_WORKER, Index: 0, State: "Running", Incarnation: 1, Pid: 7, StartedUnixMs: after(0)},
			{Role: wire.Role_WORKER, Index: 1, State: "Running", Incarnation: 1, Pid: 8, StartedUnixMs: after(0)},
		},
	}
}

// The messages between a program's output lines report each loss and its consequence once, and
// nothing about normal starts and ends.
func TestProgramNews(t *testing.T) {
	const words = "rank 1 of worker-1 (pid 8): killed by SIGKILL; " +
		"the others continue, it is started again (not counted)"
	change := func(f func(*wire.JobStatus)) *wire.JobStatus {
		s := script()
		f(s)
		return s
	}
	starting := change(func(s *wire.JobStatus) { s.State, s.World, s.WorldSize = "Pending", 0, 0 })
	full := change(func(s *wire.JobStatus) { s.Problems = []string{"no space left on /state"} })
	done := change(func(s *wire.JobStatus) {
		s.State, s.WorldSize, s.EndedUnixMs = "Succeeded", 0, after(time.Minute)
		for _, p := range s.Pods {
			p.State, p.EndedUnixMs = "Succeeded", s.EndedUnixMs
		}
	})
	killed := change(func(s *wire.JobStatus) { s.Failures, s.Failure, s.World = 1, words, 2 })
	gone := change(func(s *wire.JobStatus) {
		s.Pods[0].State, s.Pods[0].Reason, s.Pods[0].EndedUnixMs = "Failed", "killed (signal 9)", after(time.Second)
		s.Pods = append(s.Pods, &wire.PodStatus{Role: wire.Role_WORKER, Index: 2, State: "Pending"})
	})
	followed := proto.Clone(gone).(*wire.JobStatus)
	followed.World = 2
	followed.Pods[2].State, followed.Pods[2].Pid, followed.Pods[2].StartedUnixMs = "Running", 9, after(2*time.Second)
	broken := proto.Clone(gone).(*wire.JobStatus)
	broken.State, broken.World = "Pending", 0
	for name, c := range map[string]struct {
		before, after *wire.JobStatus
		want          []string
	}{
		"a start":              {nil, starting, nil},
		"it runs":              {starting, script(), nil},
		"nothing":              {script(), script(), nil},
		"its end":              {script(), done, nil},
		"a full disk":          {script(), full, []string{"problem: no space left on /state"}},
		"which is still full":  {full, full, nil},
		"and then is not":      {full, script(), []string{"no longer: no space left on /state"}},
		"an end with it":       {full, done, nil},
		"a process is killed":  {script(), killed, []string{"a process failed: " + words, "World 2: 2 workers"}},
		"and that is over":     {killed, killed, nil},
		"a worker is killed":   {script(), gone, []string{"worker-0 Failed: killed (signal 9)", "worker-2 Pending"}},
		"and is replaced":      {gone, followed, []string{"worker-2 Running, process 9", "World 2: 2 workers"}},
		"one fails on arrival": {starting, broken, []string{"worker-0 Failed: killed (signal 9)"}},
	} {
		if got := programNews(c.before, c.after); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
