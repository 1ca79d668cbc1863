package supervise

import (
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
	// unwritten is the time for which a checkpoint must be unchanged to count as complete.
	unwritten = 250 * time.Millisecond
	// linger is the wait for other failures after the first: the first that is seen may
	// not be the cause.
	linger = 200 * time.Millisecond
	// partLimit is the time that processes that keep their state may take to leave a world that has
	// lost a member until the log reports it.
	partLimit = time.Minute
	// joinLimit is the time for which a process that is ready to join waits for the others that
	// start on its worker.
	joinLimit = time.Second
	// farewellLimit is the time for which a worker that leaves without processes waits for the
	// master's answer to that.
	farewellLimit = 2 * time.Second
	// killLimit is the time that processes may take to end after SIGKILL: a driver may delay them.
	killLimit = 30 * time.Second
)

// Supervisor is the state of an agent's processes. It is not safe for concurrent use.
type Supervisor struct {
	policy Policy
	phase  Phase
	// when the phase began, and when it ends at the latest; zero: it has no limit
	phaseStart, limit time.Time
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
	// number of processes in the world, and whether it is known
	others      int
	knowsOthers bool
	// processes that have failed on their own, since the last arrival
	failed []*process
	// of the last world: a process may have left it in the middle of a round
	brokeOff bool
	// number of processes that the OOM killer has killed, and the number when the last world was
	// opened, or before the first world the number at the beginning
	oomKills, oomKillsBefore int
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

// current has the state of the current world, from its assignment to the next one.
type current struct {
	world World
	// processes may use its store, and were started in it; not so if it was over before
	opened, ran bool
	// the master has recalled its members; the only reason is that workers wait to join
	recalled, joins bool
	// when that was heard, or that the world is unknown to the master
	recalledAt time.Time
	// it has lost a member
	lost bool
	// no process can tell which records are in its state: they have to meet again
	unknown bool
	// the processes know that their worker is to leave
	departed bool
	// when processes past the training are ended, as the worker is to leave; zero: they are not
	tailsBy time.Time
	// a process has left this world on its own, the first at a time
	returned    bool
	firstReturn time.Time
	// when a process became ready to join; zero: none is
	ready time.Time
	// a process has ended that was killed: it is to start again
	restart bool
	// processes that were starting when the training ended were ended
	shed bool
	// it was reported that all processes have ended with 0
	finishReported bool
	// processes had to leave it at once; the log says that some have not
	breaks, hangs bool
	// a newcomer waits for a checkpoint newer than baseline, which is nil until that is known
	awaits   bool
	baseline *time.Time
	// time of the newest checkpoint
	checkpoint time.Time
}

// account has the newest report of the records in the state of every rank of the world.
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

// take updates the state by an event. Its consequences are decided when all events are taken.
func (s *Supervisor) take(e Event) {
	switch e := e.(type) {
	case Begin:
		s.countFrom(e.OOMKills)
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
	case Others:
		if e.Generation >= s.world.Generation { // otherwise it was sent before this world
			s.others, s.knowsOthers = e.Ranks, true
			s.decideEarly()
		}
	case Closed:
		s.closed(e.Conn)
	case World:
		if s.phase == Meeting {
			s.assigned(e)
		}
	case Opened:
		s.countFrom(e.OOMKills)
	case Recalled:
		if e.Generation == s.world.Generation {
			s.noteRecall()
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
	case Hung:
		s.hang(e)
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

// countFrom takes the number of processes that the OOM killer has killed at the beginning of a
// world.
func (s *Supervisor) countFrom(oomKills int) { s.oomKills, s.oomKillsBefore = oomKills, oomKills }

// memoryUsedUp reports whether the OOM killer has killed a process since the beginning of the last
// world.
func (s *Supervisor) memoryUsedUp() bool { return s.oomKills > s.oomKillsBefore }

// begin starts the work: the processes of a newcomer start before it meets the others, if they keep
// their state; otherwise the others only must not wait for their imports.
func (s *Supervisor) begin() {
	switch {
	case s.keeps:
		s.order(Start{Locals: s.locals(), LocalSize: s.policy.Processes, Size: s.policy.Processes})
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
	s.oomKills = max(s.oomKills, e.OOMKills)
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
		s.releaseLeases(p.conn)
	}
	if s.works() && p.conn == nil && p.member && !e.Failed() {
		s.do(AnnounceEnd{s.world.Generation, p.rank})
	}
	stopped := p.stoppedFirst() && !p.frozen
	switch {
	case s.phase == Ending, s.phase == Ended, !e.Failed() && (p.member || !stopped):
	case !stopped || s.phase == Preparing:
		s.failed = append(s.failed, p)
	case s.works(): // it was to end with the previous world
		s.restart = true
	}
}

// noteRecall notes when it was first heard that the world has ended.
func (s *Supervisor) noteRecall() {
	if !s.recalled && !s.unknown {
		s.recalledAt = s.now
	}
}

// looked takes what no event reports.
func (s *Supervisor) looked(e Looked) {
	if s.checkpoint = e.Checkpoint; s.awaits && s.baseline == nil {
		s.baseline = &e.Checkpoint
	}
	for _, p := range s.procs {
		switch {
		case !p.lives() || p.frozen:
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

// hang kills a process that the master has judged to hang, unless its world has ended, or is to.
func (s *Supervisor) hang(e Hung) {
	p := s.ofPid(e.Pid)
	if p == nil || p.hung != "" || p.ordered || !p.member || e.Generation != s.world.Generation ||
		s.phase != Running && s.phase != Recalling {
		return
	}
	s.warn("Killing a process that hangs", "local_rank", p.local, "pid", p.pid, "why", e.Why)
	p.hung, p.stopped = e.Why, time.Time{}
	s.do(Kill{p.local, p.pid, 0})
}

// kill ends the processes for which is reports true, and reports whether there are some.
func (s *Supervisor) kill(grace time.Duration, is func(*process) bool) (some bool) {
	for _, p := range s.procs {
		if p.lives() && is(p) {
			some, p.ordered = true, true
			s.do(Kill{p.local, p.pid, max(0, grace)})
		}
	}
	return some
}
