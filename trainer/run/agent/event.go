package agent

import (
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/supervise"
	"github.com/elasticdl/elasticdl/trainer/run/program"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

// current is the newest world that the master assigned to this worker.
type current struct {
	membership.World
	share
	// shut ends the processes' access to the store of the world; nil: they have none
	shut func()
	// the supervisor was notified that a member of this world is lost
	lost bool
	// the newest recall that the supervisor was notified of; nil: none
	recalled *supervise.Recalled
}

// assigned is the answer of the rendezvous to an arrival: the next world, or an error.
type assigned struct {
	membership.World
	err error
}

// exited is the end of a process.
type exited struct {
	*process
	program.Exit
}

// translate converts a message of the loop into events for the supervisor.
func (a *agent) translate(m any) ([]supervise.Event, error) {
	switch m := m.(type) {
	case supervise.Event:
		return []supervise.Event{m}, nil
	case exited:
		m.process.exit = &m.Exit
		e := supervise.Exited{Pid: m.pid, Code: m.Code, Signal: m.Signal, Stopped: m.Stopped,
			Forked: m.Forked, At: m.At, Second: m.Exit.Second(), Message: m.Message(),
			OOMKills: a.program.OOMKills()}
		if m.Failure != nil {
			e.Erred = m.Failure.Written
		}
		return []supervise.Event{e}, nil
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

// assign makes a world the current one, and returns the event for the supervisor. All processes
// have left the world before.
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

// hear converts a process's message into an event for the supervisor; nil: there is none.
func (a *agent) hear(m message) supervise.Event {
	c := m.from
	if h, ok := m.inbound.(helloMessage); ok {
		c.hello = h
		a.conns[c.number] = c
		return supervise.Hello{Conn: c.number, Pid: c.pid, Leader: c.leader, KeepsState: h.Survives}
	}
	if a.conns[c.number] == nil {
		return nil // no hello was received on this connection
	}
	switch m := m.inbound.(type) {
	case closed:
		return supervise.Closed{Conn: c.number}
	case arriveMessage:
		c.arrived = m
		return supervise.Arrived{Conn: c.number, Round: m.Round, Read: m.Read, Early: m.Early}
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
			Ledger: a.records.ledger(m.stateRecords)}
	case savedMessage:
		return supervise.Saved{Conn: c.number, Round: m.Round, Path: m.Path}
	case unsavedMessage:
		return supervise.Unsaved{Conn: c.number, Path: m.Path, Why: m.Why}
	case restMessage:
		return supervise.Rested{Conn: c.number, Round: m.Round, Why: m.Why}
	}
	return nil
}
