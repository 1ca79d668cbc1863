package agent

import (
	"context"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/supervise"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
)

// This file and socket.go read the clock, to stamp their events and messages. Nothing else in this
// package does; see arch_test.go.

// work is the loop of the agent. It passes events to the supervisor and performs its actions, until
// no process is left and the job has ended, or this worker must end. The error is the reason in the
// second case.
func (a *agent) work(ctx context.Context) (failed error) {
	working, stop := context.WithCancel(ctx)
	defer stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	ended := false
	for events := []supervise.Event{supervise.Begin{OOMKills: a.program.OOMKills()}}; ; {
		if len(events) == 0 {
			a.wait(ctx, timer, ended)
		}
		signals := a.signals()
		for _, m := range a.mail.drain() {
			e, err := a.translate(m)
			if failed == nil {
				failed = err
			}
			if _, ok := m.(assigned); ok {
				signals = a.signals()
			}
			events = append(events, e...)
		}
		// after the mail: messages that processes sent before a recall are handled before it
		events = append(events, signals...)
		if ended = ended || failed != nil || ctx.Err() != nil; ended {
			events = append(events, supervise.End{Grace: a.beats.endGrace()})
		}
		actions := a.supervisor.Handle(time.Now(), events...)
		events = nil
		for _, action := range actions {
			if _, ok := action.(supervise.Finish); ok {
				return failed
			}
			e, err := a.perform(working, action)
			if failed == nil {
				failed = err
			}
			events = append(events, e...)
		}
		a.show()
	}
}

// wait returns when there is an event, or when the supervisor's deadline is reached.
func (a *agent) wait(ctx context.Context, timer *time.Timer, ended bool) {
	timer.Stop()
	if due := a.supervisor.Deadline(); !due.IsZero() {
		timer.Reset(time.Until(due))
	}
	var lost, done <-chan struct{}
	if a.world.World.World != nil && !a.world.lost {
		lost = a.world.Lost()
	}
	if !ended {
		done = ctx.Done()
	}
	select {
	case <-a.mail.ready:
	case <-a.meeting.Wake():
	case <-lost:
	case <-done:
	case <-timer.C:
	}
}

// signals returns the events of the current world that the supervisor was not notified of yet: its
// recall, and the loss of a member.
func (a *agent) signals() (events []supervise.Event) {
	w := &a.world
	if w.World.World == nil {
		return nil
	}
	recalled, joins := a.meeting.Recalled(w.Generation)
	if now := (supervise.Recalled{Generation: w.Generation, Joins: joins}); recalled &&
		(w.recalled == nil || *w.recalled != now) {
		w.recalled = &now
		events = append(events, now)
	}
	select {
	case <-w.Lost():
		if !w.lost {
			w.lost = true
			events = append(events, supervise.Lost{Generation: w.Generation})
		}
	default:
	}
	return events
}

// awaitLeave notifies the loop when the worker is asked to leave, which starts its grace period.
func (a *agent) awaitLeave(ctx context.Context) {
	select {
	case <-a.Leave:
		a.mail.put(supervise.LeaveAsked{By: time.Now().Add(a.Grace)})
	case <-ctx.Done():
	}
}

// heartbeats reports the state of this worker to the master, until ctx ends or the worker must end.
func (a *agent) heartbeats(ctx context.Context, cancel context.CancelCauseFunc) {
	ticker := time.NewTicker(timing.Interval(a.Job.HeartbeatTimeout.Duration))
	defer ticker.Stop()
	a.contact.begin(time.Now())
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-a.beats.urgent:
		}
		reply, err := a.exchange(ctx, time.Now())
		if !a.replied(reply, err, time.Now(), cancel) {
			return
		}
	}
}

// observe samples the processes every signsEvery until ctx ends. Heartbeats do not wait for it, as
// the output of a process may be in a file whose server does not answer.
func (a *agent) observe(ctx context.Context) {
	ticker := time.NewTicker(signsEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		a.look(time.Now())
	}
}

// pause waits for a time, and reports whether ctx has not ended meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
