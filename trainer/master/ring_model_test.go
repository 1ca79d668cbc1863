package master

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// When all workers are lost the model is lost: the training starts over and completes.
func TestRingRollback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := startRing(t, func(c *Config) { c.Job.NumEpochs = 2 })
		for range 3 { // the third task is of the second epoch
			w.done(0, w.task(0))
		}
		fourth := w.task(0)
		p[0].says(func(r *wire.HeartbeatRequest) { of(fourth, 2)(r); r.Version = 7 })
		if s := w.look(); s.Epoch != 2 || s.RecordsDone != 14 {
			t.Fatal(s)
		}
		w.kill(worker(0))
		w.kill(worker(1))
		if s := w.look(); s.RecordsDone != 14 || s.WorldSize != 0 {
			t.Errorf("before another comes: %v", s)
		}
		next := []*peer{w.peer(2), w.peer(3)}
		word := next[0].word()
		if say(word) != "world 2.2 [2 3] from []" || word.GetWorld().Floor <= fourth.Lease {
			t.Fatal(word)
		}
		if s := w.look(); s.RecordsDone != 0 || s.Epoch != 1 || s.Version != 0 || s.Requeued != 1 {
			t.Errorf("afterwards: %v", s)
		}
		_, err := w.ReportTask(t.Context(), &wire.ReportTaskRequest{Worker: 0, Lease: fourth.Lease})
		wantCode(t, err, codes.FailedPrecondition)
		if last := w.train(2); last.Kind != wire.TaskKind_DONE {
			t.Fatal(last)
		}
		w.finish(next...)
		if w.status.RecordsDone != 16 {
			t.Errorf("status %v", w.status)
		}
	})
}

// A task on which every worker crashes, before anything was trained on, is counted. The error of
// the job names it.
func TestRingPoison(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, ringJob(func(c *Config) {
			c.Job.NumWorkers, c.Job.RelaunchOnWorkerFailure, c.Training[0].Count = 1, 10, 4
		}))
		for i := range 3 {
			for !w.pods.isRunning(worker(i)) {
				time.Sleep(time.Second)
			}
			w.peer(i)
			w.task(i)
			w.pods.end(worker(i), pod.Exit{Code: 2, Reason: "panic: index out of range"})
			synctest.Wait()
		}
		for !w.pods.isRunning(worker(3)) {
			time.Sleep(time.Second)
		}
		w.peer(3)
		<-w.ended
		if w.err == nil || !strings.Contains(w.err.Error(), "failed 3 times") ||
			!strings.Contains(w.err.Error(), "[0, 4) of shard-0") {
			t.Errorf("error %v", w.err)
		}
	})
}

// Reports of a worker about a lost model generation are ignored.
func TestRingLateHeartbeat(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := startRing(t, evaluatedRing)
		for _, x := range p {
			x.says(func(r *wire.HeartbeatRequest) { r.Generation, r.Version, r.Snapshot, r.Flushed = 1, 49, 0, 0 })
			x.close()
		}
		synctest.Wait()
		again := []*peer{w.peer(0), w.peer(1)}
		again[0].hears("world 2.2 [0 1] from []")
		p[0].says(func(r *wire.HeartbeatRequest) { r.Version, r.Snapshot = 50, 50 })
		if s := w.look(); s.Version != 0 {
			t.Errorf("version %d of the model that is lost", s.Version)
		}
		if next := w.task(0); next.Kind != wire.TaskKind_TRAINING {
			t.Errorf("%v: evaluates a snapshot that is lost", next)
		}
	})
}

func evaluatedRing(c *Config) {
	c.Job.EvaluationSteps = 50
	c.Validation = []task.Shard{{Name: "test", Start: 0, Count: 6}}
	c.Job.ValidationData = "test"
}

func snapshot(version, snapshot int64) func(*wire.HeartbeatRequest) {
	return func(r *wire.HeartbeatRequest) { r.Version, r.Snapshot = version, snapshot }
}

// All workers of a ring have the same snapshot: any worker can evaluate it, and late reports of
// others do not withdraw it.
func TestRingEvaluation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := startRing(t, evaluatedRing)
		training := w.task(0)
		p[0].says(snapshot(50, 50))
		p[1].says(snapshot(49, 0))
		first := w.task(1)
		second := w.task(0, training.Lease)
		if first.Kind != wire.TaskKind_EVALUATION || first.Version != 50 || second.Kind != wire.TaskKind_EVALUATION {
			t.Fatalf("%v and %v with a snapshot of version 50", first, second)
		}
		w.kill(worker(0)) // the worker that reported the snapshot
		p[1].says(snapshot(49, 0))
		p[1].back(1, 51)
		again := w.task(1, first.Lease)
		if again.Kind != wire.TaskKind_EVALUATION || again.Version != 50 || again.Start != second.Start {
			t.Fatalf("%v, want %v again", again, second)
		}
		w.done(1, first, accuracy(1, 4))
		w.done(1, again, accuracy(1, 2))
		if reply := p[1].says(snapshot(51, 50)); reply.ReleaseSnapshot != 50 {
			t.Errorf("%v: the snapshot is not released", reply)
		}
		p[1].says(snapshot(57, 0))
		for range 2 {
			last := w.train(1)
			if last.Kind != wire.TaskKind_EVALUATION || last.Version != 0 {
				t.Fatalf("%v after the training", last)
			}
			w.done(1, last, accuracy(2, 4))
		}
		w.finish(p[1])
		if e := w.status.Evaluations; len(e) != 2 || e[0].Version != 50 ||
			e[0].Metrics["accuracy"] != 2.0/6 || e[1].Version != 57 {
			t.Errorf("evaluations %v", e)
		}
	})
}

// When the model is lost, so are its evaluations and their results. The training that starts over
// has its own.
func TestRingEvaluationRollback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := startRing(t, func(c *Config) { evaluatedRing(c); c.Job.NumWorkers, c.Job.Output = 1, "model" })
		w.done(0, w.task(0))
		p[0].says(snapshot(50, 50))
		for range 2 {
			w.done(0, w.task(0), accuracy(1, 2))
		}
		p[0].says(snapshot(57, 0))
		w.done(0, w.task(0))
		p[0].says(snapshot(100, 100)) // too late: the last evaluation has begun
		if last := w.task(0); last.Kind != wire.TaskKind_EVALUATION || last.Version != 0 {
			t.Fatalf("%v after the training", last)
		}
		w.kill(worker(0))
		next := w.peer(1)
		next.hears("world 2.2 [1] from []")
		if s := w.look(); len(s.Evaluations) != 0 || s.RecordsDone != 0 {
			t.Errorf("status %v", s)
		}
		w.wantTask(w.task(1), 0, 0)
		if reply := next.says(snapshot(50, 50)); reply.ReleaseSnapshot != 0 {
			t.Errorf("%v before it is evaluated", reply)
		}
		if again := w.task(1, w.task(1).Lease); again.Kind != wire.TaskKind_EVALUATION || again.Version != 50 {
			t.Errorf("%v with a new snapshot of version 50", again)
		}
	})
}

// Gradients that are left in accumulators at the end are applied before the model is evaluated and
// exported, whichever workers are lost.
func TestRingFlush(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := startRing(t, func(c *Config) { c.Job.GlobalBatchSize, c.Job.NumEpochs, c.Job.Output = 100, 2, "model" })
		p[0].hears("world 1.1 [0 1] from []")
		p[1].hears("world 1.1 [0 1] from []")
		p[0].idle, p[1].idle = true, true
		for range 4 {
			p[1].hears()
			w.done(0, w.task(0))
		}
		p[0].hears("flush 1")
		p[1].hears("flush 1")
		w.kill(worker(0))
		p[1].back(1, 9)
		p[1].hears("recall 1 now", "world 2.2 [1] from [0]", "flush 1")
		if early := w.task(1); early.Kind != wire.TaskKind_WAIT {
			t.Fatalf("%v before the flush", early)
		}
		p[1].says(func(r *wire.HeartbeatRequest) { r.Version, r.Flushed = 10, 1 })
		export := w.task(1)
		if export.Kind != wire.TaskKind_EXPORT {
			t.Fatalf("%v after the flush", export)
		}
		// When the last worker is lost all is done again, and the flush gets another number.
		w.kill(worker(1))
		next := w.peer(2)
		next.idle = true
		time.Sleep(time.Second) // until worker 1 is replaced
		next.hears("world 3.3 [2] from []")
		if last := w.train(2); last.Kind != wire.TaskKind_WAIT {
			t.Fatalf("%v before the flush", last)
		}
		next.hears("flush 2")
		next.says(func(r *wire.HeartbeatRequest) { r.Flushed = 1 })
		next.says(func(r *wire.HeartbeatRequest) { r.Flushed = 2 })
		w.done(2, w.task(2))
		w.finish(next)
	})
}

// The report of the flush has the version of the trained model, also if no gradients are
// accumulated.
func TestRingFinalVersion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := startRing(t, evaluatedRing)
		p[0].idle, p[1].idle = true, true
		p[0].says(snapshot(49, 0))
		if early := w.train(0); early.Kind != wire.TaskKind_WAIT {
			t.Fatalf("%v before the flush", early)
		}
		p[0].hears("world 1.1 [0 1] from []", "flush 1")
		p[0].says(func(r *wire.HeartbeatRequest) { r.Version, r.Snapshot, r.Flushed = 50, 0, 1 })
		for range 2 {
			w.done(0, w.task(0), accuracy(1, 2))
		}
		w.finish(p...)
		if e := w.status.Evaluations; len(e) != 1 || e[0].Version != 50 {
			t.Errorf("evaluations %v", e)
		}
	})
}

// A state may be lost with a step of which the master does not know. So all leases are taken back
// when the model is lost, even if no record of them was credited.
func TestRingRollbackUnreported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := startRing(t, func(c *Config) { c.Job.NumWorkers = 1 })
		first := w.task(0)
		p[0].hears("world 1.1 [0] from []")
		p[0].close()
		synctest.Wait()
		again := w.stranger(0)
		again.arrive(&wire.Arrival{Generation: 1, Round: 1, Version: 1, Ledger: had(first.Lease, 2)})
		if word := again.word(); say(word) != "world 2.2 [0] from []" || word.GetWorld().Floor <= first.Lease {
			t.Fatal(word)
		}
		_, err := w.ReportTask(t.Context(), &wire.ReportTaskRequest{Worker: 0, Lease: first.Lease})
		wantCode(t, err, codes.FailedPrecondition)
		w.wantTask(w.task(0), 0, 0)
	})
}
