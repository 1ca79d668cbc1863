package master

import (
	"cmp"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
)

// charges is what a program has used up of its limits.
type charges struct {
	// restarts is the number of charged failures.
	restarts int
	// doubts is the number of worlds that have ended with a doubt since the last completed round,
	// or charged failure.
	doubts int
	// repeats counts how often in a row the program has ended in the same way.
	repeats repeats
}

// worldEnd is how a world of a program ended.
type worldEnd struct {
	// failures of its processes
	failed []failure
	// left states that a member is lost, was asked to leave, or has reported nothing: the program
	// did not end this world.
	left bool
	// its processes have completed a round
	completed bool
	// number of workers that it lacked and that are on their way
	lacked int
	// number of workers that it should have had
	wanted int
	// what its processes have left, whatever failure has ended it
	trace manner
	// how long they ran, -1 if that is not known
	ran time.Duration
	// the next world begins with the state of processes that have kept it
	kept bool
}

// outcome is what a verdict does to the job. It fails if the limit of charged failures is exceeded,
// or if its program ends in the same way again and again.
type outcome int

const (
	goesOn outcome = iota
	exceeds
	endsSame
)

// verdict is what follows from the end of a world.
type verdict struct {
	// there is nothing to report, and the fields below have no meaning
	nothing bool
	// the failure that has ended the world
	root    failure
	charged bool
	// number of workers for want of which the failure is excused
	lacked int
	// what is said of the failure besides
	again   string
	outcome outcome
}

// judge decides whether the program is charged with the end of a world: if that was its own fault.
// No member was lost or asked to leave, no process was killed from outside, none may have crashed
// because it was forked, which a worker reports no second time, none doubts its state, and the
// world lacked no workers that are on their way. The last of mostDoubts worlds that have ended with
// a doubt is charged, too, if no round was completed in between. The job fails if more than
// mostRestarts failures are charged, or if the program has ended in the same way mostSame times in
// a row without progress, charged or not.
func (c charges) judge(e worldEnd, mostRestarts int) (verdict, charges) {
	if e.completed {
		c.doubts, c.repeats = 0, repeats{}
	}
	if len(e.failed) == 0 || e.left {
		c.repeats = repeats{}
		return verdict{nothing: true}, c
	}
	root, own := cause(e.failed)
	if root.Excused && !root.Doubt {
		return verdict{nothing: true}, c
	}
	if !root.Doubt && !root.Forked && e.lacked == 0 {
		c.repeats = c.repeats.add(e.manner(root), e.ran)
	}
	v := verdict{root: root, charged: own}
	switch {
	case own && e.lacked > 0:
		v.charged, v.lacked = false, e.lacked
		v.again = fmt.Sprintf(", in a world that lacked %d of %d workers", e.lacked, e.wanted)
	case root.Forked:
		v.again = " soon after it was forked, which may be the cause: its worker starts processes by exec from now on"
	case root.Doubt && !e.completed:
		if c.doubts++; c.doubts > 1 {
			v.again = fmt.Sprintf(", in %d worlds without a completed round", c.doubts)
		}
		v.charged = c.doubts >= mostDoubts
	}
	if v.charged {
		c.restarts++
		c.doubts = 0
	}
	most := mostSame
	if e.kept {
		most = mostSameKept
	}
	switch {
	case v.charged && c.restarts > mostRestarts:
		v.outcome = exceeds
	case c.repeats.Count >= most:
		v.outcome = endsSame
	}
	return v, c
}

// manner describes the end of a world by a failure.
func (e worldEnd) manner(root failure) manner {
	m := e.trace
	m.Signal, m.Code, m.Message = root.Signal, root.Code, root.Message[:min(len(root.Message), keptFailure)]
	return m
}

// judge decides what follows from the end of the last world, and reports it. It returns an error if
// the job fails. Next is the world that follows.
func (g *program) judge(before, next rendezvous.World) error {
	e := worldEnd{
		failed: g.failed, completed: g.completed(before), lacked: g.lacked(before),
		wanted: g.m.ring.wanted(), kept: len(next.Sources) > 0,
		trace: g.trace(before),
	}
	g.failed = nil
	g.resume(next)
	e.ran = g.ran()
	if g.lasted(before) {
		g.brief = 0
	}
	lost := g.came != before.Formation || slices.ContainsFunc(before.Members, func(m rendezvous.Member) bool {
		return !g.arrived[m.Worker]
	})
	if before.Formation > 0 && (len(e.failed) > 0 || lost || !g.keeps) {
		g.again++
	}
	e.left = lost || g.m.ring.leaving(before.Members)
	if len(e.failed) == 0 || e.left {
		g.brief = 0 // the program did not end this world
	}
	var v verdict
	if v, g.charges = g.charges.judge(e, g.m.Job.Program.MaxRestarts); v.nothing {
		return nil
	}
	g.note(before, next, v.lacked)
	return g.report(v, next)
}

// report puts a verdict into status and log, and returns the error of a job that fails.
func (g *program) report(v verdict, next rendezvous.World) error {
	charged := "not charged"
	if v.charged {
		charged = "charged"
	}
	why := reason(v.root.Failure)
	switch v.outcome {
	case exceeds:
		g.reportFailure(v.root, v.again+"; the job fails (charged)")
		return fmt.Errorf("the program failed%s: rank %d (pid %d): %s%s", g.times(), v.root.Rank,
			v.root.Pid, why, v.again)
	case endsSame:
		g.repeated = true
		g.reportFailure(v.root, fmt.Sprintf(", the same %d times in a row; the job fails (%s)",
			g.repeats.Count, charged))
		return &sameEnd{g.repeats.Count, fmt.Sprintf("rank %d (pid %d): %s", v.root.Rank, v.root.Pid, why)}
	}
	g.reportFailure(v.root, fmt.Sprintf("%s; %s (%s)", v.again, g.goesOn(next), charged))
	if v.charged {
		g.m.Log.Info("The program starts again", "failures", g.restarts, "max_restarts", g.m.Job.Program.MaxRestarts)
	}
	return nil
}

// mostDoubts is how many worlds without a completed round may end with a doubt before the program
// is charged with the last of them: all are restarts that do not help, as when a firewall keeps the
// ranks from each other.
const mostDoubts = 5

// cause returns the failure that has ended a world, and reports whether it is the program's own. A
// process that was killed, or may have crashed because it was forked, counts before one that doubts
// its state, this one before others that are excused, and these before the program's own failures:
// what counts later may follow from it.
func cause(failed []failure) (root failure, own bool) {
	for _, kind := range []func(failure) bool{
		func(f failure) bool { return !f.Excused && (fromOutside(f) || f.Forked) },
		func(f failure) bool { return f.Doubt },
		func(f failure) bool { return f.Excused },
	} {
		if some := slices.DeleteFunc(slices.Clone(failed), func(f failure) bool { return !kind(f) }); len(some) > 0 {
			return first(some), false
		}
	}
	return first(failed), true
}

// first returns the earliest failure: the others may follow from it.
func first(failed []failure) failure {
	return slices.MinFunc(failed, func(a, b failure) int { return cmp.Compare(a.UnixMs, b.UnixMs) })
}

// fromOutside reports whether a process was ended from outside: by a signal that a failing program
// does not cause itself. The system's, as the worker was out of memory, is the program's own fault.
func fromOutside(f failure) bool {
	if f.Memory {
		return false
	}
	switch syscall.Signal(f.Signal) {
	case syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}
