package master

import (
	"fmt"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/book"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// work is the records of the job, and the queue that leases them. The queue is another one when
// other records are planned, and when it is restored.
type work struct {
	shared
	queue *task.Queue
	// the second account of the records that the queue credits
	book *book.Book
	// the ledger of the holders of the model, as a new master has found it; nil: the book has it
	held *ledger.Ledger
	// data set that a program has declared; nil: none
	dataset *wire.Dataset
}

// unplanned returns the work of a master before it is planned. Its book continues that of the
// master before, or that of the job before it was resumed.
func unplanned(s shared, c *Config, former *record) *work {
	before := c.Journal.Book
	if former != nil {
		before = former.Journal.Book
	}
	return &work{shared: s, book: book.New(before)}
}

// policy returns how the records are cut into tasks.
func (w *work) policy() task.Policy {
	j := w.Job
	p := task.Policy{
		RecordsPerTask: j.RecordsPerTask(),
		Epochs:         j.NumEpochs,
		MaxAttempts:    j.MaxTaskRetries,
		Timeout:        j.TaskTimeout.Duration,
		Shuffle:        j.Shuffle,
		Seed:           j.Seed,
		MaxRecords:     j.MaxRecords(),
	}
	if d := w.dataset; d != nil {
		p.RecordsPerTask, p.Epochs, p.Shuffle, p.Seed = d.Task, int(d.Epochs), d.Shuffle, d.Seed
		p.Unsized = d.Stream
	}
	return p
}

// plan makes the queue of the data.
func (w *work) plan(training, validation []task.Shard) (err error) {
	w.Training = training
	w.Validation = slices.DeleteFunc(slices.Clone(validation), func(s task.Shard) bool { return s.Count == 0 })
	if w.queue, err = task.New(training, w.policy()); err != nil {
		return fmt.Errorf("plan the job: %w", err)
	}
	if err := w.book.Plan(training, w.policy()); err != nil {
		return fmt.Errorf("plan the job: %w", err)
	}
	if incarnation := w.Self.Header().Incarnation; incarnation > 1 {
		w.queue.NumberAs(incarnation)
	}
	return nil
}

// declare plans the data set that a program declares, as one shard whose records are numbers; those
// of a stream are the numbers of its shards.
func (w *work) declare(d *wire.Dataset) error {
	w.dataset = d
	return w.plan([]task.Shard{{Name: "dataset", Count: d.Size}}, nil)
}

// restore makes the queue of a model that contains the records of a ledger. saved is the queue of
// the previous master, as its record has it.
func (w *work) restore(applied *ledger.Ledger, saved task.Snapshot) error {
	queue, err := task.Restore(w.Training, w.policy(), applied, saved, w.Self.Header().Incarnation)
	if err == nil {
		w.enter()
		w.queue, w.held = queue, new(applied.Clone())
	}
	return err
}

// enter writes what the queue has credited into the book.
func (w *work) enter() {
	for _, c := range w.queue.Credits() {
		w.book.Enter(c)
	}
}

// rewind sets the training back to a model with the records of a ledger.
func (w *work) rewind(l *ledger.Ledger) error {
	w.enter()
	if err := w.queue.Rewind(l); err != nil {
		return err
	}
	w.book.Set(l)
	w.held = nil
	return nil
}

// found makes the book that of the model which a new master has found.
func (w *work) found() {
	if w.held == nil {
		return
	}
	w.enter()
	for _, epoch := range w.book.Find(w.held) {
		w.events.happen(EpochFinished{Epoch: epoch, Records: w.book.RecordsOf(epoch)})
	}
	w.held = nil
}

// lose takes back the leases of a worker; progress says how many of their records are in the model.
// The caller holds the mutex.
func (w *work) lose(worker int, progress map[int64]int64, fault string) {
	for _, l := range w.queue.Lose(worker, progress, fault, w.clock.at(time.Now())) {
		w.Log.Info("Lease taken back", "lease", l.ID, "worker", l.Worker, "task", l.Task, "done", l.Done)
		w.events.happen(LeaseReturned{l})
	}
	w.waiters.wake()
}

// nextEpoch opens the next epoch after one that is finished.
func (w *work) nextEpoch() {
	stats := w.queue.Stats()
	w.Log.Info("Epoch finished", "epoch", stats.Epoch, "records", stats.EpochDone)
	w.enter()
	// otherwise its end is in the journal already
	if w.book.Finished() < stats.Epoch {
		w.book.Finish()
		w.events.happen(EpochFinished{Epoch: stats.Epoch, Records: stats.EpochDone})
	}
	w.queue.NextEpoch()
	w.waiters.wake()
}

// counted returns how many records are done, and how many there are: trained on, or measured or
// predicted if the job trains nothing.
func (w *work) counted() (done, total int64) {
	stats := w.queue.Stats()
	if !w.Job.Trains() && !w.Job.Runs() {
		return stats.Measured, stats.ToMeasure
	}
	return stats.Done, stats.Total
}
