package verdict

import (
	"cmp"
	"slices"
)

// Failure is the end of a process that was not to end, or not in this way.
type Failure struct {
	Worker, Rank, PID int
	// exit code; 0 with a Signal
	Code int
	// signal that ended it; 0: none
	Signal int
	// what the process reported itself; "" if nothing
	Message string
	// why it ended, in one line for people
	Reason string
	// the system ended it, as the worker was out of memory
	Memory bool
	// it came after the world was recalled, and may follow from that
	Excused bool
	// the process ended itself because it cannot know whether its state is that of the others
	Doubt bool
	// it may have crashed because it was started by fork
	Forked bool
	// it was killed because the job made no progress, see --hang_timeout
	Hung bool
	// time of its end, in Unix milliseconds
	UnixMs int64
}

// cause is a row of the table of why a process can have failed.
type cause struct {
	text string
	// of the failures in one world the one of the lowest order has ended it: the others may follow
	order int
	// it is the program's own fault, and counts unless workers were lacking
	own bool
	// the program may have done it to itself: the same end again and again fails the job
	repeats bool
	is      func(Failure) bool
}

// Causes with a meaning besides the columns of the table.
const (
	afterFork = "crashed after a fork"
	inDoubt   = "in doubt about its state"
	excused   = "excused"
	hung      = "hung"
)

// causes is the table: the first row that applies does. A process that was killed counts before all
// others, since these may have lost their connections to it. One that was killed as it hung counts
// before those that were killed since.
var causes = []cause{
	{inDoubt, 2, false, false, func(f Failure) bool { return f.Doubt }},
	{excused, 3, false, false, func(f Failure) bool { return f.Excused }},
	{hung, 0, true, true, func(f Failure) bool { return f.Hung }},
	{afterFork, 1, false, false, func(f Failure) bool { return f.Forked }},
	{"killed from outside", 1, false, true, Failure.FromOutside},
	{"its own failure", 4, true, true, func(Failure) bool { return true }},
}

// cause returns the row of the table that applies to a failure.
func (f Failure) cause() cause {
	return causes[slices.IndexFunc(causes, func(c cause) bool { return c.is(f) })]
}

// FromOutside reports whether a process was ended from outside: by a signal that a failing program
// does not cause itself. The system's, as the worker was out of memory, is the program's own fault.
func (f Failure) FromOutside() bool {
	if f.Memory {
		return false
	}
	switch f.Signal {
	case 1, 2, 3, 9, 15: // HUP, INT, QUIT, KILL, TERM
		return true
	}
	return false
}

// root returns the failure that has ended a world, and its cause.
func root(failed []Failure) (Failure, cause) {
	f := slices.MinFunc(failed, func(a, b Failure) int {
		return cmp.Or(cmp.Compare(a.cause().order, b.cause().order), cmp.Compare(a.UnixMs, b.UnixMs))
	})
	return f, f.cause()
}
