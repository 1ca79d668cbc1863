package agent

import (
	"context"
	"slices"
	"sync"

	"github.com/elasticdl/elasticdl/trainer/run/program"
)

// takeStacks returns the Python stacks of all running processes of this worker, in the order of
// their local ranks, or the reason why one has none. Ranks are those of the current world; -1: the
// process waits to join one. It takes 2 s at most, or until ctx ends, and is for requests and
// suspicions only, as it interrupts sleeps of the processes. Any goroutine may call it: the loop
// of the agent does not wait for it.
func (a *agent) takeStacks(ctx context.Context) []program.Stack {
	var all []shown
	a.beats.set(false, func() { all = slices.Clone(a.beats.signs.shown) })
	stacks := make([]program.Stack, len(all))
	var each sync.WaitGroup
	for i, p := range all {
		each.Go(func() {
			stacks[i] = p.group.Stack(ctx, p.local)
			stacks[i].Rank = p.rank
		})
	}
	each.Wait()
	return stacks
}
