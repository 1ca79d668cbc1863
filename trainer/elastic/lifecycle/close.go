package lifecycle

import (
	"cmp"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// Close requests that the master leave, or suspend the job, or that the job yields. It reports
// whether the request counts: the job has not ended, and is not to stop; a request to yield only if
// there is no other. [Lifecycle.Step] follows.
func (l *Lifecycle) Close(n Notice, f Facts, now time.Time) (did []Action, ok bool) {
	if l.Over() || l.stage == Left || l.closing.how == Stop || n != Leave && n != Suspend &&
		(n != Yield || l.closing.how != 0) {
		return nil, false
	}
	return l.request(n, f, now), true
}

// Stop requests that the job stop for a reason. If it is about to stop, or to be suspended, and
// again is set, it ends at once. A job that is being prepared has nothing to save. Stop reports
// whether the job is to stop later.
func (l *Lifecycle) Stop(why error, again bool, f Facts, now time.Time) (did []Action, later bool) {
	if l.Over() || l.stage == Left || l.saved != nil && l.saved.State.Ended() {
		return nil, false
	}
	c := &l.closing
	c.why = cmp.Or(c.why, why)
	if l.stage == Preparing || again && c.how != 0 && c.how != Leave {
		return l.End(job.Stopped, c.why, f.Undone, now), false
	}
	return l.request(Stop, f, now), true
}

func (l *Lifecycle) request(n Notice, f Facts, now time.Time) []Action {
	c := &l.closing
	if c.how == 0 {
		c.since, c.by, c.version = now, now.Add(l.policy.Grace), l.Owed(f.Version)
	}
	c.how = n
	if n == Leave {
		return nil
	}
	return []Action{{Verb: Hold}}
}

// Owed returns the version that a checkpoint must have to lose nothing of a model whose newest
// known version is given. If something was trained on there is a first version, or will be, that
// nobody has reported yet.
func (l *Lifecycle) Owed(version int64) int64 {
	if l.begun {
		return max(1, version)
	}
	return version
}

// Step performs a requested end that is due: a checkpoint has what was in the model when it was
// requested, or there will be none in time.
func (l *Lifecycle) Step(f Facts, now time.Time) []Action {
	c := l.closing
	if c.how == 0 || l.stage == Preparing || l.stage >= Ending {
		return nil
	}
	var did []Action
	unsaved, unknown := f.Checkpoints && f.Covered < c.version, l.stage == Recovering
	awaited := f.Pods && c.how != Leave && f.Processes != nil && l.awaits(*f.Processes, now)
	switch {
	case f.Pods && f.Checkpoints && (l.begun || unknown) && (unsaved || unknown) && now.Before(c.by):
		return nil
	case awaited:
		return nil
	case unsaved:
		did = []Action{{Verb: Unsaved, Version: c.version}}
	}
	switch c.how {
	case Stop:
		return append(did, l.End(job.Stopped, c.why, f.Undone, now)...)
	case Suspend, Yield:
		l.finish(job.Suspended, now)
		if l.err = ErrSuspended; c.how == Yield {
			l.err = ErrYielded
		}
		return append(did, Action{Verb: Seal}, Action{Verb: End}, Action{Verb: Wake})
	}
	l.move(Left)
	l.left = ErrLeft
	return append(did, Action{Verb: Seal}, Action{Verb: Wake})
}

// Need is whether a checkpoint is to be made.
type Need int

// Needs.
const (
	Never Need = iota // there is nothing to save
	// at the times that the policy of checkpoints says
	WhenDue
	// unless the newest one has what is in the model
	AtOnce
)

// Checkpoint returns whether a checkpoint is to be made. covered is the version of the newest one.
// A planned end needs one more, and no second one, which would only be given up.
func (l *Lifecycle) Checkpoint(covered int64) Need {
	switch c := l.closing; {
	case !l.begun && l.stage != Completing, c.how != 0 && covered >= c.version:
		return Never
	case c.how != 0, l.stage == Completing:
		return AtOnce
	}
	return WhenDue
}

// Deadline returns when [Lifecycle.Step] is to be called, or [Lifecycle.Done] changes, if nothing
// else happens, and false if there is no such time.
func (l *Lifecycle) Deadline() (time.Time, bool) {
	switch {
	case l.Over():
		return l.ended.Add(l.policy.End), true
	case l.closing.how != 0:
		return l.closing.by, true
	}
	return time.Time{}, false
}

// Done reports whether the master has nothing left to wait for. ended states that all pods have
// ended.
func (l *Lifecycle) Done(ended bool, now time.Time) bool {
	return l.stage == Left || l.Over() && (ended || !now.Before(l.ended.Add(l.policy.End)))
}
