package supervise

import (
	"fmt"
	"slices"
	"time"
)

// Phase is a stage in the work of a supervisor.
type Phase int

// Phases.
const (
	// Idle: it has not begun.
	Idle Phase = iota
	// Preparing: the processes of a newcomer import and load before they join a world.
	Preparing
	// Warming: the program is made ready to be started.
	Warming
	// Meeting: the worker is at the rendezvous.
	Meeting
	// BackingOff: the worker has a world, and waits before its processes start.
	BackingOff
	// Starting: processes are being started.
	Starting
	// Entering: processes have started, and the others receive the world.
	Entering
	// Running: the processes work in the world.
	Running
	// Lingering: a process has failed, and other failures are waited for.
	Lingering
	// Draining: the worker is to leave, and its processes have the grace period to end.
	Draining
	// Recalling: the processes leave the world together with the others, after a round.
	Recalling
	// Breaking: the processes leave the world at once.
	Breaking
	// Killing: processes were killed that have not left the world.
	Killing
	// Completing: processes complete what follows the training, before all start again.
	Completing
	// Reaping: those of them that took too long were ended.
	Reaping
	// Ending: the work ends, and the processes with it.
	Ending
	// Ended: no process is left.
	Ended
)

var phases = [...]string{"idle", "preparing", "warming", "meeting", "backing off", "starting", "entering", "running",
	"lingering", "draining", "recalling", "breaking", "killing", "completing", "reaping", "ending", "ended"}

func (p Phase) String() string {
	if p < 0 || int(p) >= len(phases) {
		return fmt.Sprintf("Phase(%d)", int(p))
	}
	return phases[p]
}

// Phase returns what the supervisor does.
func (s *Supervisor) Phase() Phase { return s.phase }

// to enters a phase that lasts for at most a time; 0: it has no limit.
func (s *Supervisor) to(p Phase, limit time.Duration) {
	s.phase, s.phaseStart, s.limit = p, s.now, time.Time{}
	if limit > 0 {
		s.limit = s.now.Add(limit)
	}
}

// over reports whether the limit of the phase has passed.
func (s *Supervisor) over() bool { return !s.limit.IsZero() && !s.now.Before(s.limit) }

// advance decides one step after the other, until none is due.
func (s *Supervisor) advance() {
	for again := true; again; {
		before := s.phase
		again = s.step() || s.phase != before
		s.endTails()
	}
}

// step makes the decision that is due in the phase. It reports whether another one may be due in
// the same phase.
func (s *Supervisor) step() (again bool) {
	switch s.phase {
	case Preparing:
		s.prepare()
	case Warming:
		if s.leaving() {
			s.arrive()
		}
	case Meeting:
		s.meet()
	case BackingOff:
		s.backOff()
	case Entering:
		s.entered()
	case Running:
		return s.run()
	case Lingering:
		if s.over() || s.allEnded() {
			s.part()
		}
	case Draining:
		if s.over() || s.allEnded() {
			s.readyToLeave()
			s.part()
		}
	case Recalling:
		s.recallStep()
	case Breaking:
		s.breakStep()
	case Killing:
		s.killStep()
	case Completing:
		s.completeStep()
	case Reaping:
		if s.over() || !s.some((*process).tail) {
			s.leaveWorld()
		}
	case Ending:
		if s.over() || s.allEnded() {
			s.do(Finish{})
			s.to(Ended, 0)
		}
	}
	return false
}

// Deadline returns when [Supervisor.Handle] is to be called if no event comes before; zero: never.
func (s *Supervisor) Deadline() time.Time {
	var first time.Time
	for _, at := range []time.Time{s.limit, s.lookAt(), s.tailLimit(), s.backLimit(), s.joinLimit(),
		s.hangLimit()} {
		// what was due before was done
		if at.After(s.now) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// looks reports whether there is something to look at.
func (s *Supervisor) looks() bool {
	switch s.phase {
	case Running, Recalling, Breaking, Completing:
		return s.awaits || !s.allEnded()
	}
	return false
}

func (s *Supervisor) lookAt() time.Time {
	if !s.looks() {
		return time.Time{}
	}
	return s.look
}

// observe orders a look if one is due.
func (s *Supervisor) observe() {
	if !s.looks() || s.now.Before(s.look) {
		return
	}
	s.look = s.now.Add(lookEvery)
	a := Look{Checkpoint: s.awaits}
	for _, p := range s.procs {
		if p.lives() {
			a.Pids = append(a.Pids, p.pid)
		}
	}
	s.do(a)
}

// works reports whether the processes work in the world, or some are being started for it.
func (s *Supervisor) works() bool {
	return s.phase == Running || s.phase == Entering || s.phase == Starting && s.ran
}

// leaving reports whether the worker was asked to leave.
func (s *Supervisor) leaving() bool { return !s.leaveBy.IsZero() }

// allEnded reports whether all processes have ended.
func (s *Supervisor) allEnded() bool { return !s.some((*process).lives) }

// readyToLeave reports that a worker that was asked to leave can go.
func (s *Supervisor) readyToLeave() {
	s.hasten(!s.beat.Leaving)
	s.beat.Leaving = true
}

// prepare arrives when the processes of a newcomer are ready.
func (s *Supervisor) prepare() {
	failed := s.failed
	s.failed = nil
	switch forked := func(p *process) bool { return p.exit.Forked }; {
	case len(failed) > 0 && !slices.ContainsFunc(failed, func(p *process) bool { return !forked(p) }):
		// they may have crashed because they were forked; the next ones are not
		var locals []int
		for _, p := range failed {
			locals = append(locals, p.local)
		}
		slices.Sort(locals)
		s.order(Start{Locals: locals, LocalSize: s.policy.Processes, Size: s.policy.Processes})
	case len(failed) > 0:
		s.do(failedEarly(failed, s.memoryUsedUp()))
		s.end(0)
	case s.leaving(), !s.some(func(p *process) bool { return p.lives() && p.waits == nil }):
		s.arrive()
	}
}

// meet waits for a world. The master's answer to a worker that is to leave is that it may go.
func (s *Supervisor) meet() {
	if s.leaving() {
		s.readyToLeave()
	}
	if s.over() {
		s.do(Farewell{})
		s.end(0)
	}
}
