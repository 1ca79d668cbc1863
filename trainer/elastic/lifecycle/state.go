package lifecycle

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// Stage returns the stage of the job.
func (l *Lifecycle) Stage() Stage { return l.stage }

// State returns the state of the job, as users see it.
func (l *Lifecycle) State() job.State { return l.state }

// Started returns when the job began, and Ended when it ended; zero: it has not.
func (l *Lifecycle) Started() time.Time { return l.started }

// Ended returns when the job ended, or was suspended; zero: it was not.
func (l *Lifecycle) Ended() time.Time { return l.ended }

// Err returns why the job did not succeed; nil if it did, or has not ended.
func (l *Lifecycle) Err() error { return l.err }

// Left returns why the master has left the pods; nil: it has not.
func (l *Lifecycle) Left() error { return l.left }

// Over reports whether the job has ended or is suspended, whether or not the master has left.
func (l *Lifecycle) Over() bool { return l.state.Ended() || l.state == job.Suspended }

// Begun reports whether a task was granted in this generation of the model.
func (l *Lifecycle) Begun() bool { return l.begun }

// Planned reports whether the data, the checkpoints and the pods are known.
func (l *Lifecycle) Planned() bool { return l.known() != Preparing }

// Recovering reports whether it is not known what is in the model. It remains true of a job that
// ends, or that the master leaves, before that is known.
func (l *Lifecycle) Recovering() bool { return l.known() == Recovering }

// known returns the last stage before the end.
func (l *Lifecycle) known() Stage {
	if l.stage >= Ending {
		return l.before
	}
	return l.stage
}

// Closing returns the end that is requested, with the time of the first request and the latest time
// of the end; 0: none is.
func (l *Lifecycle) Closing() (n Notice, since, by time.Time) {
	return l.closing.how, l.closing.since, l.closing.by
}

// Unsaved returns why the processes of a program have saved nothing before a planned end; "" if
// they have, or if no such end has come.
func (l *Lifecycle) Unsaved() string { return l.unsaved }

// Snapshot is the stored state of a [Lifecycle].
type Snapshot struct {
	// the master went after writing this, and sent nothing more
	Last bool `json:"last,omitempty"`
	// final state of a job that has ended
	State job.State `json:"state,omitempty"`
	// why the job did not succeed
	Reason string `json:"reason,omitempty"`
	// time at which the job ended
	Ended time.Time `json:"ended,omitzero"`
	// the job was suspended: its pods were ended, and the model is in the newest checkpoint
	Rests bool `json:"rests,omitempty"`
	// a task was granted in this generation of the model
	Begun   bool      `json:"begun,omitempty"`
	Started time.Time `json:"started"`
}

// err returns why the job has not succeeded; nil: it has.
func (s *Snapshot) err() error {
	if s.State == job.Succeeded {
		return nil
	}
	return errors.New(cmp.Or(s.Reason, "the previous master has not written why"))
}

// Snapshot returns the state for [Restore]. A suspended job has not ended: another master continues
// it.
func (l *Lifecycle) Snapshot() Snapshot {
	suspended := l.state == job.Suspended
	s := Snapshot{Last: l.stage == Left || suspended, Rests: suspended, Begun: l.begun, Started: l.started}
	if l.state.Ended() {
		s.State, s.Ended = l.state, l.ended
		if l.err != nil {
			s.Reason = l.err.Error()
		}
	}
	return s
}

// Restore returns the lifecycle of a master that follows another. The snapshot counts from
// [Lifecycle.Plan] on. Restore refuses impossible snapshots.
func Restore(p Policy, s Snapshot, now time.Time) (*Lifecycle, error) {
	if s.State != "" && !s.State.Ended() || s.State.Ended() && s.Rests {
		return nil, fmt.Errorf("restore the lifecycle: snapshot: state %q, suspended %t", s.State, s.Rests)
	}
	l := New(p, now)
	l.saved, l.started = &s, s.Started
	return l, nil
}
