package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
)

func goodputBenchmarks() []benchmark {
	return []benchmark{{name: "goodput", run: goodput}}
}

// window is the time between two kills.
const window = 10 * time.Second

// goodput kills a worker of a ring every ten seconds, four times. The ring has as many workers as
// there are cores, so that no other worker has spare time for the work of a lost one. The
// undisturbed rate is measured for half as many windows before the kills, and for as many after
// them, so that a gradual change of the machine's speed has no effect.
func goodput(ctx context.Context, b *bench) error {
	kills, workers := b.n(4), runtime.NumCPU()
	if workers < 2 {
		return b.skip("goodput", missingPeer("one core: a ring of one worker has no survivors"))
	}
	j, err := b.mnistRing(ctx, workers)
	if err != nil {
		return err
	}
	r, err := b.startRing(ctx, j)
	if err != nil {
		return err
	}
	defer r.stop(ctx)
	before, err := r.undisturbed(ctx, kills/2)
	if err != nil {
		return err
	}
	var disturbed []time.Time
	tick := time.NewTicker(window)
	defer tick.Stop()
	for range kills {
		if err := r.read(); err != nil {
			return err
		}
		disturbed = append(disturbed, time.Now())
		killed, err := r.signal(ctx, syscall.SIGKILL)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "  worker-%d killed, the survivors' next step %v later\n", killed.worker,
			killed.took.Round(time.Millisecond))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	after, err := r.undisturbed(ctx, kills/2)
	if err != nil {
		return err
	}
	if err := r.replaced(ctx, kills); err != nil {
		return err
	}
	b.compared(Result{Name: fmt.Sprintf("goodput/%d workers, one killed every %v", workers, window),
		Unit: "records/s", Threads: 1,
		Peer: "the same job undisturbed", Target: ">= 0.95"}, r.rates(disturbed), r.rates(append(before, after...)))
	return nil
}

// undisturbed waits until the ring is complete and has a steady rate, and then for a number of
// windows, whose start times it returns.
func (r *liveRing) undisturbed(ctx context.Context, windows int) ([]time.Time, error) {
	if err := r.whole(ctx); err != nil {
		return nil, err
	}
	if err := pause(ctx, window/2); err != nil {
		return nil, err
	}
	start := time.Now()
	var all []time.Time
	for i := range windows {
		all = append(all, start.Add(time.Duration(i)*window))
	}
	if err := pause(ctx, time.Duration(windows)*window); err != nil {
		return nil, err
	}
	return all, r.read()
}

// rates returns the records per second that the ring has applied in each of the windows.
func (r *liveRing) rates(windows []time.Time) []float64 {
	var all []float64
	updates := r.updates()
	for _, start := range windows {
		var records int64
		for _, s := range updates {
			if !s.at.Before(start) && s.at.Before(start.Add(window)) {
				records += s.records
			}
		}
		all = append(all, float64(records)/window.Seconds())
	}
	return all
}
