package master

import (
	"cmp"
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
	case n != 0 && n != Leave:
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

// processes returns what a planned end depends on.
func (g *program) processes() *lifecycle.Processes {
	return &lifecycle.Processes{Asked: g.asks, Finished: g.done(), Trained: g.judge.Completed(1) || g.saved != nil,
		Hold: g.holds(), Rested: g.rest != nil, Problem: g.rest.GetProblem()}
}
