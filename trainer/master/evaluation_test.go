package master

import (
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

func accuracy(right, all float64) *wire.Metric {
	return &wire.Metric{Name: "accuracy", State: []float64{right, all}}
}

func evaluated(c *Config) {
	c.Job.NumPS, c.Job.EvaluationSteps = 2, 50
	c.Validation = []task.Shard{{Name: "test", Start: 0, Count: 6}}
	c.Job.ValidationData = "test"
}

// A snapshot that all servers have is evaluated before training continues, and then released. At
// the end the current model is evaluated and exported.
func TestEvaluation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) { evaluated(c); c.Job.Output = "model" })
		w.join()
		w.beat(&wire.HeartbeatRequest{Role: wire.Role_PS, Index: 0, Version: 50, Snapshot: 50})
		training := w.task(0)
		if training.Kind != wire.TaskKind_TRAINING {
			t.Fatalf("%v before every server has the snapshot", training)
		}
		w.beats(51, 50)
		first, second := w.task(1), w.task(0, training.Lease)
		if first.Kind != wire.TaskKind_EVALUATION || first.Version != 50 ||
			second.Kind != wire.TaskKind_EVALUATION || second.End != 6 {
			t.Fatalf("%v and %v with a snapshot of version 50", first, second)
		}
		w.done(1, first, accuracy(1, 4))
		w.done(0, second, accuracy(1, 2))
		for i, s := range w.servers {
			if got := s.last().ReleaseSnapshot; got != 50 {
				t.Errorf("server %d was asked to release %d", i, got)
			}
		}
		w.done(0, training)
		w.beats(57, 0)
		for _, part := range []int64{0, 4} {
			last := w.train(0)
			if last.Kind != wire.TaskKind_EVALUATION || last.Version != 0 || last.Start != part {
				t.Fatalf("%v after training", last)
			}
			w.done(0, last, accuracy(2, 4))
		}
		export := w.task(1)
		if export.Kind != wire.TaskKind_EXPORT {
			t.Fatalf("%v after the last evaluation", export)
		}
		w.done(1, export)
		if last := w.task(0); last.Kind != wire.TaskKind_DONE {
			t.Errorf("%v after the export", last)
		}
		w.leave()
		if w.err != nil || len(w.status.Evaluations) != 2 {
			t.Fatalf("error %v, evaluations %v", w.err, w.status.Evaluations)
		}
		for i, want := range []struct {
			version  int64
			accuracy float64
		}{{50, 2.0 / 6}, {57, 0.5}} {
			if got := w.status.Evaluations[i]; got.Version != want.version || got.Metrics["accuracy"] != want.accuracy {
				t.Errorf("evaluation %d: %v, want %v", i, got, want)
			}
		}
	})
}

// A server is asked to release a snapshot again as often as it reports the snapshot after its
// release.
func TestReleaseIsToldUntilItIsObserved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) { evaluated(c); c.Job.NumPS = 1 })
		w.join()
		w.beats(50, 50)
		for range 2 {
			w.done(0, w.task(0), accuracy(1, 4))
		}
		for range 3 {
			before := len(w.servers[0].orders)
			w.beats(51, 50)
			if last := w.servers[0].last(); last.ReleaseSnapshot != 50 || len(w.servers[0].orders) == before {
				t.Errorf("reported %v, %d orders after %d", last, len(w.servers[0].orders), before)
			}
		}
		before := len(w.servers[0].orders)
		w.beats(52, 0)
		w.beats(100, 100)
		if n := len(w.servers[0].orders); n != before {
			t.Errorf("%d orders more, for nothing", n-before)
		}
	})
}

// If the parts of the last evaluation are of different versions, the evaluation begins again with
// the later version.
func TestLastEvaluationIsOfOneModel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, evaluated)
		w.join()
		w.beats(57, 0)
		first := w.train(0)
		w.done(0, first, accuracy(4, 4))
		second := w.task(0)
		report := func(version int64) error {
			_, err := w.ReportTask(t.Context(), &wire.ReportTaskRequest{Lease: second.Lease,
				Version: version, Metrics: []*wire.Metric{accuracy(2, 2)}})
			return err
		}
		w.beats(58, 0) // a late gradient was applied
		wantCode(t, report(58), codes.FailedPrecondition)
		for range 2 {
			w.done(0, w.task(0), accuracy(1, 4))
		}
		if last := w.task(0); last.Kind != wire.TaskKind_DONE {
			t.Errorf("%v at the end", last)
		}
		w.leave()
		if e := w.status.Evaluations; len(e) != 1 || e[0].Version != 58 || e[0].Metrics["accuracy"] != 0.25 {
			t.Errorf("evaluations %v", e)
		}
	})
}

// A status has the last KeptEvaluations results, and the number of all results.
func TestStatusIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) { evaluated(c); c.Validation[0].Count, c.Job.NumPS = 1, 1 })
		w.join()
		for i := range int64(KeptEvaluations + 20) {
			w.beats(50*(i+1), 50*(i+1))
			w.done(0, w.task(0), accuracy(1, 1))
			w.beats(50*(i+1), 0)
		}
		s := w.look()
		if n := len(s.Evaluations); n != KeptEvaluations ||
			s.Evaluations[n-1].Version != 50*(KeptEvaluations+20) || s.Evaluated != KeptEvaluations+20 {
			t.Errorf("%d evaluations of %d", n, s.Evaluated)
		}
	})
}

// An evaluation is given up if its snapshot is lost with a server. Late reports about it are
// refused.
func TestEvaluationWithdrawn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, evaluated)
		w.join()
		w.beats(50, 50)
		task := w.task(0)
		w.kill(ps(1))
		_, err := w.ReportTask(t.Context(), &wire.ReportTaskRequest{Worker: 0, Lease: task.Lease,
			Metrics: []*wire.Metric{accuracy(1, 4)}})
		wantCode(t, err, codes.FailedPrecondition)
		if next := w.task(0); next.Kind != wire.TaskKind_TRAINING {
			t.Errorf("%v after the withdrawal", next)
		}
		if again := w.pods.last(); again.ID != ps(1) || again.Incarnation != 2 || again.Address != "server-1:2222" {
			t.Errorf("server 1 is replaced by %v", again)
		}
		reply, err := w.Join(t.Context(), &wire.JoinRequest{Role: wire.Role_PS, Index: 1,
			Address: w.servers[1].address})
		if err != nil || reply.ModelGeneration != 2 {
			t.Errorf("the new server is notified of generation %d, %v", reply.GetModelGeneration(), err)
		}
		if o := w.servers[1].last(); o.ReleaseSnapshot != 0 || o.ModelGeneration != 2 {
			t.Errorf("the new server was reported %v", o)
		}
	})
}

// A task whose metrics differ from those of the other tasks fails.
func TestEvaluationMetricsDiffer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, evaluated)
		w.join()
		w.beats(50, 50)
		first := w.task(0)
		second := w.task(0, first.Lease)
		w.done(0, first, accuracy(1, 4))
		w.done(0, second, &wire.Metric{Name: "loss", State: []float64{1}})
		if again := w.task(0); again.Start != second.Start || again.Kind != wire.TaskKind_EVALUATION {
			t.Errorf("%v, want the second again", again)
		}
	})
}

// Without training records, the current model is evaluated.
func TestEvaluationOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) { evaluated(c); c.Training = nil })
		w.join()
		for range 2 {
			task := w.task(0)
			if task.Kind != wire.TaskKind_EVALUATION {
				t.Fatal(task)
			}
			w.done(0, task, accuracy(1, 2))
		}
		w.leave()
		if w.err != nil || len(w.status.Evaluations) != 1 {
			t.Errorf("error %v, status %v", w.err, w.status)
		}
	})
}
