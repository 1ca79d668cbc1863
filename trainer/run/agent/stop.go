package agent

import (
	"time"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// stopping is what the agent does before the job stops, or rests: the processes that use the
// package are told to end a round, all ranks the same one, of which one of them writes a
// checkpoint. Then they wait until they are ended.
type stopping struct {
	// time at which they are ended in any case; zero: the job is not to stop
	by time.Time
}

// tellStop tells a process that the job is to stop, if it is, and can be asked for a checkpoint.
func (a *agent) tellStop(p *process) {
	if a.stop.by.IsZero() || !p.lives() || p.script == nil || p.done {
		return
	}
	p.script.say(map[string]any{"op": "stop", "deadline": float64(a.stop.by.UnixMilli()) / 1000})
}

// stops handles the order of the master that the job is to stop by a time.
func (a *agent) stops(by time.Time) {
	a.stop.by = by
	a.Log.Info("The job is to stop: the processes end a round, and one of them writes a checkpoint",
		"within", time.Until(by).Round(time.Second))
	for _, p := range a.procs {
		if p != nil {
			a.tellStop(p)
			a.pastTraining(p)
		}
	}
}

// pastTraining tells the master of a job that is to stop that a process has completed the training:
// there is no round to wait for.
func (a *agent) pastTraining(p *process) {
	if !a.stop.by.IsZero() && p.member && p.done {
		a.beats.rests(&wire.Rest{Problem: "the training had ended, and what comes after it saves the script itself"})
	}
}

// setGrace notes how long the processes have to end after the end of the job.
func (b *beats) setGrace(grace time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.grace = grace
}

// endGrace returns how long the processes have to end after the end of the job; 0: it has not
// ended, or its master does not say.
func (b *beats) endGrace() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.grace
}

// setStopping notes that the master says that the job is to stop, and reports whether it says so
// for the first time.
func (b *beats) setStopping() (first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first = !b.stopping
	b.stopping = true
	return first
}

// usesPackage notes that a process uses the package.
func (b *beats) usesPackage() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.asks {
		b.asks = true
		b.hasten()
	}
}

// saves notes that a process has written a checkpoint.
func (b *beats) saves(s *wire.Saved) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.saved, b.unsaved = s, ""
	b.hasten()
}

// fails notes why a process could not write a checkpoint.
func (b *beats) fails(why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unsaved = why
	b.hasten()
}

// rests notes that the processes have ended their last round.
func (b *beats) rests(r *wire.Rest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rest = r
	b.hasten()
}

// leaving reports whether the worker was asked to leave.
func (a *agent) leaving() bool {
	select {
	case <-a.Leave:
		return true
	default:
		return false
	}
}
