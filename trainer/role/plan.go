package role

import (
	"fmt"
	"log/slog"
	"math"

	"github.com/elasticdl/elasticdl/trainer/data"
	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/task"
	"github.com/elasticdl/elasticdl/trainer/zoo"
)

// Plan returns what a master needs to know of a job, but for where it listens and where its pods run: the
// metrics of its model and the shards of its data, which this machine must have.
func Plan(j *job.Job, log *slog.Logger) (master.Config, error) {
	config := master.Config{Job: j, Log: log}
	model, err := zoo.Lookup(j.ModelDef)
	if err != nil {
		return config, err
	}
	config.Metric = results(model)
	if config.Training, err = shards(j.TrainingData, j.DataReaderParams); err != nil {
		return config, fmt.Errorf("--training_data: %w", err)
	}
	if config.Validation, err = shards(j.ValidationData, j.DataReaderParams); err != nil {
		return config, fmt.Errorf("--validation_data: %w", err)
	}
	return config, nil
}

// shards lists what a job reads, nothing if path is empty.
func shards(path string, params map[string]string) ([]task.Shard, error) {
	if path == "" {
		return nil, nil
	}
	reader, err := data.Open(path, params)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	return reader.Shards()
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
