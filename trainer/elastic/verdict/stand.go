package verdict

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// stillFor is the time that no process has completed a round before [StandsStill] says why.
const stillFor = 5 * time.Second

// Stage is the stage of a worker's processes on their way to the end of the training.
type Stage int

// Stages, in their order.
const (
	// not known
	Unknown Stage = iota
	// the agent fetches the program's code
	Fetching
	// the fork server imports torch, before any process starts
	Importing
	// a process has written nothing since its start, and does not use the package
	Silent
	// a process has written something, and does not use the package, or not yet
	Started
	// all processes use the package
	Training
	// all processes have completed the training, and have yet to end
	Trained
)

// Member is a worker of a world, with the stage of its processes.
type Member struct {
	Worker int
	Stage  Stage
}

// StandsStill returns what the members of a world wait for that gets on no further: the next stage
// of those that have come least far. still is the time since a round was completed. asks states
// that processes use the package: of others nobody knows whether they train. It returns "" if the
// reason is not known. Members whose stage is unknown do not count.
func StandsStill(members []Member, asks bool, still time.Duration) string {
	members = slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.Stage == Unknown })
	if len(members) == 0 || still < stillFor {
		return ""
	}
	least := slices.MinFunc(members, func(a, b Member) int { return int(a.Stage - b.Stage) }).Stage
	var workers []string
	for _, m := range members {
		if m.Stage == least {
			workers = append(workers, fmt.Sprintf("worker-%d", m.Worker))
		}
	}
	names := strings.Join(workers, ", ")
	switch {
	case least == Fetching:
		return "the program's code, which is fetched by " + names
	case least == Importing:
		return "torch to be imported, before processes start, by " + names
	case least == Silent:
		return "the first output of the processes of " + names
	case least == Started && asks:
		return "elasticdl.init(), which has yet to be called by the processes of " + names
	case least == Training:
		return fmt.Sprintf("a step of its processes: none was completed for %v", still.Round(time.Second))
	case least == Trained:
		return "the processes to end, as the training is complete, of " + names
	}
	return ""
}
