package master

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// stillFor is the time that no process has completed a round before the status says why.
const stillFor = 5 * time.Second

// staged is a worker of a program, with how far its processes have come.
type staged struct {
	worker int
	stage  wire.Stage
}

// standsStill returns what the members of a world wait for that gets on no further: what those of
// them do that have come least far. still is the time that no round was completed. It returns "" if
// that is not known: of processes that do not use the package nobody knows whether they train.
func standsStill(members []staged, asks bool, still time.Duration) string {
	if len(members) == 0 || still < stillFor {
		return ""
	}
	least := slices.MinFunc(members, func(a, b staged) int { return int(a.stage - b.stage) }).stage
	var workers []string
	for _, m := range members {
		if m.stage == least {
			workers = append(workers, fmt.Sprintf("worker-%d", m.worker))
		}
	}
	who := strings.Join(workers, ", ")
	switch {
	case least == wire.Stage_STAGE_FETCHING:
		return "the program's code, which is fetched by " + who
	case least == wire.Stage_STAGE_IMPORTING:
		return "torch to be imported, before processes start, by " + who
	case least == wire.Stage_STAGE_SILENT:
		return "the first output of the processes of " + who
	case least == wire.Stage_STAGE_STARTED && asks:
		return "elasticdl.init(), which has yet to be called by the processes of " + who
	case least == wire.Stage_STAGE_TRAINING:
		return fmt.Sprintf("a step of its processes: none was completed for %v", still.Round(time.Second))
	case least == wire.Stage_STAGE_TRAINED:
		return "the processes to end, as the training is complete, of " + who
	}
	return ""
}

// stands returns what the program waits for, as far as its agents know; "" if it gets on. The
// caller holds the mutex.
func (g *program) stands() string {
	world, _ := g.ring.meeting.World()
	var members []staged
	for _, m := range world.Members {
		if c := g.host.heardOf(pod.ID{Role: pod.Worker, Index: m.Worker}); c != nil &&
			c.stage != wire.Stage_STAGE_UNKNOWN && !g.ring.meeting.Finished(m.Worker) {
			members = append(members, staged{m.Worker, c.stage})
		}
	}
	return standsStill(members, g.asks, g.ring.now().Sub(g.moved))
}

// hears notes what a worker's heartbeat tells of its processes. stepped states that they have
// completed rounds since the heartbeat before.
func (g *program) hears(c *contact, r *wire.HeartbeatRequest, stepped bool) {
	if stepped || g.moved.IsZero() {
		g.moved = g.ring.now()
	}
	c.stage, c.unsaved = r.Stage, r.Unsaved
	g.keeps = g.keeps || r.Keeps
	g.finish(int(r.Index), r.Finished)
	g.judge.Advance(r.Rounds)
}
