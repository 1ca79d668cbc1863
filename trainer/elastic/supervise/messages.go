package supervise

import (
	"fmt"
	"slices"
	"time"
)

// This file has what processes say on their connections, and what they are asked.

// releaseLeases gives the leases of a connection to other processes, once its process has ended and
// all its messages are handled. A message that the process sent before its end may arrive until the
// connection ends.
func (s *Supervisor) releaseLeases(c *connection) {
	switch lives := s.some(func(p *process) bool { return p.lives() && p.conn == c }); {
	case lives: // it is about to end
	case c.closed:
		s.do(Free{c.number})
	default:
		s.do(Drain{c.number})
	}
}

// closed takes the end of a connection.
func (s *Supervisor) closed(number int) {
	p := s.ofConn(number)
	// it was refused, or another one of its process has followed
	if p == nil {
		s.do(Free{number})
		return
	}
	p.conn.closed = true
	s.releaseLeases(p.conn)
}

// greet connects a process with the one that says hello: itself, or one that its command has
// started, as scripts behind a wrapper are. Others are ordered to end: they would wait for a world
// without end.
func (s *Supervisor) greet(e Hello) {
	p, why := s.speaker(e)
	if p == nil {
		s.do(Refuse{e.Conn, e.Pid, why})
		return
	}
	before := p.conn
	p.conn = &connection{number: e.Conn, pid: e.Pid, keeps: e.KeepsState}
	p.waits, p.early = nil, nil
	s.do(Accept{e.Conn, p.local})
	// a script that its command had started before
	if before != nil {
		s.releaseLeases(before)
	}
	s.hasten(!s.beat.Asks)
	s.beat.Asks = true
	s.tellStop(p)
	if e.KeepsState {
		s.keeps = true
		s.hasten(!s.beat.Keeps)
		s.beat.Keeps = true
	}
}

// speaker returns the process in whose session a connection was made; nil: why there is none.
func (s *Supervisor) speaker(e Hello) (p *process, why string) {
	i := slices.IndexFunc(s.procs, func(p *process) bool { return p != nil && p.pid == e.Leader })
	if i < 0 {
		return nil, "it is in the session of none of this worker's processes: a command must start " +
			"the script in its own session, without setsid"
	}
	p = s.procs[i]
	switch {
	case p.lives() && p.conn == nil && p.ordered:
		return nil, "it was ordered to end before it called elasticdl.init()"
	case !p.lives():
		return nil, fmt.Sprintf("the command of local rank %d has ended: it must wait for the script", p.local)
	case p.conn != nil && p.conn.pid != e.Pid && (p.done || !p.conn.closed):
		return nil, fmt.Sprintf("another process of local rank %d, with the pid %d, has called "+
			"elasticdl.init() before: a command may start one that does", p.local, p.conn.pid)
	}
	return p, ""
}

// hasten has the next heartbeat sent at once, if that is due.
func (s *Supervisor) hasten(due bool) { s.urgent = s.urgent || due }

// arrived takes the message of a process that waits for a world.
func (s *Supervisor) arrived(e Arrived) {
	p := s.ofConn(e.Conn)
	if p == nil {
		return
	}
	if e.Early && !p.member {
		p.early = &e
		s.decideEarly()
		return
	}
	p.early, p.waits = nil, &e
	switch {
	case p.member && p.entered != s.world.Generation && s.phase == Recalling:
		// the others wait for it, to make the round after which all leave
		s.enter(p)
		s.do(Recall{p.conn.number, s.world.Generation, false})
	case !s.works() || !p.member: // see joined
	case p.entered == s.world.Generation:
		s.returned = true
	case s.phase == Running:
		s.enter(p)
	}
}

// decideEarly answers the processes that have arrived before their model was made. While others
// train they come again; otherwise they wait for a world like any.
func (s *Supervisor) decideEarly() {
	rank, size := s.others, s.others
	for _, p := range s.procs {
		if p.late() {
			size++
		}
	}
	for _, p := range s.procs {
		if p.late() {
			rank++
		}
		switch {
		case !p.lives() || p.early == nil:
		case s.others > 0:
			p.early = nil
			s.do(Outside{p.conn.number, p.local, rank - 1, size})
		case s.knowsOthers:
			e := *p.early
			e.Early = false
			s.arrived(e)
		}
	}
}

// hear takes what else a process says.
func (s *Supervisor) hear(e Event) {
	switch e := e.(type) {
	case Done:
		if p := s.ofConn(e.Conn); p != nil {
			p.done = true
			s.account.final, s.account.stale = true, false
			s.answerAccount()
			s.hasten(true)
			s.pastTraining(p)
		}
	case Doubted:
		if p := s.ofConn(e.Conn); p != nil {
			p.doubt = e.Why
			s.warn("Restarting a process that doubts its state", "local_rank", p.local, "why", e.Why)
		}
	case Met:
		if s.ofConn(e.Conn) != nil {
			s.beat.Met = max(s.beat.Met, e.Generation)
			s.hasten(true)
		}
	case FirstRound:
		// the master is to know of it when the world ends
		s.hasten(s.ofConn(e.Conn) != nil)
	case Account:
		if s.ofConn(e.Conn) != nil && e.Generation == s.beat.Generation {
			s.beat.Met = e.Generation
			s.account.ledger, s.account.known, s.account.stale = e.Ledger, true, false
			s.answerAccount()
			s.hasten(true)
		}
	case Saved:
		if s.ofConn(e.Conn) != nil {
			s.do(ReportSaved{e.Round, e.Path, s.now})
		}
	case Unsaved:
		if s.ofConn(e.Conn) != nil {
			s.do(ReportUnsaved{e.Path, e.Why})
		}
	case Rested:
		if s.ofConn(e.Conn) != nil {
			s.do(ReportRest{e.Round, e.Why})
		}
	}
}

// askAccount takes the master's question which records are in the state of every rank. If no
// process can tell, they report it at the next rendezvous.
func (s *Supervisor) askAccount() {
	a := &s.account
	if !a.asked && !a.final {
		a.stale = true
	}
	a.asked = true
	if s.answerAccount() {
		return
	}
	asked := false
	for _, p := range s.procs {
		if p.lives() && p.conn != nil && p.member && !p.done {
			asked = true
			s.do(AskAccount{p.conn.number})
		}
	}
	if !asked {
		s.noteRecall()
	}
	s.unknown = s.unknown || !asked
}

// answerAccount answers the master's question if it has asked and the answer is known.
func (s *Supervisor) answerAccount() bool {
	a := &s.account
	if !a.asked || !a.known || a.stale {
		return false
	}
	a.asked = false
	s.do(SendAccount{a.ledger})
	return true
}

// stopAsked takes the order that the job is to stop: processes that use the package end a round,
// all ranks the same one, and one of them writes a checkpoint. Then they wait until they are
// ended.
func (s *Supervisor) stopAsked(by time.Time) {
	if !s.stopBy.IsZero() {
		return
	}
	s.stopBy = by
	s.log("The job is to stop: the processes end a round, and one of them writes a checkpoint",
		"within", by.Sub(s.now).Round(time.Second))
	for _, p := range s.procs {
		if p != nil {
			s.tellStop(p)
			s.pastTraining(p)
		}
	}
}

// tellStop tells a process that the job is to stop, if it is, and can be asked for a checkpoint.
func (s *Supervisor) tellStop(p *process) {
	if !s.stopBy.IsZero() && p.lives() && p.conn != nil && !p.done {
		s.do(TellStop{p.conn.number, s.stopBy})
	}
}

// pastTraining reports of a job that is to stop that a process has completed the training: there is
// no round to wait for.
func (s *Supervisor) pastTraining(p *process) {
	if !s.stopBy.IsZero() && p.member && p.done {
		s.do(ReportRest{Problem: "the training had ended, and what comes after it saves the script itself"})
	}
}
