package main

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"
)

func recoveryBenchmarks() []benchmark {
	return []benchmark{
		{"recovery/kill", recoveryKill},
		{"recovery/stop", recoveryStop},
		{"recovery/torchrun default", func(ctx context.Context, b *bench) error {
			return b.besideTorchrun(ctx, "torchrun", 1, "<= 0.01")
		}},
		{"recovery/torchrun tuned", func(ctx context.Context, b *bench) error {
			return b.besideTorchrun(ctx, "torchrun, tuned", 3, "<= 0.05", tuned...)
		}},
	}
}

// besideTorchrun compares the losses of workers of ours with those of torchrun's.
func (b *bench) besideTorchrun(ctx context.Context, peer string, kills int, target string, flags ...string) error {
	ours, err := b.ringKills(ctx)
	if err != nil {
		return err
	}
	python, err := findPython(ctx, debian, "torch")
	if err != nil {
		return b.skip("recovery/"+peer, err)
	}
	theirs, err := b.measure(ctx, newTorchrun, setting{python: python, script: "elastic.py", size: 4}, flags, kills, loseNode)
	if err != nil {
		return err
	}
	for _, r := range []struct {
		name         string
		ours, theirs []float64
		target       string
	}{
		{"recovery/kill -9 to the survivors' next step", ours.survivors, theirs[nodeKilled], target},
		{"recovery/newcomer's first step", ours.newcomers, theirs[newcomer], "<= 0.2"},
	} {
		// Medians on both sides: torchrun has had few kills.
		b.add(Result{Name: r.name + ", medians", Unit: "s", Threads: 1, PeerName: peer, Target: r.target,
			Ours: median(r.ours), OursMedian: median(r.ours), Peer: median(r.theirs), PeerMedian: median(r.theirs)})
	}
	return nil
}

// recoveryKill says how long survivors and newcomers take.
func recoveryKill(ctx context.Context, b *bench) error {
	ours, err := b.ringKills(ctx)
	if err != nil {
		return err
	}
	b.within("recovery/kill -9 to the survivors' next step", ours.survivors, 0.3, 1)
	b.within("recovery/newcomer's first step after its process started", ours.newcomers, 1, 1)
	return nil
}

// within adds what the median and the worst of ascending seconds should be at most.
func (b *bench) within(name string, seconds []float64, middle, worst float64) {
	n := len(seconds)
	b.add(Result{Name: fmt.Sprintf("%s, median of %d", name, n), Unit: "s", Threads: 1, PeerName: "wanted", Target: "<= 1",
		Ours: median(seconds), OursMedian: median(seconds), Peer: middle, PeerMedian: middle})
	b.add(Result{Name: fmt.Sprintf("%s, worst of %d", name, n), Unit: "s", Threads: 1, PeerName: "wanted", Target: "<= 1",
		Ours: seconds[n-1], OursMedian: median(seconds), Peer: worst, PeerMedian: worst})
}

// interruptions are how long a job of several workers took after each loss of one.
type interruptions struct {
	survivors []float64 // seconds from the loss to the survivors' next step, ascending
	newcomers []float64 // seconds from a replacement's start to its first step, ascending
}

func median(ascending []float64) float64 { return ascending[len(ascending)/2] }

// ringKills kills random workers of a ring of four, once for all benchmarks that ask.
func (b *bench) ringKills(ctx context.Context) (*interruptions, error) {
	if b.kills != nil {
		return b.kills, nil
	}
	const kills = 50
	j, err := b.mnistRing(ctx, 4)
	if err != nil {
		return nil, err
	}
	r, err := b.startRing(ctx, j)
	if err != nil {
		return nil, err
	}
	defer r.stop(ctx)
	var found interruptions
	for range kills {
		killed, err := r.lose(ctx, syscall.SIGKILL)
		if err != nil {
			return nil, err
		}
		found.survivors = append(found.survivors, killed.took.Seconds())
		joined, err := r.joined(ctx, killed.next)
		if err != nil {
			return nil, err
		}
		found.newcomers = append(found.newcomers, joined.Seconds())
	}
	if err := r.replaced(ctx, kills); err != nil {
		return nil, err
	}
	slices.Sort(found.survivors)
	slices.Sort(found.newcomers)
	b.kills = &found
	return b.kills, nil
}

// recoveryStop stops workers without killing them: only their silence tells of it.
func recoveryStop(ctx context.Context, b *bench) error {
	const stops, silence = 5, time.Second
	j, err := b.mnistRing(ctx, 4)
	if err != nil {
		return err
	}
	j.HeartbeatTimeout.Duration = silence
	r, err := b.startRing(ctx, j)
	if err != nil {
		return err
	}
	defer r.stop(ctx)
	var found []float64
	for range stops {
		stopped, err := r.lose(ctx, syscall.SIGSTOP)
		if err != nil {
			return err
		}
		found = append(found, stopped.took.Seconds())
		if _, err := r.joined(ctx, stopped.next); err != nil {
			return err
		}
	}
	if err := r.replaced(ctx, stops); err != nil {
		return err
	}
	slices.Sort(found)
	b.within("recovery/kill -STOP to the survivors' next step, --heartbeat_timeout=1s", found, 3, 3)
	return nil
}
