package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/elasticdl/elasticdl/trainer/job"
)

func scalingBenchmarks() []benchmark {
	return []benchmark{
		{"scaling/mnist_cnn", func(ctx context.Context, b *bench) error {
			dir, err := b.mnist(ctx)
			if err != nil {
				return err
			}
			return b.scaling(ctx, "mnist_cnn", ringJob("mnist.mnist_functional_api.custom_model", filepath.Join(dir, "train"), 1), 2, ">= 0.95")
		}},
		{"scaling/resnet20", func(ctx context.Context, b *bench) error {
			dir, err := b.cifar(ctx)
			if err != nil {
				return err
			}
			return b.scaling(ctx, "resnet20", ringJob("cifar10.cifar10_resnet20.custom_model", filepath.Join(dir, "train"), 1), 4, ">= 0.9")
		}},
	}
}

// scaling compares rings of two and of four workers of one thread each with one such
// worker, twice which two cores should do; and with what two cores can do at
// all, which is two jobs of one worker each that know nothing of one another. More
// workers than cores can do no more than that either.
func (b *bench) scaling(ctx context.Context, name string, one *job.Job, epochs int, target string) error {
	const turns = 3
	rates := make(map[string][]float64)
	for range turns {
		for _, m := range []struct {
			name    string
			workers int
			jobs    int
		}{{"1", 1, 1}, {"2", 2, 1}, {"4", 4, 1}, {"1+1", 1, 2}} {
			rate, err := b.ringRate(ctx, one, m.workers, m.jobs, epochs*min(2, m.workers))
			if err != nil {
				return fmt.Errorf("%s workers: %w", m.name, err)
			}
			rates[m.name] = append(rates[m.name], rate)
		}
	}
	for _, r := range rates {
		slices.Sort(r)
	}
	twice := func(r []float64) []float64 { return []float64{2 * r[0], 2 * r[turns/2], 2 * r[turns-1]} }
	for _, row := range []struct {
		workers, target, peerName string
		peer                      []float64
	}{
		{"2", target, "2 x one worker", twice(rates["1"])},
		{"2", target, "two jobs of one", rates["1+1"]},
		{"4", ">= 0.85", "2 x one worker", twice(rates["1"])},
		{"4", ">= 0.85", "two jobs of one", rates["1+1"]},
	} {
		ours := rates[row.workers]
		b.add(Result{Name: fmt.Sprintf("scaling/%s, %s workers", name, row.workers), Unit: "records/s", Threads: 1, PeerName: row.peerName, Target: row.target,
			Ours: ours[turns-1], OursMedian: median(ours), Peer: row.peer[turns-1], PeerMedian: median(row.peer)})
	}
	return nil
}

// ringRate is the records per second of so many jobs at the same time, all together.
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

// rate waits for the end of the job and returns its records per second between a fifth
// and nine tenths of its way: all workers are at work then.
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
