package lifecycle

import (
	"fmt"
	"time"
)

// Processes describes the processes of a user's program, which write its checkpoints themselves, as
// they have reported it.
type Processes struct {
	// they can be asked to write a checkpoint before they end
	Asked bool
	// all have ended with exit code 0
	Finished bool
	// they have completed a round, or have written a checkpoint
	Trained bool
	// they may have a state that no checkpoint has
	Hold bool
	// they have ended their last round
	Rested bool
	// of Rested: why no checkpoint has that round; "": one has
	Problem string
}

// awaits reports whether processes have yet to end a round, and to write a checkpoint of it, before
// the job stops or is suspended. If they need not, or did not in time, it notes why nothing is
// saved.
func (l *Lifecycle) awaits(p Processes, now time.Time) bool {
	switch c := l.closing; {
	case !p.Asked || p.Finished:
		return false
	case p.Rested:
		l.unsaved = p.Problem
		return false
	case !p.Trained:
		l.unsaved = "no round was completed"
		return false
	case !p.Hold:
		l.unsaved = "no process has a newer state"
		return false
	case !now.Before(c.by):
		l.unsaved = fmt.Sprintf("no round was ended, and written as a checkpoint, within %v "+
			"(--grace_period)", c.by.Sub(c.since))
		return false
	}
	return true
}
