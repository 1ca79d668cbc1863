package worker

import (
	"context"
	"fmt"
	"slices"

	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/store/outage"
	"github.com/elasticdl/elasticdl/trainer/train/data"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

// ahead is the number of minibatches that are read before they are needed.
const ahead = 2

// item is one minibatch of a lease, or the reason why the rest of the lease cannot be read.
type item struct {
	task *wire.Task
	// nil if err is set, and for the export
	batch *zoo.Batch
	// of the batch, for a prediction
	records [][]byte
	// records of the task that are done once this item is
	done int64
	last bool
	err  error
}

// feeder turns leases into minibatches. Batches circulate: items carries full ones, free returns
// empty ones.
type feeder struct {
	*worker
	items   chan item
	free    chan *zoo.Batch
	done    chan struct{} // closed when the job has ended
	records [][]byte
}

func newFeeder(w *worker) *feeder {
	f := &feeder{worker: w, items: make(chan item, ahead),
		free: make(chan *zoo.Batch, ahead+2+2*maxOffers), done: make(chan struct{})}
	for range cap(f.free) {
		f.free <- new(zoo.Batch)
	}
	return f
}

func (f *feeder) recycle(b *zoo.Batch) {
	if b != nil {
		f.free <- b
	}
}

// run leases and reads until the master says DONE, then it closes items. After an error items stays
// open; the consuming loop ends by ctx.
func (f *feeder) run(ctx context.Context) error {
	for {
		t, err := f.lease(ctx)
		if err != nil {
			return err
		}
		switch t.Kind {
		case wire.TaskKind_DONE:
			close(f.done)
			close(f.items)
			return nil
		case wire.TaskKind_TRAINING, wire.TaskKind_EVALUATION, wire.TaskKind_PREDICTION:
			f.leases.hold(t)
			err = f.read(ctx, t)
		case wire.TaskKind_EXPORT:
			f.leases.hold(t)
			err = f.send(ctx, item{task: t, last: true})
		}
		if err != nil {
			return err
		}
	}
}

// lease asks the master for a task until it answers.
func (f *feeder) lease(ctx context.Context) (*wire.Task, error) {
	var task *wire.Task
	err := membership.Retry(ctx, func() error {
		reply, err := f.Master.GetTask(ctx, &wire.GetTaskRequest{Worker: int32(f.Index), Held: f.leases.ids()})
		task = reply.GetTask()
		return err
	})
	return task, err
}

// read sends the minibatches of a task, except for the records that are done already.
func (f *feeder) read(ctx context.Context, t *wire.Task) error {
	reader, mode := f.Training, zoo.Training
	switch t.Kind {
	case wire.TaskKind_EVALUATION:
		reader, mode = f.Validation, zoo.Evaluation
	case wire.TaskKind_PREDICTION:
		reader, mode = f.Prediction, zoo.Prediction
	}
	order := f.order(t)[t.Done:]
	// its worker was lost after the last push, before the report
	if len(order) == 0 {
		return f.settle(ctx, t)
	}
	if err := reader.Learn(t.Shard, blocks(t)); err != nil {
		return f.send(ctx, item{task: t, err: err})
	}
	patience := f.patience(t.Lease)
	for at := 0; at < len(order); {
		if f.leases.abandoned(t.Lease) {
			return nil
		}
		n := min(f.Job.MinibatchSize, len(order)-at)
		it := item{task: t, done: t.Done + int64(at+n), last: at+n == len(order)}
		select {
		case it.batch = <-f.free:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		fill := func(b *zoo.Batch) func() error {
			return func() error { return f.fill(reader, mode, b, t.Shard, order[at:at+n]) }
		}
		it.err = patience.Reach(ctx, fill(it.batch))
		if t.Kind == wire.TaskKind_PREDICTION {
			it.records = slices.Clone(f.records)
		}
		if err := f.send(ctx, it); err != nil || it.err != nil && !outage.Is(it.err) {
			return err
		}
		// other workers may reach the storage: leave the next tasks to them until this worker does,
		// too
		if it.err != nil {
			outage.Patience{}.Reach(ctx, fill(new(zoo.Batch)))
			return context.Cause(ctx)
		}
		at += n
	}
	return nil
}

// blocks returns where the records of a task are in its file, as the master has found out.
func blocks(t *wire.Task) []task.Block {
	told := make([]task.Block, len(t.Blocks))
	for i, b := range t.Blocks {
		told[i] = task.Block{First: b.First, Records: b.Records, Offset: b.Offset, Size: b.Size, Checksum: b.Checksum}
	}
	return told
}

// patience returns how a lease waits for storage that fails. Meanwhile its task counts as being
// worked on.
func (w *worker) patience(lease int64) outage.Patience {
	return outage.Patience{
		Log:     w.Log,
		Resting: func(rests bool) { w.leases.rest(lease, rests) },
		Failing: func(err error) { w.leases.fails(lease, err) },
		Futile:  func() bool { return w.leases.abandoned(lease) || w.leaving() },
	}
}

// order returns the indices of a task's records within its shard, in the order in which they are
// used.
func (f *feeder) order(t *wire.Task) []int64 {
	kind := task.Training
	if t.Kind != wire.TaskKind_TRAINING {
		// any kind but training: in the file's order
		kind = task.Evaluation
	}
	policy := task.Policy{Shuffle: f.Job.Shuffle, Seed: f.Job.Seed}
	return policy.Order(task.Task{Kind: kind, Number: int(t.Number), Shard: t.Shard, Start: t.Start,
		End: t.End, Epoch: int(t.Epoch)})
}

// fill reads the records at the given indices into a batch.
func (f *feeder) fill(reader data.Reader, mode zoo.Mode, b *zoo.Batch, shard string, indices []int64) error {
	f.records = f.records[:0]
	for _, i := range indices {
		record, err := reader.ReadAt(shard, i)
		if err != nil {
			return err
		}
		f.records = append(f.records, record)
	}
	err := f.Model.Feed(mode, f.records, b)
	if err == nil {
		return nil
	}
	for k := range f.records { // position among the shuffled records
		if err := f.Model.Feed(mode, f.records[k:k+1], b); err != nil {
			return fmt.Errorf("feed record %d of %s: %w", indices[k], shard, err)
		}
	}
	return fmt.Errorf("feed %d records of %s together: %w", len(indices), shard, err)
}

func (f *feeder) send(ctx context.Context, it item) error {
	select {
	case f.items <- it:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// each calls work with one item after the other until there are no more. It returns
// [membership.ErrLeft] if the worker is asked to leave.
func (w *worker) each(ctx context.Context, feed *feeder, work func(item) error) error {
	for {
		if w.leaving() {
			return membership.ErrLeft
		}
		it, more, err := w.next(ctx, feed)
		if err == nil && more {
			err = work(it)
		}
		if err != nil || !more {
			return err
		}
	}
}

// next returns the next item, and false if there are no more. It returns [membership.ErrLeft] if
// the worker is asked to leave.
func (w *worker) next(ctx context.Context, feed *feeder) (it item, more bool, err error) {
	w.watch.begin(forData)
	defer w.watch.end(forData)
	select {
	case <-ctx.Done():
		return it, false, context.Cause(ctx)
	case <-w.asked:
		return it, false, membership.ErrLeft
	case it, more = <-feed.items:
		return it, more, nil
	}
}
