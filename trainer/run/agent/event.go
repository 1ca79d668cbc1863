package agent

import (
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/supervise"
	"github.com/elasticdl/elasticdl/trainer/run/program"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

// current is the world that the agent was given last.
type current struct {
	membership.World
	share
	// ends the service of its store to the processes; nil: it is not served
	shut func()
	// number of processes of this worker that the system had killed because memory was used up,
	// when those of this world were started
	ooms int
	// the supervisor knows that it has lost a member, and that its members were recalled
	lost     bool
	recalled *supervise.Recalled
}

// assigned is the answer of the rendezvous.
type assigned struct {
	membership.World
	err error
}

// exited is the end of a process.
type exited struct {
	*process
	program.Exit
}

// translate returns what the supervisor is notified of what the loop hears.
func (a *agent) translate(m any) ([]supervise.Event, error) {
	switch m := m.(type) {
	case supervise.Event:
		return []supervise.Event{m}, nil
	case exited:
		m.process.exit = &m.Exit
		return []supervise.Event{supervise.Exited{Pid: m.pid, Code: m.Code, Signal: m.Signal, Stopped: m.Stopped,
			Forked: m.Forked}}, nil
	case assigned:
		if m.err != nil {
			return nil, m.err
		}
		return a.assign(m.World)
	case message:
		if e := a.hear(m); e != nil {
			return []supervise.Event{e}, nil
		}
	}
	return nil, nil
}

// assign takes the next world: all processes have left the one before.
func (a *agent) assign(w membership.World) ([]supervise.Event, error) {
	s, err := shareOf(w.World, a.Self.Header().Index)
	if err != nil {
		return nil, err
	}
	a.world = current{World: w, share: s}
	a.stores.formed(w.Members[0].Crew.Store)
	return []supervise.Event{supervise.World{
		Generation: w.Generation, ID: w.Id, First: s.first, LocalSize: int(w.Members[s.group].Crew.Processes),
		Size: s.size, Source: s.source, Beginning: w.Beginning, Pause: time.Duration(w.PauseMs) * time.Millisecond,
		Restarts: supervise.Restarts{Count: int(w.Restarts), Max: int(w.MaxRestarts)},
		Store:    w.Members[0].Crew.Store,
	}}, nil
}

// hear returns what the supervisor is notified of a message of a process; nil: nothing.
func (a *agent) hear(m message) supervise.Event {
	c := m.from
	if h, ok := m.inbound.(helloMessage); ok {
		c.hello = h
		a.conns[c.number] = c
		return supervise.Hello{Conn: c.number, Pid: c.pid, Leader: c.leader, KeepsState: h.Survives}
	}
	if a.conns[c.number] == nil {
		return nil // it has not said hello
	}
	switch m := m.inbound.(type) {
	case closed:
		return supervise.Closed{Conn: c.number}
	case arriveMessage:
		c.arrived = m
		return supervise.Arrived{Conn: c.number, Round: m.Round, Read: m.Read}
	case doneMessage:
		return supervise.Done{Conn: c.number}
	case doubtMessage:
		return supervise.Doubted{Conn: c.number, Why: m.Why}
	case metMessage:
		return supervise.Met{Conn: c.number, Generation: m.Generation}
	case roundMessage:
		return supervise.FirstRound{Conn: c.number}
	case accountMessage:
		return supervise.Account{Conn: c.number, Generation: m.Generation,
			Ledger: a.records.ledger(m.Ledger, m.Settled)}
	case savedMessage:
		return supervise.Saved{Conn: c.number, Round: m.Round, Path: m.Path}
	case unsavedMessage:
		return supervise.Unsaved{Conn: c.number, Path: m.Path, Why: m.Why}
	case restMessage:
		return supervise.Rested{Conn: c.number, Round: m.Round, Why: m.Why}
	}
	return nil
}
