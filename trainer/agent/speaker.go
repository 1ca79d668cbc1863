package agent

import "slices"

// speaker returns the process that sends a hello; nil: it has ended, or is not of this worker.
func (a *agent) speaker(m *message) *process {
	for _, p := range a.procs {
		if p.lives() && p.pid == m.Pid {
			return p
		}
	}
	return nil
}

// letGo gives the leases of a connection to other processes, once its process has ended and all is handled that it had said. Before the
// connection ends, a message may come that is older than the end of the process.
func (a *agent) letGo(s *script) {
	switch lives := slices.ContainsFunc(a.procs, func(p *process) bool { return p.lives() && p.script == s }); {
	case lives: // it is about to end
	case s.ended:
		a.records.gone(s)
	default:
		s.drain()
	}
}
