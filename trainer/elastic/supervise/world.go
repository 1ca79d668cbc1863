package supervise

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// assigned takes the next world.
func (s *Supervisor) assigned(w World) {
	s.current = current{world: w}
	s.others, s.knowsOthers = w.Size, true
	s.brokeOff = true // unless they leave it after a round
	for _, p := range s.procs {
		if p != nil {
			p.stopped = time.Time{}
		}
	}
	s.to(BackingOff, w.Pause)
}

// backOff waits before the processes start, as those of the worlds before failed soon. It leaves a
// world that is over before.
func (s *Supervisor) backOff() {
	pause := s.world.Pause
	// a process that waited for this world and has ended meanwhile was its member
	own := s.world.Source - s.world.First
	if len(s.failed) > 0 || own >= 0 && own < s.world.LocalSize && !s.has(own) {
		s.arrive()
		return
	}
	if !s.opened {
		s.opened = true
		s.do(Open{s.world.Generation})
		if pause > 0 {
			s.warn("Waiting before the processes start again: they failed soon after their start, again and again",
				"pause", pause)
		}
	}
	switch {
	case pause > 0 && (s.recalled || s.unknown || s.lost || s.world.LocalSize > 0 && s.leaving()):
		s.arrive()
	case pause <= 0 || s.over():
		s.ran = true
		s.start()
	}
}

// has reports whether the n-th of the processes that take part has a state, and waits.
func (s *Supervisor) has(n int) bool {
	members := s.members(math.MaxInt64)
	return n < len(members) && members[n].keeps() && members[n].waits != nil && members[n].waits.Round >= 0
}

// start starts the processes that are not running, and tells the others of the world.
func (s *Supervisor) start() {
	s.do(ClearFailure{})
	w := s.world
	a := Start{Generation: w.Generation, First: w.First, LocalSize: w.LocalSize, Size: w.Size}
	// they join, and learn the world, when they are ready
	if s.keeps {
		a.First, a.LocalSize, a.Size = 0, s.policy.Processes, max(w.Size, s.policy.Processes)
	}
	if a.Locals = s.locals(); len(a.Locals) > 0 && !s.leaving() {
		s.order(a)
		return
	}
	// those that have ended were of an earlier world
	for _, local := range a.Locals {
		if p := s.procs[local]; p != nil {
			p.member = false
		}
	}
	s.to(Entering, 0)
}

// entered tells the processes that wait of the world.
func (s *Supervisor) entered() {
	for _, p := range s.procs {
		if p != nil && p.member && p.keeps() && p.waits != nil && p.entered != s.world.Generation {
			s.enter(p)
		}
	}
	if w := s.world; s.beat.Generation != w.Generation {
		s.log(fmt.Sprintf("World %d: %s of %d", w.ID, ranks(w.First, w.LocalSize), w.Size), "generation", w.Generation,
			"store", w.Store)
		s.beat.Generation, s.beat.Finished, s.account = w.Generation, 0, account{}
	}
	s.toRunning()
}

// toRunning begins or resumes the work in the world.
func (s *Supervisor) toRunning() {
	s.to(Running, 0)
	s.departed = false
	// this worker has come to this world because the others, or those that will come, are too few
	if s.world.LocalSize == 0 && s.leaving() {
		s.readyToLeave() // if it was asked since it came
		s.departed = true
	}
}

// enter announces the world to a process that waits.
func (s *Supervisor) enter(p *process) {
	rank := s.world.First
	for _, other := range s.members(s.world.Generation) {
		if other == p {
			break
		}
		rank++
	}
	p.count(s.world)
	if rank == 0 && s.world.Source < 0 {
		s.do(Origin{p.conn.number})
	}
	p.waits, p.entered, p.rank = nil, s.world.Generation, rank
	if p.joined == 0 {
		p.joined = s.world.Generation
	}
	s.do(Enter{p.conn.number, p.local, rank, p.restarts})
	s.tellStop(p)
}

// count sets the restarts of a process, by the first world that it enters.
func (p *process) count(w World) {
	if !p.counted {
		p.restarts, p.counted = w.Restarts, true
	}
}

// run decides the next step in a world. It reports whether another decision may be due.
func (s *Supervisor) run() (again bool) {
	leaves := (s.recalled || s.unknown) && s.follows()
	switch {
	case s.lost:
		s.log("The world ends: it has lost a member", "generation", s.world.Generation)
		s.part()
		return true
	case len(s.failed) > 0 && !s.broken(): // the others leave after this round, too
		s.part()
		return true
	case len(s.failed) > 0:
		if slices.ContainsFunc(s.failed, func(p *process) bool { return p.exit.Signal != 0 }) {
			s.part()
		} else {
			s.to(Lingering, linger)
		}
		return true
	case s.returns(), s.joined():
		s.part()
		return true
	case !s.shed && s.trained() && s.some((*process).late):
		s.shed, again = true, true
		s.log("The training has ended without processes that were starting: they are ended", "generation",
			s.world.Generation)
		s.kill(s.policy.RestartGrace, (*process).late)
	case s.restart && !s.leaving() && !s.trained():
		s.restart = false
		if !s.keeps {
			s.part()
			return true
		}
		s.start()
	case !s.finishReported && s.finished() && !s.unreported && s.drained():
		s.finishReported, again = true, true
		s.log("All processes have ended with 0", "generation", s.world.Generation)
		s.beat.Finished = s.world.Generation
		s.hasten(true)
	}
	if leaves && s.phase == Running {
		s.log("The world changes", "generation", s.world.Generation, "joins", s.joins && !s.unknown)
		s.part()
		return true
	}
	if s.phase == Running && s.leaving() && !s.departed {
		s.departed = true
		s.depart()
	}
	return again
}

// ranks returns a range of n ranks as text, such as "rank 2" or "ranks 2-5".
func ranks(first, n int) string {
	switch n {
	case 0:
		return "no rank"
	case 1:
		return fmt.Sprintf("rank %d", first)
	}
	return fmt.Sprintf("ranks %d-%d", first, first+n-1)
}
