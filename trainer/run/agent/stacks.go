package agent

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/stacks"
	"github.com/elasticdl/elasticdl/trainer/run/program"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// stackLimit limits the report of stacks, which the user awaits.
const stackLimit = 5 * time.Second

const (
	// lookEvery is the time between two glances at a process to which further looks are due.
	lookEvery = 20 * time.Millisecond
	// lookLimit limits the time of all further looks at one process.
	lookLimit = time.Second
)

// mostStacks limits the texts of a report in bytes: of the 4 MiB that a message may have.
const mostStacks = 3 << 20

// reportStacks takes the stacks whenever the master asks for them, and sends them, until ctx ends.
func (a *agent) reportStacks(ctx context.Context) {
	for {
		var number int64
		select {
		case number = <-a.stackAsks:
		case <-ctx.Done():
			return
		}
		r := &wire.ReportStacksRequest{Worker: int32(a.Self.Header().Index), Number: number}
		taken := a.takeStacks(ctx)
		for _, s := range taken {
			text := strings.ToValidUTF8(s.Text[:min(len(s.Text), mostStacks/len(taken))], "")
			p := &wire.ProcessStack{Rank: int32(s.Rank), Local: int32(s.Local), Pid: int32(s.Pid), Text: text,
				Call: s.Place.Call, Looks: int32(s.looks.Same), Moved: s.looks.Moved}
			if s.Why != "" {
				p.Why = s.Why.String()
			}
			r.Stacks = append(r.Stacks, p)
		}
		limited, cancel := context.WithTimeout(ctx, stackLimit)
		if _, err := a.Master.ReportStacks(limited, r); err != nil {
			a.Log.Debug("The stacks of the processes were not reported", "error", err)
		}
		cancel()
	}
}

// stacksAsked notes the number of the master's newest request for stacks; 0: there is none.
func (a *agent) stacksAsked(number int64) {
	if number == 0 || number == a.lastStacks {
		return
	}
	a.lastStacks = number
	select {
	case <-a.stackAsks: // the newest is an answer to all
	default:
	}
	a.stackAsks <- number
}

// takeStacks returns the Python stacks of all running processes of this worker, in the order of
// their local ranks, or the reason why one has none. Ranks are those of the current world; -1: the
// process waits to join one. It takes 3 s at most, or until ctx ends, and is for requests and
// suspicions only, as it interrupts sleeps of the processes. Any goroutine may call it: the loop
// of the agent does not wait for it.
func (a *agent) takeStacks(ctx context.Context) []taken {
	var all []shown
	a.beats.set(false, func() { all = slices.Clone(a.beats.signs.shown) })
	stacks := make([]taken, len(all))
	var each sync.WaitGroup
	for i, p := range all {
		each.Go(func() {
			stacks[i] = take(ctx, p.group, p.local)
			stacks[i].Rank = p.rank
		})
	}
	each.Wait()
	return stacks
}

// taken is the stack of a process, and what further looks have found.
type taken struct {
	program.Stack
	looks stacks.Looks
}

// take takes the stack of a process, and looks at it again while its main thread uses a processor.
func take(ctx context.Context, g Group, local int) taken {
	t := taken{Stack: g.Stack(ctx, local)}
	if !t.looks.Take(t.Text, t.Place.Ticks) {
		return t
	}
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	for pause(ctx, lookEvery) {
		place := g.Place(local)
		due, later := t.looks.Due(place.State, place.Ticks)
		if due {
			s := g.Stack(ctx, local)
			later = t.looks.Take(s.Text, s.Place.Ticks)
		}
		if !later {
			break
		}
	}
	return t
}
