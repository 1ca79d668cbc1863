package launch

import (
	"cmp"
	"fmt"
	"time"
)

// Phase is a stage of a launcher.
type Phase int

// Phases of a launcher.
const (
	// nothing was heard of the master's pod yet, or since one was created
	Unknown Phase = iota
	// there is none: the next one is due, or the Job is being read
	Absent
	Present // there is one
	Ended   // the launcher ends
)

func (p Phase) String() string { return [...]string{"Unknown", "Absent", "Present", "Ended"}[p] }

// Pod is the pod of the master's name, as the cluster shows it.
type Pod struct {
	UID string
	// of this launcher's Job; Former: of a Job of the same name, before
	Mine, Former bool
	// its container has ended; Succeeded: without an error
	Ended, Succeeded bool
	// it was killed or evicted from outside, or its node was lost: its end is not its own fault
	Killed bool
	// it was asked to terminate, and has this long for it
	Leaving bool
	Grace   time.Duration
	// its node does not answer
	Unreachable bool
	// it waits for quota of the job's queue, for as long as the job lets its core wait
	Queued    bool
	QueueTime time.Duration
	// of one that has ended
	Reason string
}

// JobState tells whether a Job needs a master.
type JobState int

// States of a Job.
const (
	// the Job could not be read
	NotRead   JobState = iota
	Continues          // a master is to run
	// it is suspended, deleted, or has failed or completed
	Over
)

// Verb is the kind of an [Action].
type Verb int

// Kinds of actions.
const (
	// read the Job, and answer with [Launcher.Job]
	Ask    Verb = iota + 1
	Create      // create the next master's pod
	// delete the pod with the UID: with its grace period, or at once
	Delete
	Force
	// make the Job fail, and end the launcher with an error
	Fail
	End // end the launcher
	// delete the other pods of the job, whose quota others may need
	Sweep
)

func (v Verb) String() string {
	return [...]string{"", "ask", "create", "delete", "force", "fail", "end", "sweep"}[v]
}

// Action is an order for the shell.
type Action struct {
	Verb Verb
	// Delete, Force
	UID string
	// Create: which master it is, from 1, of those that this launcher creates
	Number int
	// End: the launcher ends without an error
	Success bool
	// Delete, Force, Fail, End, Sweep: why
	Reason string
}

func (a Action) String() string {
	s := a.Verb.String()
	if a.UID != "" {
		s += " " + a.UID
	}
	if a.Success {
		s += " with success"
	}
	if a.Reason != "" {
		s += ": " + a.Reason
	}
	return s
}

const (
	// forceAfter is the time after its grace period when a pod that is still there is deleted at
	// once: its kubelet does not answer. A deletion that was not performed is repeated after it.
	forceAfter = 5 * time.Second
	// patience is the time for which creations may be denied before a Job fails of which no master
	// has run: permissions may be granted later than the Job is created.
	patience = 10 * time.Minute
	// fresh is the time after which an earlier refusal does not count any more.
	fresh = time.Minute
	// rereadAfter is the pause after a Job could not be read.
	rereadAfter = time.Second
	// longestRest is the time after which the Job is read again while the job rests: the job may be
	// over.
	longestRest = 15 * time.Second
	// queueTimes is the number of times that the job lets its core wait after which the quota of a
	// job without a master is given back.
	queueTimes = 2
	// ownEnd is the time that a master has for its end after it has made its Job fail.
	ownEnd = 30 * time.Second
)

// Launcher decides for the launcher of a job on Kubernetes. Its methods take the time, and return
// what to do. It is not safe for concurrent use.
type Launcher struct {
	phase    Phase
	restarts Restarts
	pod      Pod
	// when the present pod was first seen
	since time.Time
	// when the present pod is deleted, again or at once, if it is still there; zero: never
	due time.Time
	// since when creations are refused, and when that was last so; zero: they are not
	refused, refusedLast time.Time
	// when the next master is due
	at time.Time
	// at is that of the successor of the present pod, which has ended
	timed bool
	// since when the present pod waits for quota; zero: it does not
	queued time.Time
	// when the other pods were last deleted for it; zero: never
	swept time.Time
	// a master of this Job has run, now or before
	begun bool
	// Ask was returned, and not answered
	asked bool
	// the launcher is asked to terminate
	leaving bool
	// the Job is over: no master is created any more
	over bool
	// number of masters that were created
	created int
	// how the last master ended
	last string
}

// New returns the launcher of a job of whose master nothing is known, but whether there has been
// one.
func New(begun bool) *Launcher { return &Launcher{begun: begun} }

// Phase returns the stage of the launcher.
func (l *Launcher) Phase() Phase { return l.phase }

// Seen handles a change of the pod of the master's name.
func (l *Launcher) Seen(p Pod, now time.Time) []Action {
	if l.phase == Ended {
		return nil
	}
	if l.phase != Present || l.pod.UID != p.UID {
		l.phase, l.since, l.due, l.refused, l.timed = Present, now, time.Time{}, time.Time{}, false
		l.queued, l.swept = time.Time{}, time.Time{}
	} else if l.pod.Ended { // a deletion after its end is not its cause
		p.Ended, p.Succeeded, p.Killed, p.Reason = true, l.pod.Succeeded, l.pod.Killed, l.pod.Reason
	}
	l.begun = l.begun || p.Mine
	if p.Leaving && (!l.pod.Leaving || l.due.IsZero()) {
		l.due = now.Add(p.Grace + forceAfter)
	}
	if l.pod = p; !p.Queued || !p.Mine {
		l.queued = time.Time{}
	} else if l.queued.IsZero() {
		l.queued = now
	}
	switch {
	case !p.Mine && !(p.Former && p.Leaving && p.Unreachable):
		return l.depart()
	case p.Succeeded && p.Mine:
		return l.end(true, "")
	case p.Ended && p.Mine:
		l.last = cmp.Or(p.Reason, "it has failed")
		l.time(now)
		return l.ask()
	// not before: the node may answer again
	case p.Leaving && p.Unreachable:
		return l.force("its node does not answer", now)
	}
	return l.depart()
}

// Deleted handles that the pod with the UID is deleted; uid "": there is no pod of the name.
func (l *Launcher) Deleted(uid string, now time.Time) []Action {
	switch l.phase {
	case Absent, Ended:
		return nil
	case Present:
		if uid != "" && uid != l.pod.UID {
			return nil
		}
		if l.pod.Mine {
			l.last = cmp.Or(l.pod.Reason, l.last, "its pod was deleted")
			l.time(now)
		}
	}
	l.phase, l.pod, l.due, l.timed = Absent, Pod{}, time.Time{}, false
	return l.Tick(now)
}

// time sets when the successor of the present pod is due, once: after its end, or its deletion
// before that.
func (l *Launcher) time(now time.Time) {
	if l.timed {
		return
	}
	l.timed = true
	pause, _ := l.restarts.Next(now.Sub(l.since), true, l.pod.Killed || !l.pod.Ended)
	l.at = now.Add(pause)
}

// Rests handles the answer to [Ask] that the job has given back the quota of its queue, and that
// its next master is due at a time.
func (l *Launcher) Rests(until, now time.Time) []Action {
	if l.phase == Ended || !l.asked {
		return nil
	}
	if l.asked = false; l.leaving {
		return l.end(false, "the launcher was asked to terminate; the job continues")
	}
	l.at = now.Add(min(until.Sub(now), longestRest))
	return nil
}

// Job handles the answer to [Ask], with the reason if the Job is over. "": it is that of the last
// master.
func (l *Launcher) Job(state JobState, why string, now time.Time) []Action {
	if l.phase == Ended || !l.asked {
		return nil
	}
	l.asked = false
	switch state {
	case NotRead:
		if l.leaving {
			return l.end(false, "the launcher was asked to terminate, and the Job could not be read")
		}
		l.at = now.Add(rereadAfter)
		return nil
	case Over:
		l.over = true
		switch {
		case l.phase != Present || !l.pod.Mine:
			return l.end(false, cmp.Or(why, l.last))
		case l.pod.Ended:
			return l.end(false, cmp.Or(why, l.last))
		case l.pod.Leaving:
			return nil
		case why == "": // it is about to end, with its reason
			l.due = now.Add(ownEnd)
			return nil
		}
		return l.remove(why, now)
	}
	switch {
	case l.leaving:
		return l.end(false, "the launcher was asked to terminate; the job continues")
	case l.phase == Absent && !now.Before(l.at):
		l.created++
		// until the pod is seen, or the creation fails
		l.phase = Unknown
		return []Action{{Verb: Create, Number: l.created}}
	case l.phase == Present && l.pod.Mine && l.pod.Ended && !l.pod.Leaving && !now.Before(l.at):
		return l.remove(l.last, now)
	}
	return nil
}

// Refused handles that the master's pod could not be created, and why. It is tried again after a
// pause. denied: the refusal lasts until somebody acts, as that for a missing permission does; then
// a Job of which no master has run fails after ten minutes.
func (l *Launcher) Refused(why string, denied bool, now time.Time) []Action {
	if l.phase != Unknown {
		return nil
	}
	if l.refused.IsZero() || !denied || now.Sub(l.refusedLast) > fresh {
		l.refused = now
	}
	l.refusedLast = now
	if !l.begun && now.Sub(l.refused) >= patience {
		l.phase = Ended
		return []Action{{Verb: Fail, Reason: why}}
	}
	pause, _ := l.restarts.Next(0, true, false)
	l.phase, l.at = Absent, now.Add(pause)
	return l.Tick(now)
}

// Leave handles that the launcher itself is asked to terminate: its Job may be over, or its node is
// drained.
func (l *Launcher) Leave(time.Time) []Action {
	if l.phase == Ended || l.leaving {
		return nil
	}
	l.leaving = true
	return l.depart()
}

// Tick does what is due.
func (l *Launcher) Tick(now time.Time) []Action {
	switch {
	case l.phase == Absent && !now.Before(l.at):
		return l.ask()
	case l.sweeps() && !now.Before(l.sweep()):
		l.swept = now
		return []Action{{Verb: Sweep, Reason: "the master waits for quota, which these pods may hold"}}
	case l.phase != Present || !l.waits() || now.Before(l.wait()):
		return nil
	case l.pod.Ended && !l.pod.Leaving: // another follows
		return l.ask()
	case l.pod.Leaving:
		return l.force(fmt.Sprintf("it is still there %v after its grace period", forceAfter), now)
	}
	return l.remove("the job is not to continue", now)
}

// waits reports whether something is due for the present pod: that it is deleted, again or at once,
// or that its successor follows.
func (l *Launcher) waits() bool {
	switch {
	case l.pod.Mine && l.pod.Ended && !l.pod.Leaving:
		return !l.asked
	case !l.pod.Mine && !(l.pod.Former && l.pod.Leaving):
		return false
	}
	return !l.due.IsZero()
}

// wait returns when that is due.
func (l *Launcher) wait() time.Time {
	if l.pod.Ended && !l.pod.Leaving && l.at.After(l.due) {
		return l.at
	}
	return l.due
}

// Deadline returns when Tick has something to do if nothing happens before; false: never.
func (l *Launcher) Deadline() (time.Time, bool) {
	switch {
	case l.phase == Absent && !l.asked:
		return l.at, true
	case l.phase == Present && l.waits():
		return l.wait(), true
	case l.sweeps():
		return l.sweep(), true
	}
	return time.Time{}, false
}

// sweeps reports whether the other pods of the job are to be deleted if the master waits for quota
// for too long.
func (l *Launcher) sweeps() bool {
	return l.phase == Present && !l.queued.IsZero() && !l.pod.Leaving && !l.leaving
}

// sweep returns when that is.
func (l *Launcher) sweep() time.Time {
	since := l.queued
	if l.swept.After(since) {
		since = l.swept
	}
	return since.Add(queueTimes * l.pod.QueueTime)
}

// depart asks what a launcher that is asked to terminate leaves behind.
func (l *Launcher) depart() []Action {
	if !l.leaving || l.over {
		return nil
	}
	return l.ask()
}

func (l *Launcher) ask() []Action {
	if l.asked {
		return nil
	}
	l.asked = true
	return []Action{{Verb: Ask}}
}

// remove deletes the present pod.
func (l *Launcher) remove(why string, now time.Time) []Action {
	l.due = now.Add(forceAfter)
	return []Action{{Verb: Delete, UID: l.pod.UID, Reason: why}}
}

// force deletes the present pod at once. It is tried again if the pod is still there later.
func (l *Launcher) force(why string, now time.Time) []Action {
	l.due = now.Add(forceAfter)
	return []Action{{Verb: Force, UID: l.pod.UID, Reason: why}}
}

func (l *Launcher) end(success bool, why string) []Action {
	l.phase = Ended
	return []Action{{Verb: End, Success: success, Reason: why}}
}
