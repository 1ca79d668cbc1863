package supervise

import "time"

// Event is something that has happened, as the agent reports it.
type Event interface{ event() }

// Begin starts the work of an agent. It is its first event.
type Begin struct {
	// number of processes of this worker that the kernel's OOM killer has killed so far; 0: none,
	// or it is unknown
	OOMKills int
}

// Ready answers [Warm]: processes can be started at once.
type Ready struct{}

// Started answers [Start]: the pids of the started processes, in the order of its local ranks.
type Started struct{ Pids []int }

// Exited is the end of a process that the supervisor had started.
type Exited struct {
	Pid int
	// exit code, or the negative number of the signal that ended the process
	Code int
	// signal that ended the process; 0: none did
	Signal int
	// the agent had asked the process to end
	Stopped bool
	// the process may have crashed because it was forked
	Forked bool
	// when the agent saw the end
	At time.Time
	// Unix time of the failure in seconds: as the process has reported it, otherwise that of At
	Second int64
	// when the process has reported its failure, before its end; zero: it has not
	Erred time.Time
	// what ended the process, in one line for people
	Message string
	// as in Begin, when the agent saw the end
	OOMKills int
}

// failedAt returns the time of the failure: as the process has reported it, else that of its end.
func (e Exited) failedAt() time.Time {
	if e.Erred.IsZero() {
		return e.At
	}
	return e.Erred
}

// Failed reports whether the process ended otherwise than with exit code 0.
func (e Exited) Failed() bool { return e.Code != 0 }

// Hello is the first message on a connection of a process that uses the package.
type Hello struct {
	// number of the connection; never used again
	Conn int
	// pid of the process, and of the leader of its session; 0: not known, or ended
	Pid, Leader int
	// the process enters the next world with its state
	KeepsState bool
}

// Arrived is the message of a process that stands between two rounds and waits for a world.
type Arrived struct {
	Conn int
	// rounds in its state; -1: it has no state
	Round int64
	// the state was read from a checkpoint, and the process has trained in no world with it
	Read bool
	// it has yet to make its model, for which others that train must not wait
	Early bool
}

// Others is the master's word how many processes are left in the newest world, which has a
// generation; 0: there was none.
type Others struct {
	Generation int64
	Ranks      int
}

// Done is the message of a process that has completed the training and needs no further world.
type Done struct{ Conn int }

// Doubted is the message of a process that cannot be sure of its state and is about to end.
type Doubted struct {
	Conn int
	Why  string
}

// Met is the message of a process that knows that every rank of a world has the state with which
// the world began.
type Met struct {
	Conn       int
	Generation int64
}

// FirstRound is the message of a process that has completed the first round of a world.
type FirstRound struct{ Conn int }

// Account is the message of a process with the records in the state of every rank of a world.
type Account struct {
	Conn       int
	Generation int64
	Ledger     []byte
}

// Saved is the message of a process that has written a checkpoint.
type Saved struct {
	Conn  int
	Round int64
	Path  string
}

// Unsaved is the message of a process that could not write a checkpoint.
type Unsaved struct {
	Conn      int
	Path, Why string
}

// Rested is the message of a process that has completed the last round before the job stops.
type Rested struct {
	Conn  int
	Round int64
	// why no checkpoint has that round; "": one has
	Why string
}

// Closed is the end of a connection, after everything that was sent on it.
type Closed struct{ Conn int }

// World is the assignment of a world, the answer to [Arrive].
type World struct {
	// rises with each world
	Generation int64
	// number that changes with the members
	ID int64
	// rank of this worker's first process, number of its processes, and world size
	First, LocalSize, Size int
	// rank that has the newest state; -1: none has
	Source int
	// generation with which the present training of the model began
	Beginning int64
	// time to back off before the processes start
	Pause time.Duration
	// restarts for processes that start in this world
	Restarts Restarts
	// address of its key-value store, for the log
	Store string
}

// Restarts is the number of restarts that a process finds in its environment, as under torchrun.
// The difference is the number of failures of the program that the job survives.
type Restarts struct {
	Count int // TORCHELASTIC_RESTART_COUNT
	Max   int // TORCHELASTIC_MAX_RESTARTS
}

// Opened answers [Open].
type Opened struct {
	// as in Begin
	OOMKills int
}

// Recalled is the order of the master to leave a world after a round.
type Recalled struct {
	Generation int64
	// its only reason is that workers wait to join
	Joins bool
}

// Lost says that a world has lost a member, or that a newer one was formed.
type Lost struct{ Generation int64 }

// AccountAsked is the question of a restored master which records are in the state of every rank.
type AccountAsked struct{}

// LeaveAsked says that the worker is to leave. Its processes have until By to end.
type LeaveAsked struct{ By time.Time }

// StopAsked says that the job is to stop by a time.
type StopAsked struct{ By time.Time }

// Hung is the master's judgement that a process of a world hangs: it is to be killed.
type Hung struct {
	Generation int64
	Pid        int
	// reason of its failure, for people
	Why string
}

// Leases says whether the master has yet to hear that leases of this worker have ended.
type Leases struct{ Unreported bool }

// Looked answers [Look].
type Looked struct {
	// pids of the processes that are stopped by a signal
	Stopped []int
	// modification time of the newest checkpoint file; zero: there is none
	Checkpoint time.Time
}

// End ends the work: the job has ended, or this agent cannot continue.
type End struct {
	// least time that the processes have to end, as the master says; 0: it does not
	Grace time.Duration
}

func (Begin) event()        {}
func (Ready) event()        {}
func (Started) event()      {}
func (Exited) event()       {}
func (Hello) event()        {}
func (Arrived) event()      {}
func (Others) event()       {}
func (Done) event()         {}
func (Doubted) event()      {}
func (Met) event()          {}
func (FirstRound) event()   {}
func (Account) event()      {}
func (Saved) event()        {}
func (Unsaved) event()      {}
func (Rested) event()       {}
func (Closed) event()       {}
func (World) event()        {}
func (Opened) event()       {}
func (Recalled) event()     {}
func (Lost) event()         {}
func (AccountAsked) event() {}
func (LeaveAsked) event()   {}
func (StopAsked) event()    {}
func (Hung) event()         {}
func (Leases) event()       {}
func (Looked) event()       {}
func (End) event()          {}
