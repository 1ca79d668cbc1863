package supervise

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// process is one process of the program.
type process struct {
	local int
	// in its world; -1: it has no world yet
	rank int
	pid  int
	// nil: the process is running
	exit *Exited
	// its connection; nil: it does not use the package, as far as is known
	conn *connection
	// how it has arrived, while it waits for a world
	waits *Arrived
	// how it has arrived before its model was made, until that is answered
	early *Arrived
	// it is in the current world, or will be in the next one
	member bool
	// it needs no world any more
	done bool
	// generation of the newest world that it received, and of the first; 0: none
	entered, joined int64
	// its number of restarts, once that is known
	restarts Restarts
	counted  bool
	// why it cannot be sure of its state; "": it is, or has not said why
	doubt string
	// since when it is stopped by a signal; zero: it is not
	stopped time.Time
	// it was killed because it was stopped for too long
	frozen bool
	// why it was killed, as the master has judged that it hangs; "": it was not
	hung string
	// it was ordered to end
	ordered bool
}

// connection is that of a process that uses the package.
type connection struct {
	number, pid int
	keeps       bool
	// it has ended, and all its messages are handled
	closed bool
}

// stoppedFirst reports whether a process has ended because the agent had asked it to, and not
// because it hung.
func (p *process) stoppedFirst() bool { return p.exit.Stopped && p.hung == "" }

// lives reports whether a process is running.
func (p *process) lives() bool { return p != nil && p.exit == nil }

// keeps reports whether a process enters the next world with its state.
func (p *process) keeps() bool {
	return p.lives() && p.conn != nil && p.conn.keeps && !p.done && !p.ordered
}

// retired reports whether a process needs no further world.
func (p *process) retired() bool { return p != nil && p.done }

// late reports whether a process is running that has not come to the current world.
func (p *process) late() bool { return p.lives() && !p.member }

// tail reports whether a process is running that does what follows the training.
func (p *process) tail() bool { return p.lives() && p.retired() }

// stateless reports whether a process ends with its world.
func (p *process) stateless() bool { return p.lives() && p.member && !p.keeps() && !p.retired() }

// closes reports whether a process ends on its own after a round of its world, so that it can write
// what it has: it uses the package, and keeps no state.
func (p *process) closes() bool {
	return p.stateless() && p.conn != nil && !p.conn.closed && !p.conn.keeps && !p.ordered && p.joined > 0
}

// cut reports whether a process that ends with its world cannot end on its own.
func (p *process) cut() bool { return p.stateless() && !p.closes() }

// closed reports whether a process has ended because its world was to end, on its own.
func (p *process) closed() bool {
	return p != nil && p.conn != nil && p.exit != nil && p.exit.Signal == 0 && p.exit.Code == CodeRestart
}

// parts reports whether a process has not left its world yet.
func (p *process) parts() bool { return p.lives() && p.member && p.waits == nil && !p.retired() }

// absent reports whether a process that keeps its state has not come back from its world.
func (p *process) absent() bool { return p != nil && p.member && p.keeps() && p.waits == nil }

// unfinished reports whether a process keeps its worker from having finished.
func (p *process) unfinished() bool {
	return p == nil || p.lives() || p.member && (p.exit.Failed() || p.exit.Stopped)
}

// Process is a running process, for what shows it.
type Process struct {
	Local, Pid int
	// -1: it has no world yet
	Rank int
	// it uses the package
	Speaks bool
	// it has completed the training
	Trained bool
}

// Processes returns the processes that are running.
func (s *Supervisor) Processes() (all []Process) {
	for _, p := range s.procs {
		if p.lives() {
			all = append(all, Process{p.local, p.pid, p.rank, p.conn != nil, p.done})
		}
	}
	return all
}

func (s *Supervisor) some(is func(*process) bool) bool { return slices.ContainsFunc(s.procs, is) }

// ofPid returns the running process with a pid, nil if there is none.
func (s *Supervisor) ofPid(pid int) *process {
	for _, p := range s.procs {
		if p.lives() && p.pid == pid {
			return p
		}
	}
	return nil
}

// ofConn returns the process that a connection is of, nil if there is none.
func (s *Supervisor) ofConn(number int) *process {
	for _, p := range s.procs {
		if p != nil && p.conn != nil && p.conn.number == number {
			return p
		}
	}
	return nil
}

// members returns the processes that take part in the world of a generation, in the order of their
// ranks. Those that were in an earlier world come first, in the order in which they have joined: a
// process that is started again takes no rank from one that has continued.
func (s *Supervisor) members(generation int64) []*process {
	members := slices.DeleteFunc(slices.Clone(s.procs), func(p *process) bool { return p == nil || !p.member })
	seniority := func(p *process) int64 {
		if p.joined == 0 || p.joined >= generation {
			return math.MaxInt64
		}
		return p.joined
	}
	slices.SortStableFunc(members, func(a, b *process) int { return cmp.Compare(seniority(a), seniority(b)) })
	return members
}
