package page

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/curve"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// at is the time of the fake jobs.
var at = time.Date(2026, 7, 3, 14, 30, 0, 0, time.UTC)

// errMissing is the error of a job that is not there.
var errMissing = errors.New("job not found")

// fakeSource has given jobs.
type fakeSource struct {
	views map[string]role.View
	text  string // of logs
	asks  int    // for a view
	taken int    // stacks
	err   error
}

func (s *fakeSource) Jobs(context.Context) (all []*wire.JobStatus, err error) {
	for _, v := range s.views {
		all = append(all, v.Status)
	}
	return all, s.err
}

func (s *fakeSource) View(_ context.Context, job string) (role.View, string, error) {
	s.asks++
	v, ok := s.views[job]
	if !ok {
		return v, "", errMissing
	}
	return v, "", s.err
}

func (s *fakeSource) Log(_ context.Context, job, pod string, lines int64, w io.Writer) error {
	if pod == "nobody" {
		return errMissing
	}
	fmt.Fprintf(w, "%s %s %d\n", job, pod, lines)
	_, err := io.WriteString(w, s.text)
	return err
}

func (s *fakeSource) Stacks(context.Context, string) (string, error) {
	s.taken++
	return "7 ranks: all_reduce at train.py:41; rank 3: sleep at data.py:12", nil
}

// past makes a journal whose entries happened some time before at.
type past struct{ journal.Journal }

func (p *past) add(ago time.Duration, e journal.Entry) { p.Add(e, at.Add(-ago)) }

// trouble returns a job that runs, and to which all sorts of things have happened.
func trouble() role.View {
	s := &wire.JobStatus{Name: "llm-finetune", State: "Running", Type: "run", StartedUnixMs: ms(42 * time.Minute),
		Epoch:  3,
		Epochs: 5, RecordsDone: 268_800, RecordsTotal: 500_000, RecordsPerSecond: 1042, Loss: 0.4183, Workers: 4,
		World:     7,
		WorldSize: 3, Rollbacks: 1, StuckSinceUnixMs: ms(64 * time.Second),
		Stuck: "rank 3 differs: sleep at data.py:12; ranks 0-2: all_reduce at train.py:41",
		Problems: []string{"no space left on /mnt/checkpoints (12 KB of 200 GB are free); " +
			"checkpoints are tried again"},
		Checkpoint: &wire.Checkpoint{Dir: "/mnt/checkpoints/llm", Number: 12, Version: 8400, Records: 262_000,
			UnixMs: ms(94 * time.Second), Problem: "write part 3: no space left on device"},
		Conditions: []*wire.Condition{
			{Type: "Admitted", Status: "True", Reason: "QuotaReserved", LastTransitionUnixMs: ms(42 * time.Minute)},
			{Type: "Running", Status: "True", Reason: "Training", Message: "3 of 4 workers",
				LastTransitionUnixMs: ms(11 * time.Minute)},
			{Type: "Degraded", Status: "True", Reason: "WorkersMissing", Message: "3 of 4 workers run",
				LastTransitionUnixMs: ms(21 * time.Second)},
			{Type: "Checkpointed", Status: "True", Reason: "CheckpointFailed", Message: "no space left",
				LastTransitionUnixMs: ms(38 * time.Minute)},
			{Type: "Complete", Status: "False", Reason: "NotSucceeded"},
		}}
	var j past
	j.add(42*time.Minute, journal.Entry{Kind: journal.JobStarted, Text: "The job begins"})
	starts := map[int]time.Duration{0: 41 * time.Minute, 1: 41 * time.Minute, 2: 41 * time.Minute,
		3: 41 * time.Minute, 4: 26 * time.Minute, 5: 11 * time.Minute}
	for i := range 6 {
		j.add(starts[i], journal.Entry{Kind: journal.PodJoined, Pod: fmt.Sprint("worker-", i), Incarnation: 1,
			Text: "joined"})
	}
	j.add(40*time.Minute, journal.Entry{Kind: journal.WorldFormed, Generation: 1, Size: 4,
		Text: "world 1 formed: 4 workers"})
	for i := range 12 {
		j.add(time.Duration(38-3*i)*time.Minute, journal.Entry{Kind: journal.CheckpointWritten, Number: int64(i + 1),
			Text: fmt.Sprintf("checkpoint %d written at version %d", i+1, 700*(i+1))})
	}
	j.add(27*time.Minute, journal.Entry{Kind: journal.PodLost, Pod: "worker-1", Incarnation: 1,
		Cause: "preempted", Text: "preempted: node gpu-7 is taken back"})
	j.add(25*time.Minute, journal.Entry{Kind: journal.Recovered, Seconds: 118,
		Text: "the training continues 1m58s after the loss"})
	j.add(13*time.Minute, journal.Entry{Kind: journal.PodFailed, Pod: "worker-2", Incarnation: 1,
		Cause: "out of memory", Text: "out of memory (128 GiB)"})
	j.add(11*time.Minute, journal.Entry{Kind: journal.TrainingRolledBack, Number: 11,
		Text: "the training returned to checkpoint 11 at version 7,700, with 255,000 of 261,000 records: " +
			"all copies were lost"})
	j.add(10*time.Minute, journal.Entry{Kind: journal.Recovered, Seconds: 96,
		Text: "the training continues 1m36s after the loss"})
	j.add(64*time.Second, journal.Entry{Kind: journal.CheckpointFailed, Number: 13,
		Text: "checkpoint 13 was given up, and is tried again: write part 3: no space left on device"})
	j.add(21*time.Second, journal.Entry{Kind: journal.PodLost, Pod: "worker-0", Incarnation: 1, Cause: "killed",
		Text: "killed (signal 9)"})
	j.add(4*time.Second, journal.Entry{Kind: journal.Stuck, Ranks: []int{3}, Seconds: 60,
		Text: "no progress for 1m: rank 3 differs: sleep at data.py:12; ranks 0-2: all_reduce at train.py:41"})
	for i, state := range []string{"Deleted", "Failed", "Failed", "Running", "Running", "Running", "Pending"} {
		p := &wire.PodStatus{Role: wire.Role_WORKER, Index: int32(i), State: state, Incarnation: 1,
			StartedUnixMs: ms(starts[i] + 20*time.Second), Node: fmt.Sprint("gpu-", i%5)}
		switch state {
		case "Running":
			p.Processes = []*wire.ProcessStatus{{Rank: int32(i), Cores: 3.7,
				Output: fmt.Sprintf("step 8400 loss %.4f", 0.41+float64(i)/100), OutputUnixMs: ms(2 * time.Second)}}
		case "Pending":
			p.StartedUnixMs, p.Reason, p.Node = ms(19*time.Second),
				"Unschedulable: 0/12 nodes are available: 12 Insufficient nvidia.com/gpu", ""
		}
		s.Pods = append(s.Pods, p)
	}
	for i, end := range []struct {
		ago time.Duration
		why string
	}{{21 * time.Second, "killed (signal 9)"}, {27 * time.Minute, "preempted: node gpu-7 is taken back"},
		{13 * time.Minute, "out of memory (128 GiB)"}} {
		s.Pods[i].EndedUnixMs, s.Pods[i].Reason = ms(end.ago), end.why
	}
	s.Pods = append(s.Pods, &wire.PodStatus{Role: wire.Role_MASTER, State: "Running", Incarnation: 1,
		StartedUnixMs: ms(42 * time.Minute), Node: "cpu-1"})
	return role.View{Status: s, Journal: j.Snapshot(), Curve: drawn(41*time.Minute, 4)}
}

// ms returns a time before at.
func ms(ago time.Duration) int64 { return at.Add(-ago).UnixMilli() }

// drawn returns the curve of a job that has run for a time.
func drawn(d time.Duration, workers int) curve.Snapshot {
	var c curve.Curve
	n := int(d.Seconds())
	for i := range n {
		x := float64(i) / float64(n)
		s := curve.Sample{Records: int64(268_800 * x), Workers: workers,
			Loss: 0.36 + 2*math.Exp(-5*x) + 0.03*math.Sin(40*x)*math.Cos(91*x),
			Rate: 1040 + 60*math.Sin(30*x) + 25*math.Cos(77*x)}
		if x > .34 && x < .39 || x > .69 && x < .73 || x > .985 {
			s.Workers, s.Rate = workers-1, s.Rate*.74
		}
		c.Observe(s, at.Add(time.Duration(i-n)*time.Second))
		if i%300 == 299 {
			c.Measure(map[string]float64{"accuracy": 0.97 - 0.5*math.Exp(-4*x)},
				at.Add(time.Duration(i-n)*time.Second))
		}
	}
	return c.Snapshot()
}

// large returns a job of many workers and tasks, of which a tenth was lost in every way.
func large(workers int) role.View {
	const tasks, records = 100_000, 128
	s := &wire.JobStatus{Name: "large", State: "Running", Type: "train", Strategy: "AllreduceStrategy",
		StartedUnixMs: ms(9 * time.Hour),
		Epoch:         1, Epochs: 1, RecordsDone: tasks * records / 3, RecordsTotal: tasks * records,
		RecordsPerSecond: 98_000, Loss: 1.31,
		Workers: int32(workers), World: 812, WorldSize: int32(workers - 3)}
	var j past
	for i := range workers + workers/10 {
		start := 9*time.Hour - time.Duration(i)*time.Second
		j.add(start, journal.Entry{Kind: journal.PodJoined, Pod: fmt.Sprint("worker-", i), Incarnation: 1,
			Text: "joined"})
		p := &wire.PodStatus{Role: wire.Role_WORKER, Index: int32(i), State: "Running", Incarnation: 1,
			StartedUnixMs: ms(start), Node: fmt.Sprint("node-", i%250)}
		if i < workers/10 {
			p.State, p.EndedUnixMs, p.Reason = "Failed", ms(8*time.Hour-time.Duration(i)*4*time.Minute), "preempted"
		}
		s.Pods = append(s.Pods, p)
	}
	for i := range workers / 10 {
		ago := 8*time.Hour - time.Duration(i)*4*time.Minute
		j.add(ago, journal.Entry{Kind: journal.PodLost, Pod: fmt.Sprint("worker-", i), Incarnation: 1,
			Cause: "preempted", Text: "preempted"})
		j.add(ago-2*time.Second, journal.Entry{Kind: journal.WorldFormed, Generation: int64(i), Size: workers,
			Text: fmt.Sprintf("world %d formed", i)})
		j.add(ago-3*time.Second, journal.Entry{Kind: journal.Recovered, Seconds: 3,
			Text: "the training continues 3s after the loss"})
	}
	return role.View{Status: s, Journal: j.Snapshot(), Curve: drawn(9*time.Hour, workers)}
}

// hostile is text that would be markup, an attribute, a script, or a control sequence.
const hostile = "\"><img src=x onerror=alert(1)>' onmouseover='alert(2)\x1b[2J\u202e</script><script>alert(3)</script>"

// quoted are parts of [hostile] that no page has.
var quoted = []string{"<img", "<script>alert", "\x1b", "\u202e", "' onmouseover='"}

// harmless returns which part of a page is hostile; "": none.
func harmless(page string) string {
	for _, q := range quoted {
		if at := strings.Index(page, q); at >= 0 {
			return page[max(0, at-80):min(len(page), at+80)]
		}
	}
	return ""
}
