package tensorboard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

var begin = time.Unix(1_700_000_000, 0)

// point is a point of a curve.
type point struct {
	step  int64
	value float32
}

// board has the curves that TensorBoard shows, by their tags.
type board map[string][]point

// read takes events in the order of the files.
func (b board) read(events []Event) {
	for _, e := range events {
		if e.Start {
			for tag := range b {
				b[tag] = slices.DeleteFunc(b[tag], func(p point) bool { return p.step >= e.Step })
			}
		}
		for _, s := range e.Scalars {
			b[s.Tag] = append(b[s.Tag], point{e.Step, s.Value})
		}
	}
}

// training returns the status of a job with servers, t seconds after its beginning.
func training(t int, version int64, loss float32) (*wire.JobStatus, time.Time) {
	now := begin.Add(time.Duration(t) * time.Second)
	return &wire.JobStatus{Type: string(job.Train), Strategy: string(job.ParameterServer), State: string(job.Running),
		Version: version, Loss: loss, Epoch: 1, Epochs: 2, RecordsDone: 10 * version, RecordsTotal: 1000,
		RecordsPerSecond: 10, ModelGeneration: 1, Workers: 2, StartedUnixMs: begin.UnixMilli(),
		Pods: []*wire.PodStatus{{Role: wire.Role_WORKER, State: "Running"}, {Role: wire.Role_WORKER, State: "Pending"},
			{Role: wire.Role_PS, State: "Running"}}}, now
}

func show(events []Event) string {
	var lines []string
	for _, e := range events {
		var line strings.Builder
		fmt.Fprint(&line, e.Step)
		if e.Start {
			line.WriteString(" start")
		}
		for _, s := range e.Scalars {
			fmt.Fprintf(&line, " %s=%v", s.Tag, s.Value)
		}
		lines = append(lines, line.String())
	}
	return strings.Join(lines, "\n")
}

func expect(t *testing.T, what string, events []Event, want ...string) {
	t.Helper()
	if got := show(events); got != strings.Join(want, "\n") {
		t.Errorf("%s:\n%s\nwant\n%s", what, got, strings.Join(want, "\n"))
	}
}

// The first points have all values, the next ones at the same step those that have changed.
func TestPointsOfATraining(t *testing.T) {
	s := NewSampler(First, Past{Step: 77, Rollbacks: 1})
	const cluster = " cluster/workers=1 cluster/workers_wanted=2 cluster/parameter_servers=1" +
		" faults/replaced_pods=0 faults/returned_leases=0 faults/rollbacks=0"
	expect(t, "at the beginning", s.Status(training(0, 0, 0)), "0 start",
		"0 train/epoch=1 train/records=0 train/records_per_second=10"+cluster)
	expect(t, "nothing has changed", s.Status(training(1, 0, 0)))
	more, now := training(2, 0, 0)
	more.Workers, more.Relaunched = 3, 1
	expect(t, "scaled, and a pod was replaced", s.Status(more, now),
		"0 cluster/workers_wanted=3 faults/replaced_pods=1")
	expect(t, "too early", s.Status(training(2, 5, 1)))
	checkpoint, now := training(3, 5, 0.5)
	checkpoint.Checkpoint = &wire.Checkpoint{Number: 1, Version: 4, UnixMs: begin.UnixMilli()}
	expect(t, "progress", s.Status(checkpoint, now), "5 train/loss=0.5 train/epoch=1 train/records=50 "+
		"train/records_per_second=10"+cluster+" checkpoint/version=4 checkpoint/age_seconds=3")
	expect(t, "an evaluation", s.Fact(Evaluation{4, map[string]float64{"loss": 0.25, "accuracy": 0.5}}, now),
		"4 eval/accuracy=0.5 eval/loss=0.25")
	expect(t, "servers know the version only later", s.Status(training(5, 0, 0.5)))
	end, now := training(6, 5, 0.5)
	end.State = string(job.Succeeded)
	expect(t, "at the end", s.Status(end, now), "5 train/epoch=1"+cluster)
	expect(t, "after the end", s.Status(end, now.Add(time.Minute)))
}

// The points after the checkpoint are dropped, and statuses of the earlier generation are
// ignored.
func TestRollback(t *testing.T) {
	s := NewSampler(First, Past{})
	var b = board{}
	b.read(s.Status(training(0, 10, 10)))
	b.read(s.Status(training(1, 20, 20)))
	late, now := training(2, 25, 25)
	expect(t, "rolled back", s.Fact(Rollback{Version: 15, ModelGeneration: 2}, now), "16 start")
	expect(t, "a status from before", s.Status(late, now))
	after := func(at int, version int64) (*wire.JobStatus, time.Time) {
		status, now := training(at, version, float32(version)+0.5)
		status.ModelGeneration, status.Rollbacks = 2, 1
		return status, now
	}
	expect(t, "the servers have no values yet", s.Status(after(3, 0)))
	b.read([]Event{{Step: 16, Start: true}})
	b.read(s.Status(after(4, 18)))
	if got := fmt.Sprint(b["train/loss"]); got != "[{10 10} {18 18.5}]" {
		t.Errorf("shown are %s", got)
	}
	if r := b[TagRollbacks]; r[len(r)-1] != (point{18, 1}) {
		t.Errorf("rollbacks: %v", r)
	}
	expect(t, "restarted", s.Fact(Rollback{ModelGeneration: 3}, now), "0 start")
}

// The workers of a ring that had the newest state are lost: the survivors have an older one, in the
// same model generation.
func TestRingFallsBack(t *testing.T) {
	s := NewSampler(First, Past{})
	ring := func(at int, version int64) (*wire.JobStatus, time.Time) {
		status, now := training(at, version, 1)
		status.Strategy, status.World, status.WorldSize = string(job.AllReduce), 2, 2
		return status, now
	}
	s.Status(ring(0, 7))
	late, now := ring(1, 8)
	late.World = 1
	expect(t, "a new world", s.Fact(World{ID: 2, Version: 6}, now), "7 start")
	expect(t, "a status from before", s.Status(late, now))
	events := s.Status(ring(1, 6))
	if len(events) != 1 || events[0].Step != 6 {
		t.Errorf("%s", show(events))
	}
	expect(t, "a world with the newest state", s.Fact(World{ID: 3, Version: 6}, now))
	if text := show(events); !strings.Contains(text, "cluster/world_size=2") || strings.Contains(text, "servers") {
		t.Errorf("%s", text)
	}
}

// A master that replaces another one continues the curves, as soon as it knows the version.
func TestSuccessorContinues(t *testing.T) {
	s := NewSampler(Successor, Past{Step: 40, Rollbacks: 0})
	expect(t, "no holder of the model has reported", s.Status(training(50, 0, 0)))
	expect(t, "one of them has", s.Status(training(51, 38, 1)))
	if events := s.Status(training(52, 41, 1)); len(events) != 1 || events[0].Start || events[0].Step != 41 {
		t.Errorf("%s", show(events))
	}
}

// The master before has rolled the model back, and was lost before it could write that.
func TestSuccessorFindsARollback(t *testing.T) {
	s := NewSampler(Successor, Past{Step: 40, Rollbacks: 1})
	status, now := training(50, 0, 0)
	status.Rollbacks = 2
	expect(t, "not known yet", s.Status(status, now))
	status, now = training(51, 30, 1)
	status.Rollbacks = 2
	if events := s.Status(status, now); len(events) != 2 || !events[0].Start || events[0].Step != 30 {
		t.Errorf("%s", show(events))
	}
	status, now = training(52, 31, 1)
	status.Rollbacks = 2
	if events := s.Status(status, now); len(events) != 1 || events[0].Start {
		t.Errorf("once is enough: %s", show(events))
	}
}

// A resumed job continues from its checkpoint, also from one that the run is behind.
func TestResumedJob(t *testing.T) {
	s := NewSampler(Continued, Past{Step: 40, Rollbacks: 3})
	expect(t, "before it is known", s.Status(training(0, 0, 0)))
	expect(t, "the checkpoint", s.Fact(Rollback{Version: 35}, begin), "36 start")
	if events := s.Status(training(1, 36, 1)); len(events) != 1 || events[0].Step != 36 {
		t.Errorf("%s", show(events))
	}
	s = NewSampler(Continued, Past{Step: 40})
	if events := s.Status(training(1, 3, 1)); len(events) != 2 || !events[0].Start || events[0].Step != 3 {
		t.Errorf("without a word, from an older state: %s", show(events))
	}
}

// The steps of a program are the seconds that it has run, over all its masters.
func TestProgram(t *testing.T) {
	status := func(at int) (*wire.JobStatus, time.Time) {
		now := begin.Add(time.Duration(at) * time.Second)
		return &wire.JobStatus{Type: string(job.Run), Strategy: string(job.AllReduce), State: string(job.Running),
			World: 1, WorldSize: 3, Failures: 2, StartedUnixMs: begin.UnixMilli(), Workers: 4,
			Saved: &wire.Saved{UnixMs: begin.UnixMilli()}}, now
	}
	s := NewSampler(First, Past{})
	s.Status(status(0))
	expect(t, "later", s.Status(status(7)), "7 cluster/workers=0 cluster/workers_wanted=4 cluster/world_size=3 "+
		"faults/replaced_pods=0 faults/returned_leases=0 faults/rollbacks=0 faults/program_failures=2 "+
		"checkpoint/age_seconds=7")
	for _, session := range []Session{Successor, Continued} {
		s = NewSampler(session, Past{Step: 7, Rollbacks: 5})
		if events := s.Status(status(60)); len(events) != 1 || events[0].Step != 8 || events[0].Start {
			t.Errorf("%v: %s", session, show(events))
		}
	}
}

// A month has few enough points for a bucket and for TensorBoard, and the first minutes have many.
func TestPointsBecomeRarer(t *testing.T) {
	s := NewSampler(First, Past{})
	points, size := 0, 0
	for at := 0; at < 30*24*3600; at++ {
		if at > 24*3600 {
			at += 9 // the points are rarer now
		}
		for _, e := range s.Status(training(at, int64(at), 1)) {
			points++
			size += len(Encode(nil, e))
		}
		if at == 300 && points < 300 {
			t.Errorf("%d points in five minutes", points)
		}
		if at == 24*3600 && points > 4000 {
			t.Errorf("%d points in a day", points)
		}
	}
	if points > 50_000 || size > 30<<20 {
		t.Errorf("%d points of %d bytes in a month", points, size)
	}
}

// Whatever happens to a job, TensorBoard shows no point of a state that was rolled back, and no
// curve that returns. The loss names the state: each version of each generation has its own.
func TestCurvesAreThoseOfTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ring := rapid.Bool().Draw(t, "ring")
		var written []Event
		s := NewSampler(First, Past{})
		var losses = []float32{0} // of the present state, by version
		states, at, generation, rewinds := float32(0), 0, int64(1), int32(0)
		status := func(version int64) (*wire.JobStatus, time.Time) {
			at++
			st, now := training(at, version, losses[version])
			st.ModelGeneration, st.Rollbacks = generation, rewinds
			if ring {
				st.Strategy = string(job.AllReduce)
			}
			return st, now
		}
		for range rapid.IntRange(1, 60).Draw(t, "length") {
			newest := int64(len(losses) - 1)
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			default: // trained
				for range rapid.IntRange(0, 5).Draw(t, "updates") {
					states++
					losses = append(losses, states)
				}
				written = append(written, s.Status(status(int64(len(losses)-1)))...)
			case 0: // rolled back, or started over
				to := rapid.Int64Range(0, newest).Draw(t, "to")
				losses = losses[:to+1]
				generation, rewinds = generation+1, rewinds+1
				written = append(written, s.Fact(Rollback{Version: to, ModelGeneration: generation}, begin)...)
				if !ring {
					written = append(written, s.Status(status(0))...)
				}
			case 1: // the newest state of a ring is lost
				if ring && newest > 1 {
					losses = losses[:newest]
					written = append(written, s.Fact(World{Version: newest - 1}, begin)...)
				}
			case 2: // the master is lost
				s = NewSampler(Successor, PastOf(written))
				written = append(written, s.Status(status(0))...)
				written = append(written, s.Status(status(rapid.Int64Range(0, newest).Draw(t, "known")))...)
			case 3:
				written = append(written, s.Fact(Evaluation{newest, map[string]float64{"loss": 1}}, begin)...)
			}
		}
		shown := board{}
		shown.read(written)
		for _, p := range shown["train/loss"] {
			if p.step >= int64(len(losses)) || losses[p.step] != p.value {
				t.Fatalf("the loss at step %d is shown as %v; the model has %v\n%s", p.step, p.value, losses,
					show(written))
			}
		}
		for tag, points := range shown {
			if !slices.IsSortedFunc(points, func(a, b point) int { return int(a.step - b.step) }) {
				t.Fatalf("%s returns: %v\n%s", tag, points, show(written))
			}
		}
	})
}
