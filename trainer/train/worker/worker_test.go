package worker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/test/memnet"
	"github.com/elasticdl/elasticdl/test/speak"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/store/safetensors"
	"github.com/elasticdl/elasticdl/trainer/train/nn"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
	"github.com/elasticdl/elasticdl/trainer/train/ps"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// counter is an engine of one parameter whose gradient is always one, so the
// servers' value counts steps. It remembers the records of each step.
type counter struct {
	values, grads []float32
	steps         [][]int32
	evaluated     []float32     // the value at each Evaluate
	takes         time.Duration // duration of a step
}

func (c *counter) Layout() param.Layout {
	return param.Layout{{Name: "count", Shape: []int{1}, Trainable: true}}
}
func (c *counter) Values() []float32 { return c.values }
func (c *counter) Grads() []float32  { return c.grads }

func (c *counter) SetNoise(uint64)          {}
func (c *counter) OnGrads(func(lo, hi int)) {}
func (c *counter) Use([]float32)            {}

func (c *counter) Parallel(n int, f func(lo, hi int)) { f(0, n) }

func (c *counter) Step(b *zoo.Batch) (float32, error) {
	time.Sleep(c.takes)
	c.steps = append(c.steps, slices.Clone(b.Labels))
	c.grads[0] = 1
	return 0.5, nil
}

func (c *counter) Evaluate(b *zoo.Batch, states [][]float64) error {
	c.evaluated = append(c.evaluated, c.values[0])
	states[0][0] += float64(b.Size)
	return nil
}

// numbers is a reader whose record i holds i; the record `bad` cannot be read.
type numbers struct{ bad int64 }

func (numbers) Shards() ([]task.Shard, error) { return nil, nil }
func (numbers) Close() error                  { return nil }

func (numbers) Learn(string, []task.Block) error { return nil }
func (numbers) Looked() int64                    { return 0 }

func (r numbers) ReadAt(shard string, i int64) ([]byte, error) {
	if i == r.bad {
		return nil, fmt.Errorf("read %s: record %d is broken", shard, i)
	}
	return binary.LittleEndian.AppendUint32(nil, uint32(i)), nil
}

func model() *zoo.Model {
	return &zoo.Model{
		Optimizer: func() optim.Config { return optim.Config{Name: "SGD", LearningRate: 1} },
		Feed: func(_ zoo.Mode, records [][]byte, b *zoo.Batch) error {
			b.Reset(len(records))
			for i, r := range records {
				b.Labels[i] = int32(binary.LittleEndian.Uint32(r))
			}
			return nil
		},
		Metrics: func() []zoo.Metric {
			return []zoo.Metric{{Name: "count", Size: 1, Update: func([]float64, nn.Array, *zoo.Batch) error {
				return nil
			}}}
		},
	}
}

// script is a master that hands out tasks one after the other and remembers the reports.
type script struct {
	wire.MasterClient
	mu              sync.Mutex
	tasks           []*wire.Task
	reports         []*wire.ReportTaskRequest
	beats           []*wire.HeartbeatRequest
	refuse          int // how many calls fail first
	unknown         bool
	stale           bool
	granted         int // tasks, of a pupil
	modelGeneration int64
}

func (s *script) call() error {
	if s.refuse > 0 {
		s.refuse--
		return status.Error(codes.Unavailable, "the master is away")
	}
	return nil
}

func (s *script) GetTask(ctx context.Context, _ *wire.GetTaskRequest,
	_ ...grpc.CallOption) (*wire.GetTaskReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.call(); err != nil {
		return nil, err
	}
	if len(s.tasks) == 0 {
		return &wire.GetTaskReply{Task: &wire.Task{Kind: wire.TaskKind_DONE}}, nil
	}
	t := s.tasks[0]
	s.tasks = s.tasks[1:]
	return &wire.GetTaskReply{Task: t}, nil
}

func (s *script) ReportTask(_ context.Context, r *wire.ReportTaskRequest,
	_ ...grpc.CallOption) (*wire.ReportTaskReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.call(); err != nil {
		return nil, err
	}
	if s.stale {
		return nil, status.Error(codes.FailedPrecondition, "lease is not held")
	}
	s.reports = append(s.reports, r)
	return &wire.ReportTaskReply{}, nil
}

func (s *script) Heartbeat(_ context.Context, r *wire.HeartbeatRequest,
	_ ...grpc.CallOption) (*wire.HeartbeatReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beats = append(s.beats, r)
	return &wire.HeartbeatReply{Unknown: s.unknown, ModelGeneration: max(1, s.modelGeneration)}, nil
}

// bench is a worker with one real server, connected in memory within a synctest bubble.
type bench struct {
	Config
	engine *counter
	master *script
	log    *bytes.Buffer
}

func newBench(t *testing.T, server ps.ServerConfig, tasks ...*wire.Task) *bench {
	t.Helper()
	engine := &counter{values: make([]float32, 1), grads: make([]float32, 1)}
	server.Optimizer = optim.Config{Name: "SGD", LearningRate: 1}
	server.Self = self(pod.PS)
	server.Initial = func(int, int) (param.Layout, []float32, error) { return engine.Layout(), []float32{0}, nil }
	s, err := ps.NewServer(server)
	if err != nil {
		t.Fatal(err)
	}
	lis := memnet.Listen(1 << 16)
	served := make(chan error, 1)
	go func() { served <- s.Serve(lis) }()
	worker := self(pod.Worker)
	client, err := ps.Dial(t.Context(),
		ps.ClientConfig{Self: worker, Servers: []ps.Address{{Address: "ps-0"}}, Layout: engine.Layout(),
			Dial: func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		s.Stop()
		<-served
	})
	j := job.Default()
	j.MinibatchSize, j.Shuffle, j.LogLossSteps = 4, false, 2
	b := &bench{engine: engine, master: &script{tasks: tasks}, log: new(bytes.Buffer)}
	b.Config = Config{Self: worker, Job: j, Model: model(), Engine: engine, Master: b.master, Servers: client,
		Training: numbers{bad: -1}, Validation: numbers{bad: -1}, Log: slog.New(slog.NewTextHandler(b.log, nil))}
	return b
}

func self(r pod.Role) *rpc.Self { return speak.Self(identity.Header{Role: r, ModelGeneration: 1}) }

func training(lease, start, end, done int64) *wire.Task {
	return &wire.Task{Kind: wire.TaskKind_TRAINING, Lease: lease, Number: lease, Shard: "s",
		Start: start, End: end, Done: done, Epoch: 1}
}

// bubble runs f in a synctest bubble whose cleanups run within it.
func bubble(t *testing.T, f func(t *testing.T)) {
	synctest.Test(t, f)
}

func (b *bench) pull(t *testing.T) float32 {
	t.Helper()
	var v [1]float32
	if _, err := b.Servers.Pull(t.Context(), v[:], ps.PullOptions{}); err != nil {
		t.Fatal(err)
	}
	return v[0]
}

// has makes the server have records of a task, with a gradient that changes nothing.
func (b *bench) has(t *testing.T, task, from, to int64) {
	t.Helper()
	p, err := b.Servers.Push(t.Context(), []float32{0}, ps.Gradient{Versions: ps.Versions{0}, Epoch: 1,
		Task: task, From: from, To: to, Of: 1000})
	if err != nil || !p.Accepted {
		t.Fatal(p, err)
	}
}

// Records that a server has although the master did not know it are not trained on again, pushed by
// any worker: a worker that was lost in the middle of a call, or one that is wrongly believed lost.
func TestRecordsThatAreHad(t *testing.T) {
	for _, local := range []int{1, 3} {
		bubble(t, func(t *testing.T) {
			b := newBench(t, ps.ServerConfig{Async: true}, training(1, 0, 10, 0))
			b.Job.GetModelSteps = local
			// another than the one that they were had under
			b.master.tasks[0].Lease = 9
			// records 4 and 5 are in the worker's second minibatch
			b.has(t, 1, 0, 6)
			if err := work(t.Context(), b.Config); err != nil {
				t.Fatal(err)
			}
			if got := b.pull(t); got != -2 { // of records 6 and 7, and of 8 and 9
				t.Errorf("--get_model_steps=%d: the server has applied %v steps, want 2", local, -got)
			}
			if !slices.ContainsFunc(b.engine.steps, func(s []int32) bool { return slices.Equal(s, []int32{6, 7}) }) {
				t.Errorf("steps %v: the rest of the second minibatch was not computed", b.engine.steps)
			}
			if len(b.master.reports) != 1 || b.master.reports[0].Error != "" {
				t.Errorf("reports %v", b.master.reports)
			}
		})
	}
}

// timed notes when a lease is reported done.
type timed struct {
	*script
	began, reported time.Time
}

func (m *timed) ReportTask(ctx context.Context, r *wire.ReportTaskRequest,
	options ...grpc.CallOption) (*wire.ReportTaskReply, error) {
	m.reported = time.Now()
	return m.script.ReportTask(ctx, r, options...)
}

// A worker reports records, and the end of a lease, only after the servers have accepted their
// gradient.
func TestProgressIsOfWhatIsAccepted(t *testing.T) {
	const takes = 10 * time.Second // an update
	slow := func(int64, int) float64 {
		time.Sleep(takes)
		return 1
	}
	for _, local := range []int{1, 3} {
		bubble(t, func(t *testing.T) {
			b := newBench(t, ps.ServerConfig{Async: true, LearningRate: slow}, training(1, 0, 12, 0))
			b.Job.GetModelSteps = local
			m := &timed{script: b.master, began: time.Now()}
			b.Master = m
			if err := work(t.Context(), b.Config); err != nil {
				t.Fatal(err)
			}
			for i, beat := range b.master.beats {
				since := time.Duration(i+1) * timing.Beat
				for _, l := range beat.Leases {
					if most := 4 * int64(since/takes); l.Done > most {
						t.Fatalf("--get_model_steps=%d: %d records are done after %v, the servers "+
							"have accepted %d", local, l.Done, since, most)
					}
				}
			}
			if after := m.reported.Sub(m.began); after < 3*takes || len(b.master.beats) < 50 {
				t.Errorf("--get_model_steps=%d: the lease is reported done after %v, the servers "+
					"accept its last gradient after %v", local, after, 3*takes)
			}
		})
	}
}

// If a server lacks records that the master has credited, the task fails with a message about it:
// nothing is skipped silently.
func TestRecordsThatAreMissing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, ps.ServerConfig{Async: true}, training(1, 0, 10, 4))
		if err := work(t.Context(), b.Config); err != nil {
			t.Fatal(err)
		}
		if len(b.master.reports) != 1 || !strings.Contains(b.master.reports[0].Error,
			"a server has 0 records of the task, and records [4, 8) are to follow") {
			t.Errorf("reports %v", b.master.reports)
		}
	})
}

// A worker whose master reports another model generation stops its work, and says why.
func TestAnotherModelGenerationEndsTheWork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, ps.ServerConfig{Async: true}, training(1, 0, 10, 0))
		b.master.modelGeneration = 2
		b.engine.takes = time.Minute
		if err := work(t.Context(), b.Config); !errors.Is(err, ps.ErrStaleModel) {
			t.Error(err)
		}
	})
}

func TestEveryRecordOfEveryLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, ps.ServerConfig{Async: true}, training(1, 0, 10, 0), training(2, 10, 16, 4),
			training(3, 16, 20, 4))
		b.has(t, 2, 0, 4)
		// a master that is away is not the end of the data
		b.master.refuse = 3
		if err := work(t.Context(), b.Config); err != nil {
			t.Fatal(err)
		}
		// Lease 2 had four records done, lease 3 all of them.
		want := [][]int32{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}, {14, 15}}
		if !slices.EqualFunc(b.engine.steps, want, slices.Equal) {
			t.Errorf("steps %v, want %v", b.engine.steps, want)
		}
		if got := b.pull(t); got != -4 {
			t.Errorf("the server has applied %v steps, want 4", -got)
		}
		for i, r := range b.master.reports {
			if r.Error != "" {
				t.Errorf("report %d: %s", i, r.Error)
			}
		}
		if len(b.master.reports) != 3 {
			t.Errorf("reports %v, want 3", b.master.reports)
		}
		for _, line := range []string{"Loss = 0.5, steps = 1\"", "Loss = 0.5, steps = 2\"", "Loss = 0.5, steps = 4\""} {
			if !strings.Contains(b.log.String(), line) {
				t.Errorf("log has no %s:\n%s", line, b.log)
			}
		}
	})
}

func TestWhatCannotBeReadIsReportedAndTheRestGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, ps.ServerConfig{Async: true}, training(1, 0, 12, 0), training(2, 12, 16, 0))
		b.Training = numbers{bad: 5}
		if err := work(t.Context(), b.Config); err != nil {
			t.Fatal(err)
		}
		r := b.master.reports
		if len(r) != 2 || !strings.Contains(r[0].Error, "record 5 is broken") || r[0].Done != 4 || r[1].Error != "" {
			t.Errorf("reports %v", r)
		}
		if want := [][]int32{{0, 1, 2, 3}, {12, 13, 14, 15}}; !slices.EqualFunc(b.engine.steps, want, slices.Equal) {
			t.Errorf("steps %v, want %v", b.engine.steps, want)
		}
	})
}

func TestStaleGradientIsComputedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, ps.ServerConfig{SyncVersionTolerance: new(0)}, training(1, 0, 8, 0))
		b.Job.SyncVersionTolerance = new(0)
		other := newIntruder(t, b)
		if err := work(t.Context(), b.Config); err != nil {
			t.Fatal(err)
		}
		if other.pushed != 1 {
			t.Fatalf("the other worker has pushed %d times", other.pushed)
		}
		want := [][]int32{{0, 1, 2, 3}, {0, 1, 2, 3}, {4, 5, 6, 7}}
		if !slices.EqualFunc(b.engine.steps, want, slices.Equal) {
			t.Errorf("steps %v, want %v", b.engine.steps, want)
		}
		if got := b.pull(t); got != -3 { // two of ours, one of the other worker
			t.Errorf("value %v, want -3", got)
		}
	})
}

// intruder pushes a gradient of its own during the first step of a worker,
// whose gradient is too old then.
type intruder struct {
	*counter
	bench  *bench
	t      *testing.T
	pushed int
}

func newIntruder(t *testing.T, b *bench) *intruder {
	i := &intruder{counter: b.engine, bench: b, t: t}
	b.Engine = i
	return i
}

func (i *intruder) Step(b *zoo.Batch) (float32, error) {
	if i.pushed == 0 {
		i.pushed++
		var v [1]float32
		versions, err := i.bench.Servers.Pull(i.t.Context(), v[:], ps.PullOptions{})
		if err == nil {
			_, err = i.bench.Servers.Push(i.t.Context(), []float32{1},
				ps.Gradient{Versions: versions, Epoch: 1, Task: 99, To: 1, Of: 1000})
		}
		if err != nil {
			i.t.Error(err)
		}
	}
	return i.counter.Step(b)
}

func TestLocalUpdatesBetweenPulls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, ps.ServerConfig{Async: true}, training(1, 0, 40, 0))
		b.Job.GetModelSteps = 5
		if err := work(t.Context(), b.Config); err != nil {
			t.Fatal(err)
		}
		if got := b.pull(t); got != -10 {
			t.Errorf("the servers have applied %v steps, want 10", -got)
		}
		// the second pull at five steps, five local ones since
		if got := b.engine.values[0]; got != -10 {
			t.Errorf("the worker's own value is %v, want -10", got)
		}
	})
}

func TestLocalUpdatesFollowTheSchedule(t *testing.T) {
	bubble(t, func(t *testing.T) {
		schedule := func(_ int64, workers int) float64 { return 0.5 / float64(workers) }
		b := newBench(t, ps.ServerConfig{Async: true, LearningRate: schedule}, training(1, 0, 12, 0))
		b.Job.GetModelSteps = 5
		b.Model.LearningRate = schedule
		if err := work(t.Context(), b.Config); err != nil {
			t.Fatal(err)
		}
		if got := b.engine.values[0]; got != -1.5 || b.pull(t) != got {
			t.Errorf("the worker's own value is %v, the servers' %v, want -1.5", got, b.pull(t))
		}
	})
}

func TestRecordThatCannotBeFedIsNamed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, ps.ServerConfig{Async: true}, training(1, 0, 8, 0))
		feed := b.Model.Feed
		b.Model.Feed = func(mode zoo.Mode, records [][]byte, batch *zoo.Batch) error {
			for i, r := range records {
				if binary.LittleEndian.Uint32(r) == 6 {
					return fmt.Errorf("record %d: no image", i)
				}
			}
			return feed(mode, records, batch)
		}
		if err := work(t.Context(), b.Config); err != nil {
			t.Fatal(err)
		}
		if r := b.master.reports[0]; !strings.Contains(r.Error, "feed record 6 of s: record 0: no image") {
			t.Errorf("report %v", r)
		}
	})
}

func TestEvaluationAndExport(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, ps.ServerConfig{Async: true, EvaluationSteps: 2},
			training(1, 0, 12, 0),
			&wire.Task{Kind: wire.TaskKind_EVALUATION, Lease: 2, Shard: "v", Start: 0, End: 6, Version: 2},
			&wire.Task{Kind: wire.TaskKind_EVALUATION, Lease: 3, Shard: "v", Start: 6, End: 9},
			&wire.Task{Kind: wire.TaskKind_EXPORT, Lease: 4})
		b.Job.Output = filepath.Join(t.TempDir(), "model")
		if err := work(t.Context(), b.Config); err != nil {
			t.Fatal(err)
		}
		// Version 2 as it was, then the model as it stands after three steps.
		if want := []float32{-2, -2, -3}; !slices.Equal(b.engine.evaluated, want) {
			t.Errorf("evaluated at %v, want %v", b.engine.evaluated, want)
		}
		for lease, want := range map[int]float64{1: 6, 2: 3} {
			if m := b.master.reports[lease].Metrics; len(m) != 1 || m[0].State[0] != want {
				t.Errorf("metrics of report %d are %v, want %v records", lease, m, want)
			}
		}
		file, err := os.ReadFile(filepath.Join(b.Job.Output, checkpoint.ModelFile))
		if err != nil {
			t.Fatal(err)
		}
		_, values, metadata, err := safetensors.Read(bytes.NewReader(file), int64(len(file)))
		if err != nil || values[0] != -3 || metadata["version"] != "3" {
			t.Errorf("exported %v, %v, %v", values, metadata, err)
		}
	})
}

func TestFailedEvaluationLeavesNothingToTheNext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		evaluation := func(lease, start, end int64) *wire.Task {
			return &wire.Task{Kind: wire.TaskKind_EVALUATION, Lease: lease, Shard: "v", Start: start, End: end}
		}
		b := newBench(t, ps.ServerConfig{Async: true}, training(1, 0, 4, 0), evaluation(2, 0, 12),
			evaluation(3, 12, 15))
		b.Validation = numbers{bad: 5} // after the first minibatch of lease 2
		if err := work(t.Context(), b.Config); err != nil {
			t.Fatal(err)
		}
		if r := b.master.reports; r[1].Error == "" || len(r[1].Metrics) != 0 || r[2].Error != "" ||
			r[2].Metrics[0].State[0] != 3 {
			t.Errorf("reports %v, want the metrics of 3 records", r)
		}
	})
}

func TestReplacedWorkerLeaves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, ps.ServerConfig{Async: true})
		b.master.unknown, b.master.refuse = true, 1<<30
		if err := work(t.Context(), b.Config); !errors.Is(err, membership.ErrReplaced) {
			t.Fatalf("%v, want %v", err, membership.ErrReplaced)
		}
	})
}

func TestCancelledWorkerLeavesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, ps.ServerConfig{Async: true})
		b.master.refuse = 1 << 30
		const after = 10*time.Second + timing.Beat/2 // not at the instant of a heartbeat
		ctx, cancel := context.WithTimeout(t.Context(), after)
		defer cancel()
		start := time.Now()
		if err := work(ctx, b.Config); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != after {
			t.Fatalf("%v after %v", err, time.Since(start))
		}
		if len(b.master.beats) != 20 {
			t.Errorf("%d heartbeats in ten seconds, want 20", len(b.master.beats))
		}
	})
}

func TestStaleReportIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, ps.ServerConfig{Async: true}, training(1, 0, 4, 0))
		b.master.stale = true
		if err := work(t.Context(), b.Config); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.log.String(), "taken back before") {
			t.Errorf("log:\n%s", b.log)
		}
	})
}
