package worker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"fmt"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/store/outage"
	"github.com/elasticdl/elasticdl/trainer/store/prediction"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// fixed is the strategy of a job that trains nothing: the model in the engine does not change.
type fixed struct {
	*worker
	place     *prediction.Place // of a job that predicts
	processor *zoo.Processor
	lease     int64 // of a prediction: the one in work,
	part      bytes.Buffer
	fields    []string
}

func newFixed(w *worker) (*fixed, error) {
	f := &fixed{worker: w, processor: w.Model.Processor}
	if w.Job.Type != job.Predict {
		return f, nil
	}
	if f.processor == nil {
		f.processor = zoo.Outputs()
	}
	var err error
	if f.place, err = prediction.Open(w.Open, w.Job.PredictionOutputs, w.Self.Header().Job); err != nil {
		return nil, fmt.Errorf("--prediction_outputs=%s: %w", w.Job.PredictionOutputs, err)
	}
	return f, nil
}

// run implements strategy.
func (f *fixed) run(ctx context.Context, feed *feeder) error {
	return f.each(ctx, feed, func(it item) error { return f.work(ctx, it, feed) })
}

func (f *fixed) beat(*wire.HeartbeatRequest) {}
func (f *fixed) beaten(*wire.HeartbeatReply) {}

// work processes one item and returns its batch to the feeder. A fault of the lease is reported to
// the master.
func (f *fixed) work(ctx context.Context, it item, feed *feeder) error {
	defer feed.recycle(it.batch)
	lease := it.task.Lease
	if f.leases.abandoned(lease) {
		return nil
	}
	err := it.err
	switch {
	case err != nil:
	case it.task.Kind == wire.TaskKind_EVALUATION:
		err = f.measure(it, f.Version)
	case it.task.Kind == wire.TaskKind_PREDICTION:
		err = f.predict(ctx, it)
	case it.task.Kind == wire.TaskKind_EXPORT:
		err = f.write(ctx, lease, func() error {
			return f.place.Finish(int(it.task.Of), f.processor.Header != nil, func(bytes int64) {
				f.leases.advance(lease, bytes)
			})
		})
	default:
		err = fmt.Errorf("a task of %v in a job to %s", it.task.Kind, f.Job.Type)
	}
	switch {
	case err != nil:
		return f.fail(ctx, it.task, err)
	case it.last:
		return f.settle(ctx, it.task)
	}
	return nil
}

// predict adds the rows of a minibatch to the part of its lease, and writes the part when it is
// complete.
func (f *fixed) predict(ctx context.Context, it item) error {
	// the previous lease may have been taken back before it was complete
	first := f.lease != it.task.Lease
	if first {
		f.lease = it.task.Lease
		f.part.Reset()
	}
	outputs, err := f.Predict(it.batch)
	if err != nil {
		return err
	}
	if len(outputs.Shape) == 0 || outputs.Shape[0] != len(it.records) {
		return fmt.Errorf("the model's outputs %v are not of %d records", outputs.Shape, len(it.records))
	}
	each := len(outputs.Data) / len(it.records)
	rows := csv.NewWriter(&f.part)
	if first && f.processor.Header != nil {
		rows.Write(f.processor.Header(each)) // Flush tells its error
	}
	for i, record := range it.records {
		if f.fields, err = f.processor.Row(f.fields[:0], outputs.Data[i*each:(i+1)*each], record); err != nil {
			number := it.task.Start + it.done - int64(len(it.records)-i)
			return fmt.Errorf("process the outputs of record %d of %s: %w", number, it.task.Shard, err)
		}
		rows.Write(f.fields)
	}
	if rows.Flush(); rows.Error() != nil {
		return rows.Error()
	}
	f.leases.advance(it.task.Lease, it.done)
	if !it.last {
		return nil
	}
	return f.write(ctx, it.task.Lease, func() error {
		return f.place.Write(int(it.task.Number), int(it.task.Of), f.part.Bytes())
	})
}

// write calls do, which writes to --prediction_outputs. While the storage fails, for example
// because it is full, it waits.
func (f *fixed) write(ctx context.Context, lease int64, do func() error) error {
	err := f.patience(lease).Reach(ctx, func() error { return outage.Of(do()) })
	if err != nil {
		return fmt.Errorf("--prediction_outputs=%s: %w", f.Job.PredictionOutputs, err)
	}
	return nil
}

// load reads the commit that the master has chosen into the engine.
func (o Options) load(ctx context.Context, cfg *Config, base *wire.Base) error {
	err := outage.Patience{Log: o.Log}.Reach(ctx, func() error { return outage.Of(o.tryLoad(cfg, base)) })
	if err != nil {
		return cmp.Or(context.Cause(ctx), fmt.Errorf("--checkpoint_dir_for_init=%s: %w",
			cfg.Job.CheckpointDirForInit, err))
	}
	return nil
}

func (o Options) tryLoad(cfg *Config, base *wire.Base) error {
	from, err := o.Open.Find(cfg.Job.CheckpointDirForInit)
	if err != nil {
		return err
	}
	// this commit, even if a newer one was made since
	if base != nil {
		from.Commit, from.Checksum, from.File = checkpoint.Name{Number: base.Number, Claim: base.Claim},
			base.Checksum, ""
	}
	if cfg.Version, err = from.Version(); err == nil {
		err = from.Load(cfg.Engine.Layout(), 0, cfg.Engine.Values())
	}
	if err != nil {
		return err
	}
	if now, err := from.Version(); err != nil || now != cfg.Version {
		return cmp.Or(err, fmt.Errorf("version %d replaced version %d while it was read", now, cfg.Version))
	}
	return nil
}
