package agent

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// crew returns the processes that take part in the world of a formation, in the order of their
// ranks. Those that were in an earlier world come first, in the order in which they have joined: a
// process that is started again takes no rank from one that has gone on.
func (a *agent) crew(formation int64) []*process {
	crew := slices.DeleteFunc(slices.Clone(a.procs), func(p *process) bool { return p == nil || !p.member })
	seniority := func(p *process) int64 {
		if p.joined == 0 || p.joined >= formation {
			return math.MaxInt64
		}
		return p.joined
	}
	slices.SortStableFunc(crew, func(a, b *process) int { return cmp.Compare(seniority(a), seniority(b)) })
	return crew
}

// starts is what a process is told of its restarts, as torchrun does: the difference is how many
// failures of the program the job survives.
type starts struct {
	count int // TORCHELASTIC_RESTART_COUNT
	most  int // TORCHELASTIC_MAX_RESTARTS
}

// startsIn returns what a process is told that starts in a world.
func startsIn(w *wire.World) *starts { return &starts{int(w.Restarts), int(w.MaxRestarts)} }

// environment returns the variables by name.
func (s starts) environment() map[string]string {
	return map[string]string{"TORCHELASTIC_RESTART_COUNT": strconv.Itoa(s.count),
		"TORCHELASTIC_MAX_RESTARTS": strconv.Itoa(s.most)}
}
