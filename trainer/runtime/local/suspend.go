package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

// ErrSuspended is returned if a job cannot be replaced because it is suspended.
var ErrSuspended = errors.New("is suspended")

// suspendSignal is the signal by which a master is asked to suspend its job.
const suspendSignal = syscall.SIGUSR1

// onSuspend calls f whenever this process, a master, is asked to suspend its job, until stop is
// called.
func onSuspend(f func()) (stop func()) {
	told := make(chan os.Signal, 1)
	over := make(chan struct{})
	signal.Notify(told, suspendSignal)
	go func() {
		for {
			select {
			case <-told:
				f()
			case <-over:
				return
			}
		}
	}()
	return func() {
		signal.Stop(told)
		close(over)
	}
}

// Suspend makes a checkpoint of a job, from which [Resume] continues, ends its processes, and
// returns when they have ended. It returns [job.ErrNoCheckpoints] if the job makes no checkpoints.
// A job that ends meanwhile stays ended.
func Suspend(ctx context.Context, name string) error {
	d, err := existing(name)
	if err != nil {
		return err
	}
	var j job.Job
	if err := d.readJSON("job.json", &j); err != nil {
		return fmt.Errorf("suspend job %s: %w", name, err)
	}
	if err := j.Resumable(job.Running); err != nil {
		return err
	}
	if !d.alive() {
		s, err := d.stored()
		if err == nil && s.State != string(job.Suspended) {
			err = fmt.Errorf("suspend job %s: it has ended: %s", name, s.State)
		}
		return err
	}
	tick := time.NewTicker(pollInterval / 2)
	defer tick.Stop()
	// the next master gets it, too, if one dies
	for told := 0; d.alive(); {
		var at address
		if d.readJSON("master.json", &at) == nil && at.PID != told && !at.dead() &&
			syscall.Kill(at.PID, suspendSignal) == nil {
			told = at.PID
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}

// rests reports whether the job of a directory is suspended.
func (d dir) rests() bool {
	s, err := d.stored()
	return err == nil && s.State == string(job.Suspended)
}

// release ends the claims of a job that has ended, and has no processes, on checkpoints of its
// program. Those in buckets stay: the next job of this machine finds that this one has ended.
func (d dir) release() error {
	record, err := os.ReadFile(d.path(recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("release the checkpoints of job %s: %w", d.name(), err)
	}
	paths, err := master.Claimed(record)
	uid, missing := os.ReadFile(d.path("uid"))
	if len(paths) > 0 {
		err = errors.Join(err, missing)
	}
	for _, path := range paths {
		if strings.Contains(path, "://") {
			continue
		}
		err = errors.Join(err, checkpoint.Opener(nil).Release(path, strings.TrimSpace(string(uid))))
	}
	if err != nil {
		return fmt.Errorf("release the checkpoints of job %s: %w", d.name(), err)
	}
	return nil
}

// end writes the final status of a job that has no processes.
func (d dir) end(state job.State, reason string) error {
	lock, err := d.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	s, err := d.stored()
	if err != nil {
		return err
	}
	conclude(s, state, reason, time.Now())
	return d.store(s)
}
