package master

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/elasticdl/elasticdl/trainer/elastic/custody"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/store/prediction"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// modelOf returns a directory with an exported model of version 50.
func modelOf(t *testing.T, layout param.Layout) string {
	dir := t.TempDir()
	fill := func(_ int, dst []float32) error { clear(dst); return nil }
	if err := (checkpoint.Model{Version: 50, Layout: layout, Fill: fill}).Export(checkpoint.Local(dir),
		nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// fixedJob returns a change of start's job: it uses a trained model on 6 records, 4 for each task.
func fixedJob(t *testing.T, kind job.Type, outputs string) func(*Config) {
	layout := param.Layout{{Name: "w", Shape: []int{3}, Trainable: true}}
	return func(c *Config) {
		c.Training, c.Validation, c.Layout = nil, []task.Shard{{Name: "new", Count: 6}}, layout
		c.Job.Type, c.Job.Strategy, c.Job.NumPS, c.Job.TrainingData = kind, "", 0, ""
		c.Job.CheckpointDirForInit, c.Job.PredictionOutputs = modelOf(t, layout), outputs
	}
}

// An evaluation job has no servers and trains nothing. Each record is measured once, even if
// workers are lost.
func TestEvaluationJob(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, fixedJob(t, job.Evaluate, ""))
		w.join()
		if reply, err := w.Join(w.Context(), &wire.JoinRequest{Role: wire.Role_WORKER}); err != nil ||
			reply.Base != nil || len(reply.Servers) != 0 {
			t.Errorf("joined %v, %v, with an exported model", reply, err)
		}
		first := w.task(0)
		if first.Kind != wire.TaskKind_EVALUATION || first.Version != 0 || first.End != 4 {
			t.Fatalf("leased %v", first)
		}
		second := w.task(1)
		w.say(&wire.ReportTaskRequest{Worker: 1, Lease: second.Lease, Version: 50,
			Metrics: []*wire.Metric{accuracy(1, 2)}})
		w.pods.end(worker(0), pod.Exit{Reason: "preempted"})
		synctest.Wait()
		if s := w.look(); s.RecordsDone != 2 || s.RecordsTotal != 6 || s.Type != "evaluate" ||
			s.Strategy != "" || s.Version != 50 {
			t.Errorf("status %v", s)
		}
		again := w.task(1)
		if again.Start != 0 || again.End != 4 {
			t.Fatalf("leased %v for what was lost", again)
		}
		w.say(&wire.ReportTaskRequest{Worker: 1, Lease: again.Lease, Version: 50,
			Metrics: []*wire.Metric{accuracy(2, 4)}})
		w.leave()
		if w.err != nil || len(w.status.Evaluations) != 1 || w.status.Evaluations[0].Version != 50 ||
			w.status.Evaluations[0].Metrics["accuracy"] != 0.5 || w.status.RecordsDone != 6 {
			t.Errorf("error %v, status %v", w.err, w.status)
		}
	})
}

// A prediction with another version of the model is refused. When all records are predicted the
// parts are joined; at the end they are removed.
func TestPredictionJob(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		outputs := filepath.Join(dir, "out.csv")
		w := start(t, fixedJob(t, job.Predict, outputs))
		w.join()
		first, second := w.task(0), w.task(1)
		if first.Kind != wire.TaskKind_PREDICTION || first.Version != 50 || first.Number != 0 ||
			first.Of != 2 || second.Number != 1 || second.Start != 4 {
			t.Fatalf("leased %v and %v", first, second)
		}
		place, err := prediction.Open(nil, outputs, "uid")
		if err == nil {
			err = place.Write(0, 2, []byte("x\n"))
		}
		if err != nil {
			t.Fatal(err)
		}
		w.say(&wire.ReportTaskRequest{Worker: 0, Lease: first.Lease, Version: 50})
		w.say(&wire.ReportTaskRequest{Worker: 1, Lease: second.Lease, Version: 51})
		again := w.task(0)
		if again.Start != 4 || w.look().RecordsDone != 4 {
			t.Fatalf("leased %v after a part of another version; %v", again, w.look())
		}
		w.say(&wire.ReportTaskRequest{Worker: 0, Lease: again.Lease, Version: 50})
		merge := w.task(1)
		if merge.Kind != wire.TaskKind_EXPORT || merge.Of != 2 {
			t.Fatalf("leased %v when all is predicted", merge)
		}
		w.say(&wire.ReportTaskRequest{Worker: 1, Lease: merge.Lease})
		w.leave()
		if names, _ := os.ReadDir(dir); w.err != nil || w.status.RecordsDone != 6 || len(names) != 0 {
			t.Errorf("error %v, status %v, left %v", w.err, w.status, names)
		}
	})
}

// All workers use the same commit, the newest complete one at the start of the job, and know that
// it is another job's.
func TestWorkersAreToldOfOneCommit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir, layout := t.TempDir(), param.Layout{{Name: "w", Shape: []int{3}, Trainable: true}}
		commit := func(n int64) {
			place := checkpoint.Dir{Files: checkpoint.Local(dir)}
			s, err := checkpoint.WriteShard(place, checkpoint.Name{Number: n},
				checkpoint.ShardFile(0, 1), checkpoint.Part{Values: make([]float32, 3)})
			if err == nil {
				err = place.WriteCommit(checkpoint.Commit{Format: checkpoint.Format, Number: n, ModelGeneration: 3,
					Version: 10 * n, Layout: checkpoint.VariablesOf(layout), Optimizer: "sgd",
					Shards: []checkpoint.Shard{s}})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		commit(1)
		commit(2)
		w := start(t, func(c *Config) {
			fixedJob(t, job.Evaluate, "")(c)
			c.Job.CheckpointDirForInit = dir
		})
		commit(3)
		w.join()
		reply, err := w.Join(w.Context(), &wire.JoinRequest{Role: wire.Role_WORKER})
		if err != nil || reply.Base.GetNumber() != 2 || !reply.Base.Fresh || reply.Base.Dir != dir ||
			w.look().Version != 20 {
			t.Errorf("joined %v, %v", reply, err)
		}

		// The workers of a restarted master use it, too.
		c := config(t)
		fixedJob(t, job.Evaluate, "")(&c)
		c.Job.CheckpointDirForInit = dir
		for _, before := range []*record{nil,
			{Base: custody.Base{Dir: dir, Number: 2, Checksum: reply.Base.GetChecksum()}}} {
			m, err := newMaster(c)
			if err != nil {
				t.Fatal(err)
			}
			m.handover.record = before
			found, err := m.fixed.find()
			if err != nil {
				t.Fatal(err)
			}
			m.fixed.setModel(found)
			text, err := m.memoir()
			if err != nil {
				t.Fatal(err)
			}
			want := int64(3)
			if before != nil {
				want = 2
			}
			if r, err := readRecord(text); err != nil || r.Base.Number != want || m.strategy.version() != 10*want {
				t.Errorf("after a master with %+v: %+v, %v, version %d", before, r, err, m.strategy.version())
			}
		}
	})
}

// The error about a model that does not fit names the flag of the job and the difference.
func TestModelOfAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) {
			fixedJob(t, job.Evaluate, "")(c)
			c.Layout = param.Layout{{Name: "w", Shape: []int{4}, Trainable: true}}
		})
		<-w.ended
		if w.err == nil || !strings.Contains(w.err.Error(), "--checkpoint_dir_for_init=") ||
			!strings.Contains(w.err.Error(), "parameter w [3] has shape [4] here") {
			t.Error(w.err)
		}
	})
}

// say sends the report of a lease.
func (w *world) say(r *wire.ReportTaskRequest) {
	w.Helper()
	if _, err := w.ReportTask(w.Context(), r); err != nil {
		w.Fatalf("report %v: %v", r, err)
	}
	synctest.Wait()
}
