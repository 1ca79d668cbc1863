package master

import (
	"slices"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// newWork returns the work of a job that trains on some shards, and its events.
func newWork(t *testing.T, j *job.Job, training ...task.Shard) (*work, *[]Event) {
	t.Helper()
	all := new([]Event)
	m := newShell(Config{Job: j, Log: config(t).Log, Self: firstMaster(),
		OnEvent: func(e Event) { *all = append(*all, e) }}, nil, nil)
	if err := m.work.plan(training, []task.Shard{{Name: "empty"}}); err != nil {
		t.Fatal(err)
	}
	if len(m.Validation) != 0 {
		t.Errorf("validation with empty shards: %v", m.Validation)
	}
	return m.work, all
}

// The leases of a lost worker are leased again without the records that are in the model, and calls
// that wait for a task look again.
func TestWorkIsLost(t *testing.T) {
	w, events := newWork(t, job.Default(), task.Shard{Name: "shard", Count: 8})
	lease, ok := w.queue.Lease(3, time.Now())
	if !ok {
		t.Fatal("no lease")
	}
	changed := w.waiters.changed
	w.lose(3, map[int64]int64{lease.ID: 5}, "")
	select {
	case <-changed:
	default:
		t.Error("no call looks again")
	}
	if len(*events) != 1 || (*events)[0].(LeaseReturned).Lease.Done != 5 || w.queue.Stats().Done != 5 {
		t.Errorf("%+v, %+v", *events, w.queue.Stats())
	}
	if again, _ := w.queue.Lease(4, time.Now()); again.Number != lease.Number || again.Done != 5 {
		t.Errorf("leased again: %+v", again)
	}
	if done, total := w.counted(); done != 5 || total != w.queue.Stats().Total {
		t.Errorf("%d of %d", done, total)
	}
}

// A declared data set is cut as the program has declared, whatever the flags of the job.
func TestWorkIsDeclared(t *testing.T) {
	w, _ := newWork(t, job.DefaultOf(job.Run))
	if err := w.declare(&wire.Dataset{Size: 10, Epochs: 3, Shuffle: true, Seed: 7, Task: 4}); err != nil {
		t.Fatal(err)
	}
	if p := w.policy(); p.RecordsPerTask != 4 || p.Epochs != 3 || !p.Shuffle || p.Seed != 7 {
		t.Errorf("%+v", p)
	}
	if !slices.Equal(w.Training, []task.Shard{{Name: "dataset", Count: 10}}) || w.queue.Stats().Total != 30 {
		t.Errorf("%v, %+v", w.Training, w.queue.Stats())
	}
}
