package supervise

import (
	"fmt"
	"slices"
	"time"
)

// Policy has the parameters of a supervisor.
type Policy struct {
	// number of processes of this worker
	Processes int
	// processes of the program keep their state: those of a newcomer join a world when they are
	// ready
	Keeps bool
	// the others are training: they must not wait for the imports of this worker's program
	Joins bool
	// time that processes have to end that start again (--restart_grace)
	RestartGrace time.Duration
	// how long a process may be stopped (--heartbeat_timeout)
	HeartbeatTimeout time.Duration
	// how long processes may take to leave a world that has lost a member (--task_timeout), as they
	// may be evaluating the model; at least a minute
	TaskTimeout time.Duration
	// whether processes that keep no state start again for workers that join (--restart_on_join)
	RestartOnJoin string
}

const (
	// lookEvery is the time between two looks at what no event reports: whether processes are
	// stopped, or have written a checkpoint.
	lookEvery = 100 * time.Millisecond
	// unwritten is how long a checkpoint must be unchanged to count as complete.
	unwritten = 250 * time.Millisecond
	// linger is how long other failures are waited for after the first: the first that is seen may
	// not be the cause.
	linger = 200 * time.Millisecond
	// partLimit is how long processes that keep their state may take to leave a world that has lost
	// a member until the log says so.
	partLimit = time.Minute
	// joinLimit is how long a process that is ready to join waits for the others that start on its
	// worker.
	joinLimit = time.Second
	// farewellLimit is how long a worker that leaves, and whose processes have ended, waits for the
	// master's answer to that.
	farewellLimit = 2 * time.Second
	// killLimit is how long processes may take to end after SIGKILL: a driver may delay them.
	killLimit = 30 * time.Second
)

// Supervisor is the state of an agent's processes. It is not safe for concurrent use.
type Supervisor struct {
	policy Policy
	phase  Phase
	// when the phase began, and when it ends at the latest; zero: it has no limit
	began, limit time.Time
	// by local rank; nil: never started
	procs []*process
	// local ranks that are being started
	starting []int
	// processes of the program keep their state
	keeps bool

	// the worker was asked to leave, and its processes have until then; zero: it was not
	leaveBy time.Time
	// the job is to stop by then; zero: it is not
	stopBy time.Time

	current
	// processes that have failed by themselves, since the last arrival
	failed []*process
	// of the last world: a process may have left it in the middle of a round
	brokeOff bool
	// ended leases are to be reported to the master
	unreported bool

	account account
	beat    Beat
	// what heartbeats report as yet, and whether the next one is due at once
	reported Beat
	urgent   bool
	// when to look again at what no event reports
	look time.Time

	now time.Time
	// actions collected during the current call
	did []Action
}

// current is what is known of the current world, from its assignment to the next one.
type current struct {
	world World
	// processes may use its store, and were started in it; not so if it was over before
	opened, ran bool
	// the master has recalled its members; the only reason is that workers wait to join
	recalled, joins bool
	// it has lost a member
	lost bool
	// no process can tell which records are in its state: they have to meet again
	unknown bool
	// the processes of a worker that is to leave were told so
	departed bool
	// when processes past the training are ended, as the worker is to leave; zero: they are not
	tailsBy time.Time
	// a process has left this world by itself, the first at a time
	returned  bool
	firstBack time.Time
	// when a process became ready to join; zero: none is
	ready time.Time
	// a process has ended that was killed: it is to start again
	restart bool
	// processes that were starting when the training ended were ended
	shed bool
	// it was reported that all processes have ended with 0
	told bool
	// processes had to leave it at once; the log says that some have not
	breaks, hangs bool
	// a newcomer waits for a checkpoint newer than baseline, which is nil until that is known
	awaits   bool
	baseline *time.Time
	// time of the newest checkpoint
	checkpoint time.Time
}

// account is what is known of the records that are in the state of every rank of the world.
type account struct {
	ledger []byte
	known  bool
	// the master has asked for it
	asked bool
	// it is older than the question
	stale bool
	// a process has completed the training: it does not change any more
	final bool
}

// New returns the supervisor of an agent whose first event is [Begin].
func New(p Policy) *Supervisor {
	return &Supervisor{policy: p, procs: make([]*process, p.Processes), keeps: p.Keeps}
}

// Handle takes events in the order in which they have happened, and returns what the agent is to
// do. Without events it does what is due now.
func (s *Supervisor) Handle(now time.Time, events ...Event) []Action {
	s.now = now
	for _, e := range events {
		s.take(e)
	}
	s.advance()
	s.observe()
	if s.beat != s.reported || s.urgent {
		s.do(Report{s.beat, s.urgent})
		s.reported, s.urgent = s.beat, false
	}
	did := s.did
	s.did = nil
	return did
}

func (s *Supervisor) do(a Action) { s.did = append(s.did, a) }

func (s *Supervisor) log(message string, args ...any) { s.do(Log{Message: message, Args: args}) }

func (s *Supervisor) warn(message string, args ...any) {
	s.do(Log{Warn: true, Message: message, Args: args})
}

// take updates the state by an event. What follows from it is decided when all events are taken.
func (s *Supervisor) take(e Event) {
	switch e := e.(type) {
	case Begin:
		s.begin()
	case Ready:
		if s.phase == Warming {
			s.arrive()
		}
	case Started:
		s.started(e.Pids)
	case Exited:
		s.exited(e)
	case Hello:
		s.greet(e)
	case Arrived:
		s.arrived(e)
	case Closed:
		s.closed(e.Conn)
	case World:
		if s.phase == Meeting {
			s.assigned(e)
		}
	case Recalled:
		if e.Generation == s.world.Generation {
			s.recalled, s.joins = true, e.Joins
		}
	case Lost:
		s.lost = s.lost || e.Generation == s.world.Generation
	case AccountAsked:
		s.askAccount()
	case LeaveAsked:
		s.leaveBy = e.By
	case StopAsked:
		s.stopAsked(e.By)
	case Leases:
		s.unreported = e.Unreported
	case Looked:
		s.looked(e)
	case End:
		s.end(e.Grace)
	default:
		s.hear(e)
	}
}

// begin starts the work: the processes of a newcomer start before it meets the others, if they keep
// their state; otherwise the others only must not wait for their imports.
func (s *Supervisor) begin() {
	switch {
	case s.keeps:
		s.order(Start{Locals: s.locals(), Here: s.policy.Processes, Size: s.policy.Processes})
	case s.policy.Joins:
		s.to(Warming, 0)
		s.do(Warm{})
	default:
		s.arrive()
	}
}

// order starts processes. Nothing is decided until they have started.
func (s *Supervisor) order(a Start) {
	s.starting = a.Locals
	s.to(Starting, 0)
	s.do(a)
}

// locals returns the local ranks whose processes do not run.
func (s *Supervisor) locals() (locals []int) {
	for local, p := range s.procs {
		if !p.lives() && !p.retired() {
			locals = append(locals, local)
		}
	}
	return locals
}

// started takes the processes that were started.
func (s *Supervisor) started(pids []int) {
	if s.phase != Starting && s.phase != Ending {
		return
	}
	for i, local := range s.starting {
		p := &process{local: local, pid: pids[i], rank: -1}
		if s.world.Generation > 0 {
			p.count(s.world)
			// otherwise it joins, and learns the world, when it is ready
			if p.member = !s.keeps; p.member {
				p.rank = s.world.First + local
			}
		}
		s.procs[local] = p
	}
	s.starting = nil
	switch {
	case s.phase == Ending:
		s.kill(s.limit.Add(-killLimit).Sub(s.now), (*process).lives)
	case s.world.Generation == 0:
		s.to(Preparing, 0)
	default:
		s.to(Entering, 0)
	}
}

// exited takes the end of a process.
func (s *Supervisor) exited(e Exited) {
	p := s.ofPid(e.Pid)
	if p == nil {
		return
	}
	p.exit = &e
	p.stopped = time.Time{}
	switch {
	case e.Failed(): // perhaps in what follows the training
		p.done = false
	case p.conn != nil && p.waits == nil:
		// it has completed the training with its state
		p.done = true
	}
	if p.conn != nil {
		s.letGo(p.conn)
	}
	if s.works() && p.conn == nil && p.member && !e.Failed() {
		s.do(AnnounceEnd{s.world.Generation, p.rank})
	}
	stopped := e.Stopped && !p.frozen
	switch {
	case !e.Failed(), s.phase == Ending, s.phase == Ended:
	case !stopped || s.phase == Preparing:
		s.failed = append(s.failed, p)
	case s.works(): // it had not left the previous world
		s.restart = true
	}
}

// letGo gives the leases of a connection to other processes, once its process has ended and all is
// handled that it had said. Before the connection ends, a message may come that is older than the
// end of the process.
func (s *Supervisor) letGo(c *connection) {
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
	s.letGo(p.conn)
}

// greet connects a process with the one that says hello: itself, or one that its command has
// started, as scripts behind a wrapper are. Others are told to end: they would wait for a world
// without end.
func (s *Supervisor) greet(e Hello) {
	p, why := s.speaker(e)
	if p == nil {
		s.do(Refuse{e.Conn, e.Pid, why})
		return
	}
	before := p.conn
	p.conn, p.waits = &connection{number: e.Conn, pid: e.Pid, keeps: e.KeepsState}, nil
	s.do(Accept{e.Conn, p.local})
	// a script that its command had started before
	if before != nil {
		s.letGo(before)
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
	p.waits = &e
	switch {
	case !s.works() || !p.member: // see joined
	case p.entered == s.world.Generation:
		s.returned = true
	case s.phase == Running:
		s.enter(p)
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

// looked takes what no event reports.
func (s *Supervisor) looked(e Looked) {
	if s.checkpoint = e.Checkpoint; s.awaits && s.baseline == nil {
		s.baseline = &e.Checkpoint
	}
	for _, p := range s.procs {
		switch {
		case !p.lives():
		case !slices.Contains(e.Stopped, p.pid):
			p.stopped = time.Time{}
		case p.stopped.IsZero():
			p.stopped = s.now
		case s.policy.isFrozen(p.stopped, s.now):
			s.warn("Killing a process that was stopped for too long", "local_rank", p.local, "pid", p.pid,
				"for", s.now.Sub(p.stopped).Round(time.Millisecond))
			p.frozen, p.stopped = true, time.Time{}
			s.do(Kill{p.local, p.pid, 0})
		}
	}
}

// kill ends the processes for which is reports true, and reports whether there are some.
func (s *Supervisor) kill(grace time.Duration, is func(*process) bool) (some bool) {
	for _, p := range s.procs {
		if p.lives() && is(p) {
			some = true
			s.do(Kill{p.local, p.pid, max(0, grace)})
		}
	}
	return some
}
