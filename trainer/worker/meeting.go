package worker

import (
	"context"

	"github.com/elasticdl/elasticdl/trainer/rpc"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Meeting is a worker's end of the rendezvous, for one whose engine is not of this package.
type Meeting struct{ m *meeting }

// Place is a world that a worker is given a place in.
type Place struct {
	*wire.World
	ctx context.Context
}

// NewMeeting is the rendezvous of a worker that has not come yet.
func NewMeeting(master wire.MasterClient, self *rpc.Self) *Meeting {
	return &Meeting{m: newMeeting(master, self)}
}

// Attend keeps the worker's membership until ctx is done, over one stream to the master after another. Another error is the worker's end.
func (m *Meeting) Attend(ctx context.Context) error { return m.m.attend(ctx) }

// Arrive says that the worker stands between two worlds, and waits for the next one, which outlasts the master.
func (m *Meeting) Arrive(ctx context.Context, a *wire.Arrival) (Place, error) {
	p, err := m.m.arrive(ctx, a)
	return Place{World: p.World, ctx: p.ctx}, err
}

// Lost is closed when a member of the world is gone, and the others meet again at once.
func (p Place) Lost() <-chan struct{} { return p.ctx.Done() }

// Recalled reports whether the members of a formation are to meet again when they can; joins: for the sake of those alone that wait to join.
func (m *Meeting) Recalled(formation int64) (recalled, joins bool) {
	m.m.mu.Lock()
	defer m.m.mu.Unlock()
	return m.m.recalled == formation, m.m.joins
}

// Recall has the worker come back from its world as if the master had recalled it.
func (m *Meeting) Recall() {
	m.m.mu.Lock()
	defer m.m.mu.Unlock()
	m.m.recalled, m.m.joins = m.m.current, false
	m.m.stir()
}

// Wake has an element when something was said.
func (m *Meeting) Wake() <-chan struct{} { return m.m.wake }

// Retry calls f until it succeeds, with pauses that grow, or until its error says that it never will: [ErrReplaced] if the master does not know
// this worker any more.
func Retry(ctx context.Context, f func() error) error { return retry(ctx, f) }
