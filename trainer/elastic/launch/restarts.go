package launch

import (
	"cmp"
	"time"
)

// Restarts decides how long to pause before the next master of a job is started.
type Restarts struct {
	// limits of the pause between two starts, from the second crash in a row on; 0: 100 ms, 10 s
	Least, Longest time.Duration

	// before the next start
	pause time.Duration
	// number of masters in a row that died before they were ready
	early int
}

const (
	// a master that lived at least so long resets the pause and the count
	steady = 10 * time.Second
	// number of masters in a row that die before they are ready after which a launcher that gives
	// up does so
	mostEarly = 10
)

// Next returns the pause before the next master is started, from how long the last one lived,
// whether it was ready, and whether it was killed from outside, which is not its own fault. ok is
// false if ten in a row died before they were ready.
func (r *Restarts) Next(lived time.Duration, ready, killed bool) (pause time.Duration, ok bool) {
	r.early++
	if ready || lived >= steady {
		r.early = 0
	}
	if killed || lived >= steady {
		r.pause = 0
	}
	pause = r.pause
	if !killed {
		r.pause = min(max(2*pause, cmp.Or(r.Least, 100*time.Millisecond)), cmp.Or(r.Longest, 10*time.Second))
	}
	return pause, r.early < mostEarly
}

// Early returns how many masters in a row died before they were ready.
func (r *Restarts) Early() int { return r.early }
