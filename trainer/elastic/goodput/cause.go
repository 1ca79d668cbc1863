package goodput

import (
	"fmt"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/verdict"
)

// Cause is a reason for which a worker that the job wants does no useful work.
type Cause int

// Causes.
const (
	// Training is no cause: the worker works.
	Training Cause = iota
	// Queue: its pod waits for quota.
	Queue
	// Pending: its pod is not created, or has no node.
	Pending
	// Image: its node fetches the image, or prepares the containers.
	Image
	// Start: its process starts, fetches its code, or imports its libraries.
	Start
	// Forming: it waits for a world, connects to its members, or takes their state.
	Forming
	// Data: it waits for records, or for the storage of them.
	Data
	// Servers: it waits for parameter servers, or one of them is away.
	Servers
	// Communication: it waits in a collective, and so does the slowest rank.
	Communication
	// SlowestRank: it waits in a collective for a slower rank.
	SlowestRank
	// Stuck: no rank of the program gives a sign of life.
	Stuck
	// Checkpoint: a checkpoint interrupts it.
	Checkpoint
	// Rollback: it has trained, and the result was lost.
	Rollback
	// MasterAway: there is no master.
	MasterAway
	// Failed: it has failed too often, and is not replaced.
	Failed
	// number of causes
	causes
)

var names = [causes]string{
	Training: "training", Queue: "queue", Pending: "pending", Image: "image", Start: "start",
	Forming: "forming", Data: "data", Servers: "servers", Communication: "communication",
	SlowestRank: "slowest_rank", Stuck: "stuck", Checkpoint: "checkpoint", Rollback: "rollback",
	MasterAway: "master_away", Failed: "failed",
}

// String returns the name of the cause in JSON and in metrics, as in "slowest_rank".
func (c Cause) String() string {
	if c < 0 || c >= causes {
		return fmt.Sprintf("Cause(%d)", int(c))
	}
	return names[c]
}

// Parse returns the cause of a name; false if there is none.
func Parse(name string) (Cause, bool) {
	i := slices.Index(names[:], name)
	return Cause(i), i >= 0
}

// Causes returns all causes, in the order in which a worker meets them.
func Causes() (all []Cause) {
	for c := Queue; c < causes; c++ {
		all = append(all, c)
	}
	return all
}

// silentStart is the time for which a process that writes nothing counts as one that starts.
const silentStart = time.Minute

// Facts has what a master knows of a worker that the job wants.
type Facts struct {
	// Queued: its pod waits for quota. Image: its node fetches its image.
	Queued, Image bool
	// Runs: its pod runs. Works: it has joined, and has begun to work.
	Runs, Works bool
	// Stage of its processes, if it runs a program, and the time since its world was formed. Asks:
	// the processes of the program use the package.
	Stage verdict.Stage
	Since time.Duration
	Asks  bool
	// NeedsWorld: it trains only in a world. InWorld: it is a member of one that works.
	NeedsWorld, InWorld bool
	// ServersAway: a parameter server is missing.
	ServersAway bool
	// Saves: nothing is left to train on, and the last checkpoint is being written.
	Saves bool
	// Stuck: the program seems to make no progress.
	Stuck bool
}

// Judge returns why a worker does no useful work, as far as its master knows.
func Judge(f Facts) Cause {
	switch {
	case f.Queued:
		return Queue
	case f.Image:
		return Image
	case !f.Runs:
		return Pending
	case !f.Works:
		return Start
	case f.starts():
		return Start
	case f.NeedsWorld && !f.InWorld:
		return Forming
	case f.ServersAway:
		return Servers
	case f.Saves:
		return Checkpoint
	case f.Stuck:
		return Stuck
	}
	return Training
}

// starts reports whether the processes of a program have not begun to train. Of one that neither
// writes nor uses the package nobody knows when it begins.
func (f Facts) starts() bool {
	switch f.Stage {
	case verdict.Fetching, verdict.Importing:
		return true
	case verdict.Silent:
		return f.Asks || f.Since < silentStart
	case verdict.Started:
		return f.Asks
	}
	return false
}
