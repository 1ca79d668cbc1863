package lifecycle

import (
	"errors"
	"fmt"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// Stage is the stage of a job in its master.
type Stage int

// Stages.
const (
	// the data, the checkpoints and, of a restored master, the pods are looked for: who calls is to
	// call again
	Preparing Stage = iota
	// a restored master asks what is in the model: no worker gets a task
	Recovering
	// tasks are leased
	Training
	// every record was trained on: the last evaluation, the export and the last checkpoint are made
	Completing
	// the job has ended or is suspended: the pods are ended
	Ending
	// the pods are the next master's
	Left
)

func (s Stage) String() string {
	return [...]string{"preparing", "recovering", "training", "completing", "ending", "left"}[s]
}

// Notice is a request to end a job, or its master, as soon as that loses no work.
type Notice int

// Notices.
const (
	// Leave frees space for another master. The pods continue.
	Leave Notice = iota + 1
	// Suspend ends the pods and lets the job rest until another master begins.
	Suspend
	// Stop ends the job as stopped.
	Stop
	// Yield gives the quota of the job's queue back: the pods end, and the job rests until another
	// master begins after a pause.
	Yield
)

func (n Notice) String() string { return [...]string{"", "leave", "suspend", "stop", "yield"}[n] }

// Errors of a master that has not ended its job.
var (
	ErrLeft      = errors.New("the master was asked to leave, and the job continues with the next one")
	ErrSuspended = errors.New("the job is suspended")
	ErrYielded   = errors.New("the job waits for quota, and has given back what it had")
)

// Policy is the time that ends take.
type Policy struct {
	// how long a checkpoint may take after a notice
	Grace time.Duration
	// how long workers of a finished job have to leave on their own
	Farewell time.Duration
	// how long the runtime has to end the pods of an ended job
	End time.Duration
}

// Verb is the kind of an [Action].
type Verb int

// Verbs.
const (
	// write a record of the job, and wait until it is written
	Record Verb = iota + 1
	// write the last record, and wait until it is written
	Seal
	// do not replace pods that end from now on
	Hold
	// report that the planned end comes although no checkpoint has what is in the model
	Unsaved
	// report the end of the job
	Report
	// end the pods: tell workers to leave, and delete those that have not left after Grace
	End
	// wake up all calls that wait, and the timer
	Wake
)

func (v Verb) String() string {
	return [...]string{"", "record", "seal", "hold", "unsaved", "report", "end pods", "wake"}[v]
}

// Action is an order to the master.
type Action struct {
	Verb Verb
	// of End: how long workers have to leave
	Grace time.Duration
	// of End: write a record first, in which the pods are ending
	Recorded bool
	// of Unsaved: the version that a checkpoint was to have
	Version int64
}

func (a Action) String() string {
	switch {
	case a.Verb == End && a.Recorded:
		return fmt.Sprintf("record, then end pods within %v", a.Grace)
	case a.Verb == End:
		return fmt.Sprintf("end pods within %v", a.Grace)
	case a.Verb == Unsaved:
		return fmt.Sprintf("unsaved: no checkpoint has version %d", a.Version)
	}
	return a.Verb.String()
}

// Facts holds the state of other machines on which a planned end depends.
type Facts struct {
	// the job has checkpoints
	Checkpoints bool
	// version of the newest checkpoint
	Covered int64
	// newest known version of the model
	Version int64
	// pods run, which may hold what is not saved
	Pods bool
	// of a user's program; nil: the job has a model, which the master saves
	Processes *Processes
	// what of the job is not done; nil: all is
	Undone error
}

// closing is a requested end.
type closing struct {
	// 0: none is requested
	how Notice
	// time of the first request
	since time.Time
	// time at which the end comes, even without a checkpoint
	by time.Time
	// version that a checkpoint is to contain
	version int64
	// why the job stops
	why error
}

// Lifecycle is the stage of a job in its master. It is not safe for concurrent use: the master
// calls it under a lock.
type Lifecycle struct {
	policy Policy
	stage  Stage
	// of Ending and Left: the stage from which they came
	before Stage
	// a task was granted in this generation of the model
	begun bool
	state job.State
	// why the job did not succeed
	err            error
	started, ended time.Time
	// why the master has left the pods
	left    error
	closing closing
	// why processes have saved nothing before a planned end; "": they have, or none came
	unsaved string
	// what the previous master has left, until the job is planned; nil: this is the first master
	saved *Snapshot
}

// New returns the lifecycle of a job that begins.
func New(p Policy, now time.Time) *Lifecycle {
	return &Lifecycle{policy: p, state: job.Pending, started: now}
}

// Plan notes that the data, the checkpoints and the pods are known.
func (l *Lifecycle) Plan(now time.Time) []Action {
	if l.stage != Preparing {
		return nil
	}
	l.stage = Training
	s := l.saved
	if s == nil {
		return nil
	}
	l.saved = nil
	if s.State.Ended() {
		l.finish(s.State, now)
		l.err = s.err()
		return []Action{{Verb: End}, {Verb: Wake}}
	}
	if l.stage, l.begun = Recovering, s.Begun; l.begun {
		l.state = job.Running
	}
	return nil
}

// Recovered notes that it is known what is in the model.
func (l *Lifecycle) Recovered() {
	if l.stage == Recovering {
		l.stage = Training
	}
}

// Work notes that workers work.
func (l *Lifecycle) Work() {
	if l.state == job.Pending {
		l.state = job.Running
	}
}

// Grant notes that a task was granted. The first one of a generation of the model is recorded: the
// generation cannot begin again.
func (l *Lifecycle) Grant() []Action {
	l.Work()
	if l.begun {
		return nil
	}
	l.begun = true
	return []Action{{Verb: Record}}
}

// Complete notes that every record was trained on, and is in the model.
func (l *Lifecycle) Complete() {
	if l.stage == Training {
		l.stage = Completing
	}
}

// Rollback notes that a generation of the model begins.
func (l *Lifecycle) Rollback() {
	if l.begun = false; l.stage == Completing {
		l.stage = Training
	}
}

// End ends the job. undone lists unfinished work; nil: everything was. An end with an error gives
// workers no time to leave on their own.
func (l *Lifecycle) End(state job.State, err, undone error, now time.Time) []Action {
	if l.Over() || l.stage == Left {
		return nil
	}
	if s := l.saved; s != nil && s.State.Ended() { // a job ends once
		state, err, undone = s.State, s.err(), nil
	}
	grace := l.policy.Farewell
	if err != nil {
		grace = 0
		if undone != nil {
			err = fmt.Errorf("%w; %w", err, undone)
		}
	}
	l.finish(state, now)
	l.err = err
	return []Action{{Verb: Report}, {Verb: End, Grace: grace, Recorded: true}, {Verb: Wake}}
}

func (l *Lifecycle) finish(state job.State, now time.Time) {
	l.move(Ending)
	l.state, l.ended = state, now
}

// move enters a stage in which the job ends for this master.
func (l *Lifecycle) move(to Stage) {
	if l.stage < Ending {
		l.before = l.stage
	}
	l.stage = to
}

// Supersede notes that another master has begun, to which the pods belong now.
func (l *Lifecycle) Supersede(err error) []Action {
	if l.stage == Left {
		return nil
	}
	l.move(Left)
	l.left = err
	return []Action{{Verb: Wake}}
}
