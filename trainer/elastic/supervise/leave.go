package supervise

import (
	"math"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
)

// trained reports whether a process of this world has completed the training: then the world stays
// until all have ended.
func (s *Supervisor) trained() bool {
	return !s.unknown && s.some(func(p *process) bool { return p != nil && p.member && p.retired() })
}

// finished reports whether all processes of this worker that are in the world have ended on their
// own with 0, and none is running.
func (s *Supervisor) finished() bool {
	return s.ran && s.some(func(p *process) bool { return p != nil && p.member }) && !s.some((*process).unfinished)
}

// drained reports whether everything is handled that processes have said.
func (s *Supervisor) drained() bool {
	return !s.some(func(p *process) bool { return p != nil && p.conn != nil && !p.conn.closed })
}

// follows decides whether a world is left now whose members were recalled after a round.
func (s *Supervisor) follows() bool {
	answer := situation{
		trained: s.trained(), joins: s.joins && !s.unknown,
		stateful:  s.some((*process).keeps),
		stateless: s.some(func(p *process) bool { return p.lives() && !p.keeps() }),
		finished:  s.finished(), restart: s.policy.RestartOnJoin,
	}.answer()
	if answer != leaveAtCheckpoint {
		return answer == leave
	}
	if !s.awaits {
		s.awaits, s.look = true, s.now
		s.log("A worker waits to join: the program restarts after its next checkpoint")
	}
	return s.baseline != nil && s.checkpoint.After(*s.baseline) && s.now.Sub(s.checkpoint) >= unwritten
}

// returns reports whether this worker is to meet the others again on its own: its processes have
// come back from the world, or have ended before they had finished because it leaves.
func (s *Supervisor) returns() bool {
	return s.returned && s.settled() || s.world.LocalSize > 0 && s.leaving() && s.allEnded() && !s.finished()
}

// settled reports whether all processes that keep their state have come back, or were waited for.
func (s *Supervisor) settled() bool {
	if s.firstReturn.IsZero() {
		s.firstReturn = s.now
	}
	return !s.now.Before(s.firstReturn.Add(partLimit)) || !s.some((*process).absent)
}

func (s *Supervisor) backLimit() time.Time {
	if s.phase != Running || s.firstReturn.IsZero() {
		return time.Time{}
	}
	return s.firstReturn.Add(partLimit)
}

// joined reports whether processes wait to join, and all others that were started are ready, too,
// or were waited for.
func (s *Supervisor) joined() bool {
	if s.trained() || !s.some(func(p *process) bool { return p.keeps() && !p.member && p.waits != nil }) {
		return false
	}
	if s.ready.IsZero() { // it may have been ready before this world
		s.ready = s.now
	}
	starts := s.some(func(p *process) bool { return p.late() && p.waits == nil && !p.retired() })
	return !starts || !s.now.Before(s.ready.Add(joinLimit))
}

func (s *Supervisor) joinLimit() time.Time {
	if s.phase != Running || s.ready.IsZero() {
		return time.Time{}
	}
	return s.ready.Add(joinLimit)
}

// depart tells the program that the worker is to leave.
func (s *Supervisor) depart() {
	grace := s.leaveBy.Sub(s.now)
	s.log("Asked to leave: the program has the grace period to end", "grace", grace.Round(time.Second))
	stays := func(p *process) bool { return p.keeps() || p.closes() || p.tail() }
	for _, p := range s.procs {
		if stays(p) && p.conn != nil {
			s.do(TellLeave{p.conn.number, s.leaveBy})
		}
	}
	switch {
	case s.finished(): // the master releases it
		s.readyToLeave()
	case s.some(stays):
		// the master recalls all members after a round, unless the training has ended
		s.tailsBy = s.leaveBy.Add(-s.policy.RestartGrace)
		s.readyToLeave()
	default:
		s.kill(grace, (*process).lives)
		s.to(Draining, max(0, grace)+killLimit)
	}
}

// endTails ends the processes past the training when a worker that is to leave can wait no longer.
func (s *Supervisor) endTails() {
	if at := s.tailLimit(); !at.IsZero() && !s.now.Before(at) {
		s.tailsBy = time.Time{}
		s.kill(s.policy.RestartGrace, (*process).tail)
	}
}

func (s *Supervisor) tailLimit() time.Time {
	switch s.phase {
	case Running, Recalling, Breaking, Completing:
		return s.tailsBy
	}
	return time.Time{}
}

// broken reports whether a process has failed otherwise than because its world was to end.
func (s *Supervisor) broken() bool {
	return slices.ContainsFunc(s.failed, func(p *process) bool { return !p.closed() })
}

// part begins to leave the world: processes come back or end after a round, unless a member is lost
// or breaks off, or one knows of no rounds.
func (s *Supervisor) part() {
	if s.lost || s.broken() || s.some((*process).cut) {
		s.breakUp()
		return
	}
	s.recall(false)
	s.to(Recalling, 0)
}

// recallStep waits until the processes have come back. It returns to the world if the training
// ended with the round after which they were to leave: the world stays until they have ended.
func (s *Supervisor) recallStep() {
	clear := !s.some((*process).parts)
	switch {
	case !clear && !s.lost && !s.broken():
	case s.trained() && !s.returns() && len(s.failed) == 0 && !s.lost:
		s.toRunning()
	default:
		s.breakUp()
	}
}

// breakUp makes processes leave the world at once that have not. Those that keep no state are
// ended.
func (s *Supervisor) breakUp() {
	s.kill(s.policy.RestartGrace, (*process).stateless)
	s.breaks = s.some((*process).parts)
	if s.breaks {
		s.do(Shut{})
		s.recall(true)
	}
	s.to(Breaking, s.partMost())
}

// partMost returns the time that processes may take to leave a world that has lost a member: they
// may be evaluating the model, and have the time of a task for it.
func (s *Supervisor) partMost() time.Duration {
	return max(partLimit, s.policy.TaskTimeout, s.policy.RestartGrace+killLimit)
}

// breakStep waits for the processes that leave at once, and kills those that do not.
func (s *Supervisor) breakStep() {
	if !s.some((*process).parts) {
		s.complete()
		return
	}
	if at := s.hangLimit(); !at.IsZero() && !s.now.Before(at) {
		s.hangs = true
		s.warn("Waiting for processes that have not left their world: it has lost a member",
			"generation", s.world.Generation, "since", partLimit, "killed_after", s.partMost())
	}
	if s.over() {
		s.warn("Killing processes that did not leave their world in time", "after", s.partMost())
		s.kill(0, (*process).parts)
		s.to(Killing, killLimit)
	}
}

func (s *Supervisor) hangLimit() time.Time {
	if s.phase != Breaking || s.hangs {
		return time.Time{}
	}
	return s.phaseStart.Add(partLimit)
}

// killStep waits for the end of processes that were killed.
func (s *Supervisor) killStep() {
	switch {
	case !s.some((*process).parts):
		s.complete()
	case s.over():
		s.do(GiveUp{Why: "processes of the program did not end after SIGKILL"})
		s.end(0)
	}
}

// recall makes the processes that keep their state leave the world: at once, or all together after
// a round, after which those that keep none end. Until then they can use the world's store: a
// process may be building its process group when a worker joins.
func (s *Supervisor) recall(now bool) {
	for _, p := range s.procs {
		if p.absent() || !now && p.closes() {
			s.do(Recall{p.conn.number, s.world.Generation, now})
		}
	}
}

// complete waits for the processes that do what follows the training, such as saving the model, as
// long as a task may take.
func (s *Supervisor) complete() {
	if !s.some((*process).tail) {
		s.leaveWorld()
		return
	}
	limit := max(partLimit, s.policy.TaskTimeout)
	s.log("The world ends before all its processes have: those that are past the training complete what "+
		"they do, and all start again", "generation", s.world.Generation, "killed_after", limit)
	s.to(Completing, limit)
}

func (s *Supervisor) completeStep() {
	switch {
	case !s.some((*process).tail):
		s.leaveWorld()
	case s.over():
		s.kill(s.policy.RestartGrace, (*process).tail)
		s.to(Reaping, s.policy.RestartGrace+killLimit)
	}
}

// leaveWorld goes to the rendezvous when no process takes part in the world any more. Those that
// have completed the training start again, too.
func (s *Supervisor) leaveWorld() {
	s.brokeOff = s.breaks && s.keeps || s.breaksOff()
	for _, p := range s.procs {
		if p != nil {
			p.done = false
		}
	}
	s.arrive()
}

// breaksOff reports whether processes of other workers would wait for one of this worker's, after
// all have left the world: one has failed, was ended, or was never started.
func (s *Supervisor) breaksOff() bool {
	if !s.keeps && len(s.failed) == 0 && !s.leaving() && s.policy.RestartOnJoin == job.RestartAtCheckpoint {
		// the others may still be writing their checkpoints
		return false
	}
	left := 0
	for _, p := range s.procs {
		if p != nil && p.member && (p.waits != nil || p.exit != nil && !p.exit.Failed() && !p.exit.Stopped ||
			p.retired() || p.closed()) {
			left++
		}
	}
	return left < s.world.LocalSize
}

// arrive goes to the rendezvous with what the processes bring to the next world: the newest of
// their states.
func (s *Supervisor) arrive() {
	a := Arrive{Generation: s.world.Generation, At: rendezvous.NoState, BrokeOff: s.brokeOff,
		Finished: s.finished(), Leaves: s.leaving()}
	s.reportFailures(&a)
	for _, p := range s.procs {
		if p != nil {
			p.member = !p.retired() && (!s.keeps && !s.leaving() || p.keeps() && p.waits != nil)
		}
	}
	for _, p := range s.members(math.MaxInt64) {
		a.Processes++
		if !p.keeps() || p.waits == nil || p.waits.Round < 0 {
			continue
		}
		at := rendezvous.Position{Beginning: s.world.Beginning, Round: p.waits.Round}
		if p.waits.Read {
			at.Beginning = 0
		}
		if at.Compare(a.At) > 0 {
			a.At, a.Source, a.Conn = at, a.Processes-1, p.conn.number
		}
	}
	// none was started yet
	if !slices.ContainsFunc(s.procs, func(p *process) bool { return p != nil }) && !s.leaving() {
		a.Processes = s.policy.Processes
	}
	s.beat.Generation, s.beat.Finished, s.account = 0, 0, account{}
	s.do(a)
	s.to(Meeting, 0)
	// the arrival only tells how the processes ended: a master that is away need not know
	if s.leaving() && s.allEnded() {
		s.limit = s.now.Add(farewellLimit)
	}
}

// reportFailures adds the failures since the last arrival. They are printed if a process has ended
// with an exit code: others may only have been killed.
func (s *Supervisor) reportFailures(a *Arrive) {
	failed := s.failed
	s.failed = nil
	var reported []*process
	for _, p := range failed {
		a.Failed = append(a.Failed, p.pid)
		e := end{Exited: *p.exit, speaks: p.conn != nil, frozen: p.frozen, hung: p.hung, lost: s.lost,
			memory: s.memoryUsedUp()}
		if f, isReported := judge(e, s.wasRecalled(e.Erred), p.doubt); isReported {
			a.Failures, reported = append(a.Failures, f), append(reported, p)
		}
	}
	if root := rootCause(reported); root != nil {
		a.First = root.pid
	}
	if root := rootCause(failed); root != nil &&
		slices.ContainsFunc(failed, func(p *process) bool { return p.exit.Signal == 0 && !p.closed() }) {
		a.Root = root.pid
	}
}

// wasRecalled reports whether the world was recalled, or was not the master's any more, before a
// process reported its failure. Of one that reported none the end counts, which is later.
func (s *Supervisor) wasRecalled(erred time.Time) bool {
	return (s.recalled || s.unknown) && (erred.IsZero() || !erred.Before(s.recalledAt))
}

// end ends all processes. They have at least a time for it.
func (s *Supervisor) end(least time.Duration) {
	if s.phase == Ending || s.phase == Ended {
		return
	}
	grace := max(least, s.policy.RestartGrace)
	if s.leaving() {
		grace = max(grace, s.leaveBy.Sub(s.now))
	}
	s.kill(grace, (*process).lives)
	s.beat.Generation, s.beat.Finished, s.account = 0, 0, account{}
	s.to(Ending, grace+killLimit)
}
