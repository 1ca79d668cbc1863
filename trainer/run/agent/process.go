package agent

import (
	"github.com/elasticdl/elasticdl/trainer/run/program"
)

// process is one process of the program.
type process struct {
	local int
	// in its world; -1: it was told none yet
	rank  int
	pid   int
	group *program.Group
	// nil: the process is running
	exit *program.Exit
	// The fields below hold what the process has said over its socket.
	// its connection; nil: it has said nothing, and keeps no state
	script *script
	// its arrival, while it waits for a world
	waits *word
	// it is in the current world, or will be in the next one
	member bool
	// it needs no world any more
	done bool
	// formation of the newest world that it was told
	entered int64
	// formation of the first world that it was told; 0: none
	joined int64
	// how often it was started again; nil: not known yet
	starts *starts
	// why it cannot be sure of its state; empty: it is, or has not said why
	doubt string
}

// keeps reports whether a process enters the next world with its state.
func (p *process) keeps() bool {
	return p != nil && p.exit == nil && p.script != nil && p.script.keeps && !p.done
}

// retired reports whether a process that kept its state needs no further world.
func (p *process) retired() bool { return p != nil && p.done }

// late reports whether a process is running that has not come to the current world.
func (p *process) late() bool { return p.lives() && !p.member }

// lives reports whether a process is running.
func (p *process) lives() bool { return p != nil && p.exit == nil }
