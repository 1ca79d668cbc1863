package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

func scalingBenchmarks() []benchmark {
	return []benchmark{
		{name: "scaling/mnist_cnn", run: func(ctx context.Context, b *bench) error {
			dir, err := b.mnist(ctx)
			if err != nil {
				return err
			}
			return b.scaling(ctx, "mnist_cnn", ringJob("mnist.mnist_functional_api.custom_model",
				filepath.Join(dir, "train"), 1), 2, ">= 0.95")
		}},
		{name: "scaling/resnet20", long: true, run: func(ctx context.Context, b *bench) error {
			dir, err := b.cifar(ctx)
			if err != nil {
				return err
			}
			return b.scaling(ctx, "resnet20", ringJob("cifar10.cifar10_resnet20.custom_model",
				filepath.Join(dir, "train"), 1), 4, ">= 0.9")
		}},
	}
}

// scaling compares rings of two and of four workers, of one thread each, with one such worker: two
// cores should be twice as fast, and more workers than cores cannot be faster. It also compares
// with two independent jobs of one worker each, which is the most that two cores can do.
func (b *bench) scaling(ctx context.Context, name string, one *job.Job, epochs int, target string) error {
	var sides []side
	for _, m := range []struct{ workers, jobs int }{{1, 1}, {2, 1}, {4, 1}, {1, 2}} {
		sides = append(sides, func() (float64, error) {
			rate, err := b.ringRate(ctx, one, m.workers, m.jobs, epochs*min(2, m.workers))
			if err != nil {
				return 0, fmt.Errorf("%d jobs of %d workers: %w", m.jobs, m.workers, err)
			}
			return rate, nil
		})
	}
	found, err := turns(b.n(3), sides...)
	if err != nil {
		return err
	}
	var twice []float64
	for _, rate := range found[0] {
		twice = append(twice, 2*rate)
	}
	for _, row := range []struct {
		workers int
		target  string
		ours    []float64
	}{{2, target, found[1]}, {4, ">= 0.85", found[2]}} {
		r := Result{Name: fmt.Sprintf("scaling/%s, %d workers", name, row.workers), Unit: "records/s",
			Threads: 1, Peer: "2 × one worker", Target: row.target}
		b.paired(r, row.ours, twice)
		r.Peer = "two jobs of one worker at the same time"
		b.paired(r, row.ours, found[3])
	}
	return nil
}

// ringRate returns the sum of the records per second of several jobs that run at the same time.
func (b *bench) ringRate(ctx context.Context, one *job.Job, workers, jobs, epochs int) (float64, error) {
	var rings []*liveRing
	defer func() {
		for _, r := range rings {
			r.stop(ctx)
		}
	}()
	for i := range jobs {
		j := *one
		j.Name, j.NumWorkers, j.NumEpochs = fmt.Sprintf("%s-%d", one.Name, i), workers, epochs
		r, err := b.startRing(ctx, &j)
		if err != nil {
			return 0, err
		}
		rings = append(rings, r)
	}
	sum := 0.0
	for _, r := range rings {
		rate, err := r.rate(ctx)
		if err != nil {
			return 0, err
		}
		sum += rate
	}
	return sum, nil
}

// rate waits for the end of the job, and returns its records per second between a fifth and nine
// tenths of its records: all workers are at work then.
func (r *liveRing) rate(ctx context.Context) (float64, error) {
	status, err := r.handle.Wait(ctx)
	if err != nil {
		return 0, err
	}
	if status.State != string(job.Succeeded) {
		return 0, fmt.Errorf("job %s: %s", status.State, status.Reason)
	}
	if err := r.read(); err != nil {
		return 0, err
	}
	var from, to point
	var done int64
	for _, s := range r.updates() {
		done += s.records
		switch share := float64(done) / float64(status.RecordsTotal); {
		case from.records == 0 && share >= 0.2:
			from = point{s.at, done}
		case to.records == 0 && share >= 0.9:
			to = point{s.at, done}
		}
	}
	if to.records == 0 {
		return 0, fmt.Errorf("the logs tell of %d records, the job of %d", done, status.RecordsTotal)
	}
	return float64(to.records-from.records) / to.at.Sub(from.at).Seconds(), nil
}
