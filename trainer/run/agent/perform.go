package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/elastic/supervise"
	"github.com/elasticdl/elasticdl/trainer/run/program"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

// perform executes an action of the supervisor and returns the events that result from it. The
// error is the reason why this worker must end, if it must.
func (a *agent) perform(ctx context.Context, action supervise.Action) ([]supervise.Event, error) {
	switch act := action.(type) {
	case supervise.Warm:
		a.group.Go(func() {
			a.program.Ready(ctx)
			a.mail.put(supervise.Ready{})
		})
	case supervise.Start:
		return a.start(ctx, act)
	case supervise.Kill:
		if p := a.procs[act.Local]; p != nil && p.pid == act.Pid {
			p.group.Kill(p.local, act.Grace)
		}
	case supervise.Open:
		a.open(ctx)
		return []supervise.Event{supervise.Opened{OOMKills: a.program.OOMKills()}}, nil
	case supervise.Shut:
		a.shut()
	case supervise.ClearFailure:
		if err := a.blame.remove(); err != nil {
			a.Log.Warn("Removing the error file of a failure that the program has survived", "error", err)
		}
	case supervise.Look:
		looked := supervise.Looked{Stopped: a.program.Stopped(act.Pids)}
		if act.Checkpoint {
			looked.Checkpoint = a.program.Checkpoint()
		}
		return []supervise.Event{looked}, nil
	case supervise.Arrive:
		return nil, a.arrive(ctx, act)
	case supervise.Farewell:
		return nil, membership.ErrLeft
	case supervise.GiveUp:
		return nil, giveUp(act)
	case supervise.Log:
		if act.Warn {
			a.Log.Warn(act.Message, act.Args...)
		} else {
			a.Log.Info(act.Message, act.Args...)
		}
	default:
		a.tell(action)
		a.set(action)
	}
	return nil, nil
}

// tell executes an action that concerns connections of processes.
func (a *agent) tell(action supervise.Action) {
	switch act := action.(type) {
	case supervise.Accept:
		c := a.conns[act.Conn]
		a.Log.Debug("A process has connected", "local_rank", act.Local, "pid", c.pid, "keeps_state",
			c.hello.Survives, "backend", c.hello.Backend, "torch", c.hello.Torch)
	case supervise.Refuse:
		if c := a.conns[act.Conn]; !c.conn.Ended() {
			a.Log.Warn("Refusing a process of the program", "pid", act.Pid, "why", act.Why)
			c.say(endMessage{Code: 1, Why: act.Why})
		}
	case supervise.Drain:
		a.conns[act.Conn].conn.CloseRead() // fails if the connection has ended
	case supervise.Free:
		a.records.free(act.Conn)
		delete(a.conns, act.Conn)
	case supervise.Enter:
		a.conns[act.Conn].say(a.worldMessage(act))
	case supervise.Outside:
		a.conns[act.Conn].say(outsideMessage{Rank: act.Rank, Size: act.Size, LocalRank: act.Local})
	case supervise.Recall:
		a.conns[act.Conn].say(recallMessage{Generation: act.Generation, Now: act.Now})
	case supervise.TellLeave:
		a.conns[act.Conn].say(leaveMessage{Deadline: float64(act.By.UnixMilli()) / 1000})
	case supervise.TellStop:
		a.conns[act.Conn].say(stopMessage{Deadline: float64(act.By.UnixMilli()) / 1000})
	case supervise.AskAccount:
		a.conns[act.Conn].say(askMessage{})
	case supervise.AnnounceEnd:
		a.scripts.ended(act.Generation, act.Rank)
	}
}

// set executes an action that changes the content of heartbeats.
func (a *agent) set(action supervise.Action) {
	b := &a.beats
	switch act := action.(type) {
	case supervise.Report:
		b.set(act.Urgent, func() {
			if b.Beat = act.Beat; b.Generation == 0 {
				b.account = nil
			}
		})
	case supervise.SendAccount:
		b.set(true, func() { b.account = act.Ledger })
	case supervise.ReportSaved:
		b.set(true, func() {
			b.saved = &wire.Saved{Round: act.Round, Path: act.Path, UnixMs: act.At.UnixMilli()}
			b.unsaved = ""
		})
	case supervise.ReportUnsaved:
		b.set(true, func() { b.unsaved = fmt.Sprintf("%s: %s", act.Path, act.Why) })
	case supervise.ReportRest:
		b.set(true, func() { b.rest = &wire.Rest{Round: act.Round, Problem: act.Problem} })
	case supervise.Origin:
		b.set(true, func() { b.origin = a.origin(a.conns[act.Conn].arrived) })
	}
}

// worldMessage returns the message that describes the world to a process.
func (a *agent) worldMessage(act supervise.Enter) worldMessage {
	w := a.world
	env := map[string]string{
		"RANK": strconv.Itoa(act.Rank), "WORLD_SIZE": strconv.Itoa(w.size),
		"MASTER_ADDR": w.host, "MASTER_PORT": strconv.Itoa(w.port),
		"GROUP_RANK": strconv.Itoa(w.group), "GROUP_WORLD_SIZE": strconv.Itoa(w.groups),
		"TORCHELASTIC_RESTART_COUNT": strconv.Itoa(act.Restarts.Count),
		"TORCHELASTIC_MAX_RESTARTS":  strconv.Itoa(act.Restarts.Max),
	}
	return worldMessage{Generation: w.Generation, Rank: act.Rank, Size: w.size, LocalRank: act.Local, Source: w.source,
		Env: env, Settled: w.Settled, Floor: w.Floor}
}

// origin returns the report of the state with which this world begins, given the arrival of the
// process whose state all ranks take.
func (a *agent) origin(arrived arriveMessage) *wire.Origin {
	o := &wire.Origin{Generation: a.world.Generation}
	if arrived.Round > 0 {
		o.Version, o.Ledger = arrived.Round, a.records.ledger(arrived.stateRecords)
	}
	return o
}

// arrival returns the message with which this worker joins the rendezvous. It offers the store at
// the given address for the next world.
func (a *agent) arrival(act supervise.Arrive, address string) *wire.Arrival {
	m := &wire.Arrival{
		Worker: int32(a.Self.Header().Index), Suspect: -1, Process: a.incarnation, Address: address,
		Generation: act.Generation, Beginning: act.At.Beginning, Round: act.At.Round, BrokeOff: act.BrokeOff,
		Leaves: act.Leaves,
		Crew:   &wire.Crew{Store: address, Processes: int32(act.Processes), Source: int32(act.Source)},
	}
	if act.Conn > 0 {
		m.Version, m.Ledger = act.At.Round, a.records.ledger(a.conns[act.Conn].arrived.stateRecords)
	}
	if act.Generation > 0 {
		m.Finished, m.Exhausted, m.Failures = act.Finished, a.records.exhausted(), a.failures(act)
		m.Output, m.CheckpointUnixMs = a.progress()
	}
	return m
}

// progress returns evidence of the program's progress in the last world: a digest of the output of
// the processes that have ended, "" if there is no output, and the modification time of the newest
// file of --checkpoint_file in Unix milliseconds, 0 if there is no such file.
func (a *agent) progress() (output string, checkpoint int64) {
	var digests []string
	for _, p := range a.procs {
		if p != nil && p.exit != nil {
			digests = append(digests, p.exit.Output)
		}
	}
	output = strings.Trim(strings.Join(digests, " "), " ")
	if newest := a.program.Checkpoint(); !newest.IsZero() {
		checkpoint = newest.UnixMilli()
	}
	return output, checkpoint
}

// exits returns the ends of those of the given processes that have ended.
func (a *agent) exits(pids []int) (all []program.Exit) {
	for _, p := range a.procs {
		if p != nil && p.exit != nil && slices.Contains(pids, p.pid) {
			all = append(all, *p.exit)
		}
	}
	return all
}

// failures returns the reports of the processes that failed on their own. It also writes the error
// file, and prints the failures for the user.
func (a *agent) failures(act supervise.Arrive) []*wire.Failure {
	var all []*wire.Failure
	for _, f := range act.Failures {
		for _, e := range a.exits([]int{f.Pid}) {
			m := failure(e)
			m.Memory, m.Excused, m.Doubt, m.Hung = f.Memory, f.Excused, f.Doubt, f.Hung
			if f.Why != "" {
				m.Message = f.Why
			}
			all = append(all, m)
		}
	}
	for _, e := range a.exits([]int{act.First}) {
		if err := a.blame.write(e); err != nil {
			a.Log.Warn("Writing the error file of the program's failure", program.ErrorFileVariable, a.ErrorFile,
				"error", err)
		}
	}
	if act.Root > 0 {
		io.WriteString(a.Messages, program.Report(a.Job.Title(), a.Host, a.exits(act.Failed), act.Root))
	}
	return all
}

// failure returns the report of a failed process.
func failure(e program.Exit) *wire.Failure {
	f := &wire.Failure{Rank: int32(e.Rank), Local: int32(e.Local), Pid: int32(e.Pid),
		Code: int32(max(0, e.Code)), Signal: int32(e.Signal), Forked: e.Forked, UnixMs: e.At.UnixMilli()}
	if e.Failure != nil {
		f.Message, f.Traceback = e.Failure.Message, e.Failure.Traceback
		// of a large process seconds may lie between its failure and its end
		if at := e.Failure.Written; !at.IsZero() {
			f.UnixMs = min(f.UnixMs, at.UnixMilli())
		}
	} else {
		f.Message = e.Words
	}
	return f
}

// KilledError is the error of a worker whose processes were killed from outside before they joined
// a world. The worker counts as lost, not as failed.
type KilledError struct {
	error
	Signal int
}

// giveUp returns the error with which the worker ends.
func giveUp(act supervise.GiveUp) error {
	err := errors.New(act.Why)
	if act.Signal > 0 {
		return KilledError{err, act.Signal}
	}
	return err
}

// show passes the running processes to the reports of heartbeats.
func (a *agent) show() {
	var all []shown
	var stages []witnessed
	for _, p := range a.supervisor.Processes() {
		group := a.procs[p.Local].group
		all = append(all, shown{p.Local, p.Rank, p.Pid, group})
		stages = append(stages, witnessed{func() bool { return group.Wrote(p.Local) }, p.Speaks, p.Trained})
	}
	a.beats.set(false, func() { a.beats.signs.shown = all })
	a.stages.watch(stages)
}
