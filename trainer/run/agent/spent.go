package agent

import (
	"sync"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// spentMessage tells where the time of a process went since it began, in milliseconds.
type spentMessage struct {
	Compute    int64 `json:"compute"`
	Data       int64 `json:"data"`
	Peers      int64 `json:"peers"`
	Checkpoint int64 `json:"checkpoint"`
	Forming    int64 `json:"forming"`
}

// spents adds up where the time of this worker's processes went, those that have ended included. A
// worker's time is the mean of its processes.
type spents struct {
	mu sync.Mutex
	// last report of each connection
	last map[int]spentMessage
	// sum of all processes; nil: none has reported
	sum *spentMessage
}

// add notes the report of a process.
func (s *spents) add(conn int, m spentMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sum == nil {
		s.sum, s.last = new(spentMessage), make(map[int]spentMessage)
	}
	was := s.last[conn]
	s.last[conn] = m
	s.sum.Compute += max(0, m.Compute-was.Compute)
	s.sum.Data += max(0, m.Data-was.Data)
	s.sum.Peers += max(0, m.Peers-was.Peers)
	s.sum.Checkpoint += max(0, m.Checkpoint-was.Checkpoint)
	s.sum.Forming += max(0, m.Forming-was.Forming)
}

// free forgets a process that has ended.
func (s *spents) free(conn int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.last, conn)
}

// report returns the time of a worker with that many processes; nil: no process measures it.
func (s *spents) report(processes int) *wire.Spent {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sum == nil {
		return nil
	}
	n := int64(max(1, processes))
	return &wire.Spent{ComputeMs: s.sum.Compute / n, DataMs: s.sum.Data / n, PeersMs: s.sum.Peers / n,
		CheckpointMs: s.sum.Checkpoint / n, FormingMs: s.sum.Forming / n}
}
