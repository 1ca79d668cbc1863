package agent

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/program"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/worker"
)

const (
	// look is how often that is looked at which nobody tells: whether processes were stopped, or have written a checkpoint.
	look = 250 * time.Millisecond
	// linger is how long the other processes of a worker have to say why they failed, when one failed by itself: the cause may not be the
	// first that is seen to end.
	linger = 200 * time.Millisecond
)

// vigil watches over the processes in one world.
type vigil struct {
	*agent
	world    worker.Place
	seat     seat
	grace    time.Duration // of those that are left at its end
	finished int           // processes that have ended with 0
	stops    map[int]time.Time
	waits    *time.Time // the newest checkpoint when a worker came that waits for another one; nil: none waits
}

// keep returns when the world is to change, with the processes that failed by themselves.
func (v *vigil) keep(ctx context.Context) ([]*wire.Failure, error) {
	v.grace = v.Job.Program.Grace.Duration
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	exits := v.group.Exits()
	for {
		if recalled, joins := v.meeting.Recalled(v.world.Formation); recalled && v.yields(joins) {
			v.Log.Info("The world changes", "formation", v.world.Formation, "joins", joins)
			return nil, nil
		}
		select {
		case e, ok := <-exits:
			switch {
			case !ok:
				exits = nil
			case !e.Failed():
				if v.finished++; v.finished == v.count {
					v.Log.Info("All processes have ended with 0", "formation", v.world.Formation)
					v.beats.finish(v.world.Formation)
				}
			default:
				return v.failures(e, exits), nil
			}
		case <-v.world.Lost():
			v.Log.Info("The world ends: a member is gone", "formation", v.world.Formation)
			return nil, nil
		case <-v.meeting.Wake():
		case <-v.Leave:
			v.Log.Info("Asked to leave: the program has this time to end", "grace", v.Grace)
			v.stop(v.Grace)
			<-v.stopped
			v.beats.leave()
			return nil, nil
		case now := <-ticker.C:
			v.revive(now)
		case <-ctx.Done():
			v.grace = 0
			return nil, context.Cause(ctx)
		}
	}
}

// failures is one that has ended by itself, and those that do in the same moment.
func (v *vigil) failures(first program.Exit, exits <-chan program.Exit) []*wire.Failure {
	failed := []*wire.Failure{failure(first)}
	timer := time.NewTimer(0)
	if first.Signal == 0 {
		timer.Reset(linger)
	}
	defer timer.Stop()
	for {
		select {
		case e, ok := <-exits:
			if !ok {
				return failed
			}
			if e.Failed() {
				failed = append(failed, failure(e))
			}
		case <-timer.C:
			return failed
		}
	}
}

// failure is an exit as the master is told.
func failure(e program.Exit) *wire.Failure {
	f := &wire.Failure{Rank: int32(e.Rank), Local: int32(e.Local), Pid: int32(e.Pid), Code: int32(max(0, e.Code)), Signal: int32(e.Signal), UnixMs: e.At.UnixMilli()}
	if e.Failure != nil {
		f.Message, f.Traceback = e.Failure.Message, e.Failure.Traceback
		if !e.Failure.Time.IsZero() {
			f.UnixMs = e.Failure.Time.UnixMilli()
		}
	}
	return f
}

// yields reports whether the world is left now that its members were recalled.
func (v *vigil) yields(joins bool) bool {
	if !joins || v.finished == v.count {
		return !joins
	}
	switch v.Job.Program.RestartOnJoin {
	case job.RestartNever:
		return false
	case job.RestartAtCheckpoint:
		newest, still := newestOf(v.Job.Program.Checkpoint)
		if v.waits == nil {
			v.waits = &newest
			v.Log.Info("A worker waits to join: the program starts again when it has written its next checkpoint", "checkpoint_file", v.Job.Program.Checkpoint)
		}
		return still && newest.After(*v.waits)
	}
	return true
}

// newestOf is when the newest file of a pattern was written. Still says that nothing has been written to it for a moment.
func newestOf(pattern string) (newest time.Time, still bool) {
	paths, _ := filepath.Glob(pattern) // the pattern is right
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	return newest, time.Since(newest) >= look
}

// revive kills processes that have been stopped for longer than a worker may be silent: nobody else would ever know.
func (v *vigil) revive(now time.Time) {
	for local, pid := range v.group.Pids() {
		if !stopped(pid) {
			delete(v.stops, local)
			continue
		}
		since, ok := v.stops[local]
		if !ok {
			v.stops[local] = now
		} else if now.Sub(since) >= v.Job.HeartbeatTimeout.Duration {
			v.Log.Warn("A process was stopped for too long, and is killed", "local_rank", local, "pid", pid, "for", now.Sub(since).Round(time.Millisecond))
			v.group.Kill(local, 0)
			delete(v.stops, local)
		}
	}
}

// stopped reports whether a process is stopped by a signal.
func stopped(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%s/stat", strconv.Itoa(pid)))
	i := bytes.LastIndexByte(text, ')')
	return err == nil && i >= 0 && i+2 < len(text) && text[i+2] == 'T'
}
