package supervise

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// fakeProcess is a process of the model.
type fakeProcess struct {
	pid, local int
	// its connection; 0: it does not use the package
	conn  int
	keeps bool
	// world in which it works, and the last one that it received; 0: none yet
	world, heard int64
	// it waits for a world, or needs none any more
	waits, done bool
	// it was recalled from its world
	recalled bool
	// it was sent SIGTERM, or SIGKILL
	terminated, killed bool
	stopped            bool
	// the master has judged that it hangs, and it was killed for that
	judged, hung bool
	// since when each look in this world has found it stopped
	since time.Time
}

// model is a machine with processes, a master that assigns worlds, and what the laws need.
type model struct {
	*rapid.T
	s, twin *Supervisor
	policy  Policy
	now     time.Time
	live    map[int]*fakeProcess
	// connections that were not closed, and those whose process has ended
	conns map[int]*fakeProcess
	pids  int
	// the worker has arrived, and has no world yet
	arrived bool
	// processes of the next world
	members int
	world   int64
	// newest world in which the worker has finished
	reportedFinish int64
	// newest world that a process has ended with 0 in, on its own
	succeeded int64
	// the master's word about the world
	lost, leaving, ended, finished bool
	leaveBy                        time.Time
	// pids of processes that have failed on their own, which no arrival has named
	failed map[int]bool
	named  map[int]bool
	// the master has asked for the records, and no process has reported them since
	asked  bool
	ledger []byte
	// a process has completed the training in this world
	final bool
	// the master has yet to hear of leases that have ended
	unreported bool
	// number of processes that the OOM killer has killed, and when the last world was opened
	ooms, oomsBefore int
	// the last end of a process that was not ordered to end
	last Exited
	// until when a process may be killed at the earliest, by pid
	until map[int]time.Time
}

func newModel(t *rapid.T) *model {
	p := Policy{Processes: rapid.IntRange(1, 3).Draw(t, "processes"), Keeps: rapid.Bool().Draw(t, "keeps"),
		Joins: rapid.Bool().Draw(t, "joins"), RestartGrace: 3 * time.Second, HeartbeatTimeout: 10 * time.Second,
		TaskTimeout: 2 * time.Minute, RestartOnJoin: rapid.SampledFrom([]string{job.RestartNow, job.RestartNever,
			job.RestartAtCheckpoint}).Draw(t, "restart")}
	return &model{T: t, s: New(p), twin: New(p), policy: p, now: start, live: make(map[int]*fakeProcess),
		conns: make(map[int]*fakeProcess), pids: 100, failed: make(map[int]bool), named: make(map[int]bool),
		until: make(map[int]time.Time)}
}

// tell makes the same call on the supervisor and its twin, and performs the actions.
func (m *model) tell(events ...Event) {
	for {
		did, other := m.s.Handle(m.now, events...), m.twin.Handle(m.now, events...)
		if a, b := fmt.Sprint(did), fmt.Sprint(other); a != b {
			m.Fatalf("same calls, other actions:\n%s\n%s", a, b)
		}
		if at := m.s.Deadline(); !at.IsZero() && !at.After(m.now) {
			m.Fatalf("%v after %v: Deadline is %v, not later than now", m.s.Phase(), events, at)
		}
		looked := slices.ContainsFunc(events, func(e Event) bool { _, is := e.(Looked); return is })
		events = nil
		for _, a := range did {
			events = append(events, m.perform(a)...)
		}
		for pid, p := range m.live {
			if looked && m.frozen(p) && !p.killed {
				m.Fatalf("%v: %d is stopped since %v", did, pid, p.since)
			}
			if m.s.Phase() == Draining && p.terminated && !p.killed && m.until[pid].Before(m.leaveBy) {
				m.Fatalf("%v: %d has until %v, the worker until %v", did, pid, m.until[pid], m.leaveBy)
			}
		}
		if len(events) == 0 {
			return
		}
	}
}

// perform performs an action, and checks what it may do. It returns the answer.
func (m *model) perform(a Action) []Event {
	switch a := a.(type) {
	case Start:
		return []Event{m.start(a)}
	case Kill:
		m.kill(a)
	case Enter:
		p := m.conns[a.Conn]
		if p == nil || m.live[p.pid] == nil || !p.waits || p.heard >= m.world {
			m.Fatalf("%v: it does not wait for world %d", a, m.world)
		}
		p.world, p.heard, p.waits, p.recalled = m.world, m.world, false, false
	case Outside:
		p := m.conns[a.Conn]
		if p == nil || m.live[p.pid] == nil || !p.waits || p.world > 0 || a.Rank < 1 || a.Rank >= a.Size {
			m.Fatalf("%v: it has not arrived early", a)
		}
		p.waits = false
	case Recall:
		p := m.conns[a.Conn]
		if p == nil || p.waits || p.done || a.Generation != m.world {
			m.Fatalf("%v: it does not work in world %d", a, m.world)
		}
		p.recalled = true
	case Arrive:
		m.arrive(a)
	case Free:
		for _, p := range m.live {
			if p.conn == a.Conn {
				m.Fatalf("%v: its process runs", a)
			}
		}
	case SendAccount:
		if m.asked && !m.final || !slices.Equal(a.Ledger, m.ledger) || m.ledger == nil {
			m.Fatalf("%v, and the newest is %q, older than the question: %v", a, m.ledger, m.asked)
		}
		m.asked = false
	case Report:
		m.report(a)
	case Look:
		var e Looked
		for _, pid := range a.Pids {
			if p := m.live[pid]; p == nil {
				m.Fatalf("%v: %d does not run", a, pid)
			} else if p.stopped {
				e.Stopped = append(e.Stopped, pid)
			}
			m.looked(m.live[pid])
		}
		if a.Checkpoint {
			e.Checkpoint = start.Add(time.Duration(rapid.IntRange(0, 100).Draw(m.T, "checkpoint")) * time.Second)
		}
		return []Event{e}
	case Open:
		m.oomsBefore = m.ooms
		return []Event{Opened{m.ooms}}
	case GiveUp:
		m.giveUp(a)
	case Finish:
		for pid, p := range m.live {
			if m.now.Before(m.until[pid].Add(killLimit)) || !p.killed && !p.terminated {
				m.Fatalf("%v, and %d runs", a, pid)
			}
		}
		m.finished = true
	case Farewell:
		if !m.leaving || len(m.live) > 0 {
			m.Fatalf("%v: asked to leave %v, %d processes run", a, m.leaving, len(m.live))
		}
		m.ended = true
	}
	return nil
}

// start starts processes: law 1, and law 3.
func (m *model) start(a Start) Event {
	if m.leaving || m.ended {
		m.Fatalf("%v: the worker leaves", a)
	}
	var e Started
	for _, p := range m.live {
		if p.world > 0 && p.world != a.Generation && !p.waits {
			m.Fatalf("%v: %d works in world %d", a, p.pid, p.world)
		}
		if slices.Contains(a.Locals, p.local) {
			m.Fatalf("%v: %d runs", a, p.pid)
		}
	}
	for _, local := range a.Locals {
		m.pids++
		m.live[m.pids] = &fakeProcess{pid: m.pids, local: local}
		if a.Generation > 0 && !m.s.keeps {
			m.live[m.pids].world = a.Generation
		}
		e.Pids = append(e.Pids, m.pids)
	}
	return e
}

// looked notes what a look finds.
func (m *model) looked(p *fakeProcess) {
	switch {
	case !p.stopped:
		p.since = time.Time{}
	case p.since.IsZero():
		p.since = m.now
	}
}

// frozen reports whether a process has been stopped for the heartbeat timeout.
func (m *model) frozen(p *fakeProcess) bool {
	return !p.since.IsZero() && m.now.Sub(p.since) >= m.policy.HeartbeatTimeout
}

// kill sends a signal: laws 5, 6 and 8.
func (m *model) kill(a Kill) {
	p := m.live[a.Pid]
	if p == nil || p.local != a.Local {
		m.Fatalf("%v: it does not run", a)
	}
	if a.Grace <= 0 {
		switch m.s.Phase() {
		case Killing, Draining, Ending, Ended:
		default:
			if p.hung = p.judged && !p.killed; !p.hung && !m.frozen(p) {
				m.Fatalf("%v: it is stopped since %v, at %v", a, p.since, m.now)
			}
		}
		p.killed, p.terminated = true, p.terminated || !m.frozen(p) && !p.hung
		return
	}
	p.terminated = true
	if until := m.now.Add(a.Grace); until.After(m.until[a.Pid]) {
		m.until[a.Pid] = until
	}
}

// arrive goes to the rendezvous: laws 1, 2 and 11.
func (m *model) arrive(a Arrive) {
	if m.arrived || m.ended || a.Generation != m.world {
		m.Fatalf("%v: arrived %v, from world %d", a, m.arrived, m.world)
	}
	with := 0
	for _, p := range m.live {
		if p.world > 0 && !p.waits {
			m.Fatalf("%v: %d works in world %d, done %v", a, p.pid, p.world, p.done)
		}
		if p.keeps && p.waits && !p.terminated && m.s.ofConn(p.conn).early == nil {
			with++
		}
	}
	if m.s.keeps && a.Processes != with && len(m.live)+int(a.Generation) > 0 {
		m.Fatalf("%v, and %d wait", a, with)
	}
	for _, pid := range a.Failed {
		if !m.failed[pid] || m.named[pid] {
			m.Fatalf("%v: %d has not failed, or was named before", a, pid)
		}
		m.named[pid] = true
		delete(m.failed, pid)
	}
	if len(m.failed) > 0 {
		m.Fatalf("%v does not name %v", a, m.failed)
	}
	if len(a.Failures) > len(a.Failed) {
		m.Fatalf("%v: %d failures of %d", a, len(a.Failures), len(a.Failed))
	}
	for _, f := range a.Failures {
		if killed := f.Cause == killed; f.Memory != (killed && m.ooms > m.oomsBefore) {
			m.Fatalf("%v, and the OOM killer has killed %d processes in this world", a, m.ooms-m.oomsBefore)
		}
	}
	if (a.First > 0) != (len(a.Failures) > 0) || a.Root > 0 && !slices.Contains(a.Failed, a.Root) {
		m.Fatalf("%v: root causes %d and %d", a, a.First, a.Root)
	}
	m.arrived, m.members = true, a.Processes
}

// giveUp ends the worker: law 11.
func (m *model) giveUp(a GiveUp) {
	m.ended = true
	want, why := m.last.Signal, m.last.Message
	if want != 9 || m.ooms > m.oomsBefore {
		want = 0
	}
	if m.world > 0 {
		want, why = 0, "did not end after SIGKILL"
	}
	if a.Signal != want || !strings.HasSuffix(a.Why, why) {
		m.Fatalf("%v after %+v, %d processes killed by the OOM killer", a, m.last, m.ooms-m.oomsBefore)
	}
}

// report checks what heartbeats report: laws 3 and 7.
func (m *model) report(a Report) {
	if a.Leaving && !m.leaving {
		m.Fatalf("%v: nobody has asked", a)
	}
	if a.Finished > m.reportedFinish && m.unreported {
		m.Fatalf("%v, and leases are unreported", a)
	}
	m.reportedFinish = max(m.reportedFinish, a.Finished)
	if a.Finished > 0 && (len(m.live) > 0 || a.Finished != m.world) {
		m.Fatalf("%v in world %d: %d processes run", a, m.world, len(m.live))
	}
	if a.Finished > m.succeeded {
		m.Fatalf("%v, and no process of that world has ended with 0", a)
	}
	for _, p := range m.conns {
		if a.Finished > 0 && p.world == m.world {
			m.Fatalf("%v, and not everything is handled that %d has said", a, p.pid)
		}
	}
	if a.Generation > 0 && a.Generation != m.world {
		m.Fatalf("%v in world %d", a, m.world)
	}
}

// exit ends a process, on its own or because it was ordered to.
func (m *model) exit(p *fakeProcess, code, signal int, stopped, forked bool) {
	delete(m.live, p.pid)
	if code == 0 && signal == 0 && !stopped {
		m.succeeded = max(m.succeeded, p.world)
	}
	if e := (Exited{Code: code}); e.Failed() && !stopped && !m.ended && m.s.Phase() != Preparing {
		m.failed[p.pid] = true
	}
	if p.conn == 0 {
		delete(m.conns, p.conn)
	}
	if code == -9 && rapid.Bool().Draw(m.T, "out of memory") {
		m.ooms++
	}
	m.last = Exited{Pid: p.pid, Code: code, Signal: signal, Stopped: stopped, Forked: forked, At: m.now,
		Second: m.now.Unix(), Message: fmt.Sprint("the end of ", p.pid), OOMKills: m.ooms}
	m.tell(m.last)
}

// some draws a live process for which is is true; nil: there is none.
func (m *model) some(is func(*fakeProcess) bool) *fakeProcess {
	var all []*fakeProcess
	for _, p := range m.live {
		if is(p) {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b *fakeProcess) int { return a.pid - b.pid })
	return rapid.SampledFrom(all).Draw(m.T, "process")
}

// obey ends a process that was ordered to end, and lets one leave that was recalled.
func (m *model) obey() bool {
	if p := m.some(func(p *fakeProcess) bool { return p.killed || p.terminated }); p != nil {
		frozen := p.killed && p.stopped
		if (frozen || p.hung) && !m.ended {
			m.failed[p.pid] = true
		}
		delete(m.live, p.pid)
		code := -9
		if !p.killed {
			code = rapid.SampledFrom([]int{-15, 0, 1}).Draw(m.T, "code")
		}
		m.tell(Exited{Pid: p.pid, Code: code, Signal: max(0, -code), Stopped: true})
		return true
	}
	if p := m.some(func(p *fakeProcess) bool { return p.recalled && !p.waits && !p.done }); p != nil {
		p.recalled, p.waits = false, true
		m.tell(Arrived{Conn: p.conn, Round: int64(rapid.IntRange(-1, 9).Draw(m.T, "round"))})
		return true
	}
	return false
}

// pass lets time pass until the next deadline, at most a minute.
func (m *model) pass(most time.Duration) {
	until := m.now.Add(most)
	if at := m.s.Deadline(); !at.IsZero() && at.Before(until) {
		until = at
	}
	m.now = until
	m.tell()
}

// A machine whose processes do what they like finds the laws kept.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		m.tell(Begin{})
		t.Repeat(m.moves())
		m.settle()
	})
}

// settle ends the job. The supervisor finishes when its processes do.
func (m *model) settle() {
	if !m.ended {
		m.ended = true
		m.tell(End{Grace: time.Minute})
	}
	for range 1000 {
		if m.finished {
			return
		}
		if !m.obey() {
			m.pass(time.Minute)
		}
	}
	m.Fatalf("it does not finish: %v, %d processes run", m.s.Phase(), len(m.live))
}
