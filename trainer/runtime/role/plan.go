package role

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"sync"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/store/bucket"
	"github.com/elasticdl/elasticdl/trainer/store/outage"
	"github.com/elasticdl/elasticdl/trainer/train/data"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
)

// Plan returns the part of a master's configuration that the job determines: the metrics of its
// model, and its data, which must be readable on this machine. The caller adds where the master
// listens and where its pods run.
func Plan(j *job.Job, log *slog.Logger) (master.Config, error) {
	if j.Runs() {
		return master.Config{Job: j, Log: log, Open: bucket.Opener(context.Background())}, nil
	}
	config := master.Config{Job: j, Log: log, Open: bucket.Opener(context.Background()),
		Data: &records{job: j, log: log, read: make(map[task.Kind]*data.Files)}}
	model, err := zoo.Lookup(j.ModelDef)
	if err != nil {
		return config, err
	}
	config.Metric = results(model)
	if !j.Trains() {
		config.Layout, err = model.Layout()
	}
	return config, err
}

// records is the data of a job. It implements [master.Data].
type records struct {
	job *job.Job
	log *slog.Logger

	mu   sync.Mutex
	read map[task.Kind]*data.Files // by what is done with them
}

// Index implements [master.Data]. It checks first that the model or the predictions can be written.
func (r *records) Index(ctx context.Context) (training, validation []task.Shard, err error) {
	for _, out := range []struct {
		flag, path string
		check      func(string) error
	}{{"output", r.job.Output, Writable}, {"prediction_outputs", r.job.PredictionOutputs, WritableOutputs}} {
		if out.path == "" {
			continue
		}
		// The output is written when most of the work is done, which is too late to learn that it
		// cannot be.
		err := outage.Patience{Log: r.log}.Reach(ctx, func() error { return outage.Of(out.check(out.path)) })
		if err != nil {
			return nil, nil, fmt.Errorf("--%s=%s: %w", out.flag, out.path, err)
		}
	}
	if training, err = r.shards(ctx, task.Training, r.job.TrainingData); err != nil {
		return nil, nil, fmt.Errorf("--training_data: %w", err)
	}
	if validation, err = r.shards(ctx, task.Evaluation, r.job.ValidationData); err != nil {
		return nil, nil, fmt.Errorf("--validation_data: %w", err)
	}
	if r.job.Type == job.Predict {
		if validation, err = r.shards(ctx, task.Prediction, r.job.PredictionData); err != nil {
			return nil, nil, fmt.Errorf("--prediction_data: %w", err)
		}
	}
	return training, validation, nil
}

// shards lists the shards at a path; "" has none. It waits for storage that fails, and does not
// wait for a path that does not exist.
func (r *records) shards(ctx context.Context, kind task.Kind, path string) (shards []task.Shard, err error) {
	if path == "" {
		return nil, nil
	}
	var files *data.Files
	var missing error
	patience := outage.Patience{Log: r.log}
	err = patience.Reach(ctx, func() (err error) {
		if files, err = data.Open(path, r.job.DataReaderParams, Buckets(context.WithoutCancel(ctx))); errors.Is(err,
			fs.ErrNotExist) {
			missing, err = err, nil
		}
		return err
	})
	if err = cmp.Or(missing, err); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { files.Close() })()
	r.mu.Lock()
	if training := r.read[task.Training]; training != nil {
		files.Like(training)
	}
	r.read[kind] = files
	r.mu.Unlock()
	err = patience.Reach(ctx, func() (err error) {
		shards, err = files.Shards()
		return err
	})
	return shards, err
}

// Blocks implements [master.Data].
func (r *records) Blocks(t task.Task) []task.Block {
	r.mu.Lock()
	files := r.read[t.Kind]
	r.mu.Unlock()
	if files == nil {
		return nil
	}
	return files.Blocks(t.Shard, t.Start, t.End)
}

// Indexed implements [master.Data].
func (r *records) Indexed() (bytes, of int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, files := range r.read {
		b, n := files.Scanned()
		bytes, of = bytes+b, of+n
	}
	return bytes, of
}

// results computes the metrics of a model by name. A name that the model does not have gives NaN.
func results(model *zoo.Model) func(name string, state []float64) float64 {
	metrics := make(map[string]zoo.Metric)
	for _, m := range model.Metrics() {
		metrics[m.Name] = m
	}
	return func(name string, state []float64) float64 {
		m, ok := metrics[name]
		if !ok || len(state) != m.Size {
			return math.NaN()
		}
		return m.Result(state)
	}
}
