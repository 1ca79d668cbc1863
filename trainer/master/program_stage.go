package master

import (
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/verdict"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// stages are the stages of processes, by the name that agents give them. Others, of another
// version, are unknown.
var stages = map[wire.Stage]verdict.Stage{
	wire.Stage_STAGE_FETCHING:  verdict.Fetching,
	wire.Stage_STAGE_IMPORTING: verdict.Importing,
	wire.Stage_STAGE_SILENT:    verdict.Silent,
	wire.Stage_STAGE_STARTED:   verdict.Started,
	wire.Stage_STAGE_TRAINING:  verdict.Training,
	wire.Stage_STAGE_TRAINED:   verdict.Trained,
}

// stands returns what the program waits for, as far as its agents know; "" if it gets on. The
// caller holds the mutex.
func (g *program) stands() string {
	world, _ := g.ring.meeting.World()
	var members []verdict.Member
	for _, m := range world.Members {
		if c := g.contacts.get(pod.ID{Role: pod.Worker, Index: m.Worker}); c != nil &&
			!g.ring.meeting.Finished(m.Worker) {
			members = append(members, verdict.Member{Worker: m.Worker, Stage: c.stage})
		}
	}
	return verdict.StandsStill(members, g.asks, g.ring.now().Sub(g.moved))
}

// hears notes what a worker's heartbeat tells of its processes. stepped states that they have
// completed rounds since the heartbeat before.
func (g *program) hears(c *contact, r *wire.HeartbeatRequest, stepped bool) {
	if stepped || g.moved.IsZero() {
		g.moved = g.ring.now()
	}
	c.stage, c.unsaved = stages[r.Stage], r.Unsaved
	g.keeps = g.keeps || r.Keeps
	g.finish(int(r.Index), r.Finished, r.Exhausted)
	g.judge.Advance(r.Rounds)
}
