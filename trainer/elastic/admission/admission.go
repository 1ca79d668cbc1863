package admission

import (
	"fmt"
	"time"
)

// Policy has the settings of a job in a queue.
type Policy struct {
	// for which a pod of the core may wait, at least
	Timeout time.Duration
	// a number of [0, 1)
	Random func() float64
}

// Facts tell how much of a job is admitted.
type Facts struct {
	// number of pods of the core, and how many of them have quota
	Core, Admitted int
	// how many of the core wait for quota; the others may not be created yet
	Waiting int
	// number of workers beyond the core that have quota
	Elastic int
}

// Verb is the kind of an [Action].
type Verb int

// Kinds of actions.
const (
	// delete workers beyond the core
	Shed Verb = iota + 1
	// end all pods, and begin again after a pause
	Yield
)

// Action is an order for the master.
type Action struct {
	Verb Verb
	// of Shed: number of workers
	Workers int
	// of Yield
	Pause time.Duration
}

func (a Action) String() string {
	if a.Verb == Shed {
		return fmt.Sprintf("shed %d workers", a.Workers)
	}
	return fmt.Sprintf("yield for %v", a.Pause)
}

// mostDoublings limits the growth of the pauses: they are at most 16 times Timeout, and at least
// half of that.
const mostDoublings = 4

// Admission decides for one master. It is not safe for concurrent use.
type Admission struct {
	policy Policy
	// times in a row that the job has yielded
	attempts int
	// since when a pod of the core waits; zero: none does
	since time.Time
	// share of Timeout by which this wait is longer
	jitter float64
	shed   bool
	facts  Facts
	over   bool
}

// New returns the machine of a master that begins, after as many attempts in a row have failed.
func New(p Policy, attempts int) *Admission {
	return &Admission{policy: p, attempts: max(0, attempts)}
}

// Attempts returns how often in a row the job has yielded, for the next master.
func (a *Admission) Attempts() int { return a.attempts }

// Step handles the present state of the pods. It returns nil if nothing is to be done.
func (a *Admission) Step(f Facts, now time.Time) *Action {
	if a.over {
		return nil
	}
	a.facts = f
	if f.Waiting == 0 {
		if a.since = (time.Time{}); f.Admitted >= f.Core {
			a.attempts = 0
		}
		return nil
	}
	if a.since.IsZero() {
		a.since, a.jitter, a.shed = now, a.policy.Random(), false
	}
	switch {
	case !now.Before(a.due()):
		a.over = true
		a.attempts++
		return &Action{Verb: Yield, Pause: a.pause()}
	case f.Elastic > 0 && !a.shed && !now.Before(a.shedding()):
		a.shed = true
		return &Action{Verb: Shed, Workers: min(f.Waiting, f.Elastic)}
	}
	return nil
}

// due returns when the job yields if a pod of the core still waits then.
func (a *Admission) due() time.Time {
	share := float64(a.facts.Admitted) / float64(max(1, a.facts.Core))
	return a.since.Add(a.times(1 + a.jitter + share))
}

// shedding returns when workers beyond the core are deleted.
func (a *Admission) shedding() time.Time { return a.since.Add(a.times(0.5)) }

func (a *Admission) times(factor float64) time.Duration {
	return time.Duration(factor * float64(a.policy.Timeout))
}

// pause returns how long no master of the job runs.
func (a *Admission) pause() time.Duration {
	limit := a.policy.Timeout << min(a.attempts, mostDoublings)
	return limit/2 + time.Duration(a.policy.Random()*float64(limit/2))
}

// Deadline returns when [Admission.Step] is to be called if nothing changes, and false if there is
// no such time.
func (a *Admission) Deadline() (time.Time, bool) {
	switch {
	case a.since.IsZero() || a.over:
		return time.Time{}, false
	case a.facts.Elastic > 0 && !a.shed:
		return a.shedding(), true
	}
	return a.due(), true
}
