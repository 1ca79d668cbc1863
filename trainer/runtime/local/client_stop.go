package local

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// stopLimit returns how long stopping a job waits for a master that answers before it sends
// SIGTERM: a checkpoint, and then the pods, may each take their grace period.
func stopLimit(j *job.Job) time.Duration { return j.TimeToEnd() + killGrace(j) + timing.EndSlack }

// termGrace is the time that stopping a job then waits before it kills.
const termGrace = 6 * time.Second

// stopFile has a [stopRecord] once the launcher was asked to stop the job.
const stopFile = "stop.json"

// stopRecord says why a job is to stop.
type stopRecord struct {
	Reason string `json:"reason"`
}

// Stop ends a job with all its processes and returns when they have ended. Its training state is
// saved first, as by [Suspend]. It asks the master, then sends the launcher SIGTERM, then kills it.
// It does not change a job that has ended.
func Stop(ctx context.Context, name string) error {
	d, err := existing(name)
	if err != nil {
		return err
	}
	const reason = "by the user"
	if own, ok := launchers.Load(d); ok {
		own.(*launcher).stop(reason)
		return nil
	}
	j := new(job.Job)
	// otherwise with the default of its grace period
	d.readJSON("job.json", j)
	limit := stopLimit(j)
	measures := []struct {
		grace time.Duration
		take  func() error
	}{
		{limit, func() error { return d.ask(ctx, stopping(reason)) }},
		{limit + 2*termGrace, func() error { return d.signal(syscall.SIGTERM) }},
		{termGrace, func() error { return d.signal(syscall.SIGKILL) }},
	}
	if !d.alive() && d.rests() {
		if err := d.end(job.Stopped, "stopped: "+reason); err != nil {
			return err
		}
		return d.release()
	}
	var failed error
	for _, m := range measures {
		if !d.alive() {
			return nil
		}
		if failed = m.take(); failed != nil {
			continue
		}
		grace, cancel := context.WithTimeout(ctx, m.grace)
		failed = d.awaitEnd(grace)
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if d.alive() {
		return fmt.Errorf("stop job %s: %w", d.name(), failed)
	}
	return nil
}

// stopping returns a call that asks a master to stop its job.
func stopping(reason string) func(context.Context, wire.JobClient) error {
	return func(ctx context.Context, m wire.JobClient) error {
		_, err := m.Stop(ctx, &wire.StopRequest{Reason: reason})
		return err
	}
}

// signal sends a signal to the launcher of a living job, which gets it even while it is stopped.
// The death of the launcher ends the job.
func (d dir) signal(s syscall.Signal) error {
	var at address
	if err := d.readJSON("launcher.json", &at); err != nil {
		return err
	}
	return errors.Join(syscall.Kill(at.PID, s), syscall.Kill(at.PID, syscall.SIGCONT))
}

// awaitEnd returns when no process holds the lock.
func (d dir) awaitEnd(ctx context.Context) error {
	tick := time.NewTicker(pollInterval / 2)
	defer tick.Stop()
	for d.alive() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}
