package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

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

// scaling compares rings of two and of four workers, of one thread each, with two independent jobs
// of one worker each, which is the most that two cores can do, and with twice one worker. More
// workers than cores cannot be faster. Workers of a ring also wait for the slowest of them in each
// step. As many independent jobs show how much that alone takes: each step counts as long as the
// longest one of theirs.
//
// Epochs are short here: with tasks of 16 minibatches, some workers have none in the last rounds of
// each epoch.
func (b *bench) scaling(ctx context.Context, name string, one *job.Job, epochs int, target string) error {
	one.NumMinibatchesPerTask = 4
	limits := make(map[int][]float64) // by the number of jobs
	var sides []side
	for _, m := range []struct{ workers, jobs int }{{1, 1}, {2, 1}, {4, 1}, {1, 2}, {1, 4}} {
		sides = append(sides, func() (float64, error) {
			rate, limit, err := b.ringRate(ctx, one, m.workers, m.jobs, epochs*min(2, m.workers))
			if err != nil {
				return 0, fmt.Errorf("%d jobs of %d workers: %w", m.jobs, m.workers, err)
			}
			limits[m.jobs] = append(limits[m.jobs], limit)
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
	two := "two jobs of one worker at the same time"
	for _, row := range []struct {
		side   string
		ours   []float64
		peer   string
		theirs []float64
		target string
	}{
		{"2 workers", found[1], two, found[3], target},
		{"2 workers", found[1], two + ", each step as long as the longer one", limits[2], ""},
		{"2 workers", found[1], "2 × one worker", twice, ""},
		{"4 workers", found[2], two, found[3], ">= 0.92"},
		{"4 workers", found[2], "four jobs of one worker at the same time, each step as long as the longest one",
			limits[4], ""},
		{"4 workers", found[2], "2 × one worker", twice, ""},
		{two, found[3], "2 × one worker", twice, ""},
	} {
		b.paired(Result{Name: fmt.Sprintf("scaling/%s, %s", name, row.side), Unit: "records/s", Threads: 1,
			Peer: row.peer, Target: row.target}, row.ours, row.theirs)
	}
	return nil
}

// ringRate returns the sum of the records per second of several jobs that run at the same time, and
// the sum if each of their steps had taken as long as the longest one of them.
func (b *bench) ringRate(ctx context.Context, one *job.Job, workers, jobs, epochs int) (sum, together float64,
	err error) {
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
			return 0, 0, err
		}
		rings = append(rings, r)
	}
	var all [][]step
	for _, r := range rings {
		steps, err := r.steady(ctx)
		if err != nil {
			return 0, 0, err
		}
		sum += perSecond(steps)
		all = append(all, steps)
	}
	return sum, perSecond(inStep(all)), nil
}

// inStep returns the steps of several rings as those of one, each of which takes as long as the
// longest of theirs.
func inStep(rings [][]step) []step {
	n := len(rings[0])
	for _, steps := range rings {
		n = min(n, len(steps))
	}
	all := []step{{at: rings[0][0].at}}
	for i := 1; i < n; i++ {
		next := all[i-1]
		next.records = 0
		var longest time.Duration
		for _, steps := range rings {
			longest = max(longest, steps[i].at.Sub(steps[i-1].at))
			next.records += steps[i].records
		}
		next.at = next.at.Add(longest)
		all = append(all, next)
	}
	return all
}

// perSecond returns the records per second of all steps but the first, from whose end it counts.
func perSecond(steps []step) float64 {
	var records int64
	for _, s := range steps[1:] {
		records += s.records
	}
	return float64(records) / steps[len(steps)-1].at.Sub(steps[0].at).Seconds()
}

// steady waits for the end of the job, and returns its steps between a fifth and nine tenths of its
// records: all workers are at work then.
func (r *liveRing) steady(ctx context.Context) ([]step, error) {
	status, err := r.handle.Wait(ctx)
	if err != nil {
		return nil, err
	}
	if status.State != string(job.Succeeded) {
		return nil, fmt.Errorf("job %s: %s", status.State, status.Reason)
	}
	if err := r.read(); err != nil {
		return nil, err
	}
	var steps []step
	var done int64
	for _, s := range r.updates() {
		done += s.records
		if share := float64(done) / float64(status.RecordsTotal); share >= 0.2 {
			steps = append(steps, s)
			if share >= 0.9 {
				return steps, nil
			}
		}
	}
	return nil, fmt.Errorf("the logs tell of %d records, the job of %d", done, status.RecordsTotal)
}
