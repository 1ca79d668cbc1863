package main

import (
	"context"
	"syscall"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

func recoveryBenchmarks() []benchmark {
	return []benchmark{
		{name: "recovery/kill", run: recoveryKill},
		{name: "recovery/stop", run: recoveryStop},
		{name: "recovery/torchrun default", long: true, run: func(ctx context.Context, b *bench) error {
			return b.torchrunRatio(ctx, "default", "<= 0.01")
		}},
		{name: "recovery/torchrun tuned", long: true, run: func(ctx context.Context, b *bench) error {
			return b.torchrunRatio(ctx, "tuned", "<= 0.05", tuned...)
		}},
	}
}

// torchrunRatio compares losses of ElasticDL's workers, each of which is a process and a pod, with
// those of torchrun's processes and nodes.
func (b *bench) torchrunRatio(ctx context.Context, how, target string, flags ...string) error {
	ours, err := b.ringKills(ctx)
	if err != nil {
		return err
	}
	python, err := findPython(ctx, pypi, "torch")
	if err != nil {
		return b.skip("recovery/torchrun, "+how, err)
	}
	theirs, err := b.measure(ctx, newTorchrun, setting{python: python, script: "elastic.py", size: 4},
		flags, b.peerEvents, loseProcess, loseNode)
	if err != nil {
		return err
	}
	for _, r := range []struct {
		name         string
		ours, theirs []float64
		target       string
	}{
		{"recovery/kill -9 of a worker to the survivors' next step, compared with a process killed",
			ours.survivors, theirs[processKilled], target},
		{"recovery/kill -9 of a worker to the survivors' next step, compared with a node killed",
			ours.survivors, theirs[nodeKilled], target},
		{"recovery/newcomer's first step", ours.newcomers, theirs[newcomer], "<= 0.2"},
	} {
		b.compared(Result{Name: r.name, Unit: "s", Threads: 1, Peer: "torchrun " + python.version +
			", " + how, Target: r.target}, r.ours, r.theirs)
	}
	return nil
}

// recoveryKill measures how long survivors and newcomers take after a worker is killed.
func recoveryKill(ctx context.Context, b *bench) error {
	ours, err := b.ringKills(ctx)
	if err != nil {
		return err
	}
	b.within("recovery/kill -9 to the survivors' next step", ours.survivors, 0.3, 1)
	b.within("recovery/newcomer's first step after its process started", ours.newcomers, 1, 1)
	return nil
}

// interruptions has the times, in seconds, that a job of several workers took after each loss of
// one.
type interruptions struct {
	// from the loss to the survivors' next step
	survivors []float64
	// from a replacement's start to its first step
	newcomers []float64
}

// ringKills kills random workers of a ring of four, once for all benchmarks that need the result.
func (b *bench) ringKills(ctx context.Context) (*interruptions, error) {
	if b.kills != nil {
		return b.kills, nil
	}
	found := new(interruptions)
	if err := b.killsOf(ctx, b.n(20), nil, found); err != nil {
		return nil, err
	}
	b.kills = found
	return found, nil
}

// killsOf adds to found the times after killing a number of workers of a new ring.
func (b *bench) killsOf(ctx context.Context, kills int, change func(*job.Job), found *interruptions) error {
	j, err := b.mnistRing(ctx, 4)
	if err != nil {
		return err
	}
	if change != nil {
		change(j)
	}
	r, err := b.startRing(ctx, j)
	if err != nil {
		return err
	}
	defer r.stop(ctx)
	for range kills {
		killed, err := r.lose(ctx, syscall.SIGKILL)
		if err != nil {
			return err
		}
		found.survivors = append(found.survivors, killed.took.Seconds())
		joined, err := r.joined(ctx, killed.next)
		if err != nil {
			return err
		}
		found.newcomers = append(found.newcomers, joined.Seconds())
	}
	return r.replaced(ctx, kills)
}

// recoveryStop suspends workers without killing them: they are only noticed by their silence.
func recoveryStop(ctx context.Context, b *bench) error {
	const silence = time.Second
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
	for range b.n(5) {
		stopped, err := r.lose(ctx, syscall.SIGSTOP)
		if err != nil {
			return err
		}
		found = append(found, stopped.took.Seconds())
		if _, err := r.joined(ctx, stopped.next); err != nil {
			return err
		}
	}
	if err := r.replaced(ctx, b.n(5)); err != nil {
		return err
	}
	b.within("recovery/kill -STOP to the survivors' next step, --heartbeat_timeout=1s", found, 3, 3)
	return b.frozenTorchrun(ctx, found)
}

// frozenTorchrun compares with a frozen process, and with a frozen node, of torchrun.
func (b *bench) frozenTorchrun(ctx context.Context, ours []float64) error {
	const name = "recovery/kill -STOP to the survivors' next step, compared with "
	python, err := findPython(ctx, pypi, "torch")
	if err != nil {
		return b.skip(name+"torchrun", err)
	}
	for _, f := range []frozen{{"a process frozen", processStops, freezeProcess},
		{"a node frozen", nodeStops, freezeNode}} {
		peer, theirs, err := b.torchrunFrozen(ctx, python, states[0], f)
		if err != nil {
			return err
		}
		b.compared(Result{Name: name + f.name, Unit: "s", Threads: 1, Peer: peer, Target: "<= 0.05"}, ours, theirs)
	}
	return nil
}
