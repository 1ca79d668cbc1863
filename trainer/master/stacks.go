package master

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// stackRequests are the requests for the stacks of a program's processes. Agents answer the newest
// one, which is an answer to all before it.
type stackRequests struct {
	// of the newest request; 0: there was none
	number int64
	// requests that wait for answers
	open int
	// by worker: the number of the request that it has answered last, and its answer
	answers map[int]stackAnswer
}

type stackAnswer struct {
	number int64
	stacks []*wire.ProcessStack
}

// numbersOfStacks is the number of requests for stacks that a master can number. An agent must not
// take the request of a master for that of the master before.
const numbersOfStacks = 1 << 32

// ask begins a request, and returns its number.
func (s *stackRequests) ask(incarnation int) int64 {
	s.number = max(s.number, int64(incarnation)*numbersOfStacks) + 1
	return s.number
}

// Stacks implements [wire.JobServer].
func (m *master) Stacks(ctx context.Context, _ *wire.StacksRequest) (*wire.StacksReply, error) {
	number, reply := int64(0), new(wire.StacksReply)
	defer func() {
		if number > 0 {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.stacks.close()
		}
	}()
	return reply, m.waiters.wait(ctx, m.mu, func() (bool, error) {
		switch {
		case m.program == nil:
			return false, status.Error(codes.FailedPrecondition, "only programs of elasticdl run have Python stacks")
		case m.stage.Over():
			return false, status.Errorf(codes.FailedPrecondition, "the job has ended: %s", m.stage.State())
		}
		if number == 0 {
			number = m.stacks.ask(m.Self.Header().Incarnation)
			m.stacks.open++
		}
		reply.Stacks, reply.Missing = m.stacks.gathered(number, m.fleet.table.List())
		cutStacks(reply.Stacks, mostStacks)
		return len(reply.Missing) == 0, nil
	})
}

// close ends a request. Without others, nobody is asked any more, and the answers are dropped.
func (s *stackRequests) close() {
	if s.open--; s.open == 0 {
		s.answers = nil
	}
}

// asked returns the number of the request that agents are to answer; 0: none.
func (s *stackRequests) asked() int64 {
	if s.open == 0 {
		return 0
	}
	return s.number
}

// mostStacks limits the texts of a reply in bytes: of the 4 MiB that a message may have.
const mostStacks = 3 << 20

// cutStacks shortens the texts of stacks to a number of bytes in all, each to the same share. The
// innermost calls of the first threads are kept.
func cutStacks(all []*wire.ProcessStack, most int) {
	if len(all) == 0 {
		return
	}
	share := most / len(all)
	for _, p := range all {
		if len(p.Text) > share {
			p.Text = strings.ToValidUTF8(p.Text[:share], "")
		}
	}
}

// gathered returns the answers to a request, or to a later one, and the workers without.
func (s *stackRequests) gathered(number int64, pods []pod.Pod) (all []*wire.ProcessStack, missing []int32) {
	for _, p := range pods {
		if p.ID.Role != pod.Worker || p.Phase != pod.Running && p.Phase != pod.Leaving {
			continue
		}
		if a := s.answers[p.ID.Index]; a.number >= number {
			all = append(all, a.stacks...)
		} else {
			missing = append(missing, int32(p.ID.Index))
		}
	}
	slices.SortFunc(all, func(a, b *wire.ProcessStack) int {
		return cmp.Or(cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.Local, b.Local))
	})
	slices.Sort(missing)
	return all, missing
}

// ReportStacks implements [wire.MasterServer].
func (m *master) ReportStacks(ctx context.Context, r *wire.ReportStacksRequest) (*wire.ReportStacksReply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fleet.known(ctx); err != nil {
		return nil, err
	}
	worker := rpc.Caller(ctx).Index
	if m.stacks.open == 0 {
		return new(wire.ReportStacksReply), nil
	}
	if m.stacks.answers == nil {
		m.stacks.answers = make(map[int]stackAnswer)
	}
	for _, p := range r.Stacks {
		p.Worker = int32(worker)
	}
	m.stacks.answers[worker] = stackAnswer{r.Number, r.Stacks}
	m.waiters.wake()
	if m.program != nil {
		m.program.hang.answered(time.Now())
	}
	return new(wire.ReportStacksReply), nil
}

// forget drops the answer of a worker that has ended.
func (s *stackRequests) forget(worker int) { delete(s.answers, worker) }
