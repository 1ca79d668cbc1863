package agent

import (
	"fmt"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/run/program"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// event is the end of a process, a message of one, the order of the master that the job is to stop,
// or none of these: then the master asks for the account.
type event struct {
	exit *program.Exit
	of   *process
	said *message
	stop time.Time // time by which the job is to stop
}

// absorb updates the state by the events that are waiting, and passes each to tell.
func (a *agent) absorb(tell func(event)) {
	events := a.mail.drain()
	if len(events) > 0 {
		defer func() { a.stages.watch(a.procs) }()
	}
	for _, e := range events {
		switch {
		case !e.stop.IsZero():
			a.stops(e.stop)
		case e.exit == nil && e.said == nil:
			a.account()
		case e.exit != nil:
			e.of.exit = e.exit
			a.show()
			switch {
			case e.of.exit.Failed(): // it failed in what follows the training
				e.of.done = false
			case e.of.script != nil && e.of.waits == nil:
				// it has completed the training with its state
				e.of.done = true
			}
			if e.of.script != nil {
				a.letGo(e.of.script)
			}
		case e.said.Op == "":
			e.said.from.ended = true
			a.letGo(e.said.from)
		case e.said.Op == "hello":
			e.of = a.greet(e.said)
		default:
			i := slices.IndexFunc(a.procs, func(p *process) bool { return p != nil && p.script == e.said.from })
			if i < 0 {
				continue // the process has ended
			}
			e.of = a.procs[i]
			switch e.said.Op {
			case "arrive":
				e.of.waits = &e.said.word
			case "done":
				e.of.done = true
				a.beats.end()
				a.pastTraining(e.of)
			case "account":
				a.beats.setAccount(e.said.Formation, a.records.ledger(e.said.Ledger, e.said.Settled))
			case "saved":
				a.beats.saves(&wire.Saved{Round: e.said.Round, Path: e.said.Path, UnixMs: time.Now().UnixMilli()})
			case "unsaved":
				a.beats.fails(fmt.Sprintf("%s: %s", e.said.Path, e.said.Why))
			case "rest":
				a.beats.rests(&wire.Rest{Round: e.said.Round, Problem: e.said.Why})
			case "met":
				a.beats.meet(e.said.Formation)
			case "round":
				// the master is to know of it when that world ends
				a.beats.hasten()
			case "doubt":
				e.of.doubt = e.said.Why
				a.Log.Warn("Restarting a process that doubts its state", "local_rank", e.of.local, "why", e.said.Why)
			}
		}
		tell(e)
	}
}
