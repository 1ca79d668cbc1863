package agent

import (
	"sync"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// stages knows how far the processes of this worker have come, for heartbeats: until they complete
// rounds nothing else tells why the job does not get on.
type stages struct {
	mu sync.Mutex
	// what the agent does before processes start; unknown: nothing
	doing wire.Stage
	procs []witnessed
}

// witnessed holds the observations of a running process.
type witnessed struct {
	wrote   func() bool // reports whether it has written anything
	speaks  bool        // it uses the package
	trained bool        // it has completed the training
}

// does notes what the agent does before processes start.
func (s *stages) does(what wire.Stage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doing = what
}

// watch notes which processes run.
func (s *stages) watch(procs []witnessed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.procs = procs
}

// least returns how far the processes have come that have come least far.
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
