package master

import (
	"cmp"
	"fmt"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/lifecycle"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// ending holds the checkpoints of a program, and its last round before the job stops.
type ending struct {
	// processes use the package: they can be asked to write a checkpoint before they end
	asks bool
	// the newest checkpoint that a process has written; nil: none is known
	saved *wire.Saved
	// the last round; nil: the processes have not ended it
	rest *wire.Rest
	// why nothing was saved when the job stopped; "": something was, or it has not stopped
	unsaved string
}

// tells handles what a worker reports of its program's checkpoints, and tells it whether the job is
// to stop.
func (g *program) tells(r *wire.HeartbeatRequest, reply *wire.HeartbeatReply, now time.Time) {
	g.asks = g.asks || r.Asks
	if r.Saved.GetUnixMs() > g.saved.GetUnixMs() {
		g.saved = r.Saved
	}
	switch n, _, by := g.stage.Closing(); {
	case g.stage.Over():
		reply.GraceMs = g.grace().Milliseconds()
	case n == Suspend || n == lifecycle.Stop:
		g.rest = cmp.Or(g.rest, r.Rest)
		reply.StopMs = max(1, by.Sub(now).Milliseconds())
	}
}

// grace returns how long the processes have to end when the job has ended. Those of a job that has
// succeeded are not needed any more.
func (g *program) grace() time.Duration {
	if g.stage.State() == job.Succeeded {
		return g.Job.Program.Grace.Duration
	}
	return g.Job.TimeToEnd()
}

// holds reports whether processes may have a state that no checkpoint has: members of the last
// world live, and began with a state or have completed a round.
func (g *program) holds() bool {
	world, _ := g.ring.meeting.World()
	return g.ring.remain() > 0 && (len(world.Sources) > 0 || g.judge.Completed(world.Generation))
}

// awaited reports whether the processes are yet to end a round, and to write a checkpoint of it,
// before the job stops or rests. It notes why nothing is saved if they need not, or have had their
// time.
func (g *program) awaited(now time.Time) bool {
	switch _, since, by := g.stage.Closing(); {
	case !g.asks || g.done():
		return false
	case g.rest != nil:
		g.unsaved = g.rest.Problem
		return false
	case !g.judge.Completed(1) && g.saved == nil:
		g.unsaved = "no round was completed"
		return false
	case !g.holds():
		g.unsaved = "no process has a newer state"
		return false
	case !now.Before(by):
		g.unsaved = fmt.Sprintf("no round was ended, and written as a checkpoint, within %v "+
			"(--grace_period)", by.Sub(since))
		return false
	}
	return true
}
