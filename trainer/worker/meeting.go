package worker

import (
	"context"

	"github.com/elasticdl/elasticdl/trainer/rpc"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Meeting is a worker's end of the rendezvous, for a worker whose engine is not of this package.
type Meeting struct{ m *meeting }

// Membership is a world that the worker is a member of.
type Membership struct {
	*wire.World
	ctx context.Context
}

// NewMeeting returns the rendezvous of a worker that has not arrived yet.
func NewMeeting(master wire.MasterClient, self *rpc.Self) *Meeting {
	return &Meeting{m: newMeeting(master, self)}
}

// Attend keeps the worker's membership until ctx is done, opening streams to the master as needed. It returns an error if the worker has to
// end.
func (m *Meeting) Attend(ctx context.Context) error { return m.m.attend(ctx) }

// Arrive reports that the worker stands between two worlds, and waits for the next one. A world stays valid when the master is replaced.
func (m *Meeting) Arrive(ctx context.Context, a *wire.Arrival) (Membership, error) {
	p, err := m.m.arrive(ctx, a)
	return Membership{World: p.World, ctx: p.ctx}, err
}

// Lost returns a channel that is closed when the world has lost a member: the others go to the rendezvous at once.
func (p Membership) Lost() <-chan struct{} { return p.ctx.Done() }

// Recalled reports whether the members of a formation were told to come to the rendezvous at their convenience, even if one is lost
// since; joins reports whether the only reason was that workers wait to join.
func (m *Meeting) Recalled(formation int64) (recalled, joins bool) {
	m.m.mu.Lock()
	defer m.m.mu.Unlock()
	return m.m.afterRound == formation, m.m.joins
}

// Recall makes the worker leave its world as if the master had recalled it.
func (m *Meeting) Recall() {
	m.m.mu.Lock()
	defer m.m.mu.Unlock()
	m.m.recalled, m.m.afterRound, m.m.joins = m.m.current, m.m.current, false
	m.m.stir()
}

// Wake returns a channel that has an element when the master has said something new.
func (m *Meeting) Wake() <-chan struct{} { return m.m.wake }

// Retry calls f until it succeeds, with growing pauses, or until its error is conclusive: [ErrReplaced] if the master does not know this
// worker any more.
func Retry(ctx context.Context, f func() error) error { return retry(ctx, f) }
