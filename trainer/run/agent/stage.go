package agent

import (
	"sync"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// stages holds the startup stage of this worker's processes, for heartbeats. Until they complete
// rounds nothing else shows why the job makes no progress.
type stages struct {
	mu sync.Mutex
	// what the agent does before processes start; STAGE_UNKNOWN: nothing
	doing wire.Stage
	procs []witnessed
}

// witnessed is a running process, as the agent observes it.
type witnessed struct {
	wrote   func() bool // reports whether it has written anything
	speaks  bool        // it uses the Python package
	trained bool        // it has completed the training
}

// does sets what the agent does before processes start.
func (s *stages) does(what wire.Stage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doing = what
}

// watch sets the running processes.
func (s *stages) watch(procs []witnessed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.procs = procs
}

// least returns the earliest stage of all processes, or the agent's own if it is preparing them.
func (s *stages) least() wire.Stage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.doing != wire.Stage_STAGE_UNKNOWN || len(s.procs) == 0 {
		return s.doing
	}
	least := wire.Stage_STAGE_TRAINED
	for _, p := range s.procs {
		least = min(least, p.stage())
	}
	return least
}

func (p witnessed) stage() wire.Stage {
	switch {
	case p.trained:
		return wire.Stage_STAGE_TRAINED
	case p.speaks:
		return wire.Stage_STAGE_TRAINING
	case p.wrote():
		return wire.Stage_STAGE_STARTED
	}
	return wire.Stage_STAGE_SILENT
}
