package membership

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// ErrRecalled is the reason to leave a world before one of its links breaks.
var ErrRecalled = errors.New("the world has lost a member")

// Meeting is the worker's end of the rendezvous: a stream on which it reports its position, and
// receives worlds and recalls. When a stream ends, for example because the master is replaced, the
// worker continues in its world and opens another stream.
type Meeting struct {
	// Renew changes an arrival before it is sent once more, on another stream: the master may have
	// taken it already, and have formed a world of which this worker was not notified. Nil: nothing
	// is to be changed.
	Renew func(again *wire.Arrival) error

	client wire.MasterClient
	self   *rpc.Self
	// the newest world that this worker was given and has not entered yet
	worlds chan World
	// the master has said something that an idle rank has to know
	wake chan struct{}
	// stands has changed since it was sent to the master
	moved chan struct{}

	mu sync.Mutex
	// the worker's position; nil: it has not arrived yet
	stands *wire.Arrival
	// the one that was sent last
	sent *wire.Arrival
	// generation from which it is recalled
	recalled int64
	drop     context.CancelCauseFunc
	// generation from which it is recalled after a round; since then perhaps at once
	afterRound int64
	// the only reason of that is that workers wait to join
	joins bool
	// generation of the world that drop cancels
	current int64
	// model generation in the newest world
	modelGeneration int64
	// number of the newest flush order in that generation
	flush int64
	// newest checkpoint order; nil: none
	ordered *wire.Cut
}

// World is a world that this worker is a member of. Its context ends when the worker is to leave
// the world.
type World struct {
	*wire.World
	ctx  context.Context
	drop context.CancelCauseFunc
}

// Of returns the membership in a world, which ends with ctx or by [World.Leave].
func Of(ctx context.Context, w *wire.World) World {
	ctx, drop := context.WithCancelCause(ctx)
	return World{World: w, ctx: ctx, drop: drop}
}

// Context ends when the worker is to leave the world: it has lost a member, or there is a newer
// one.
func (w World) Context() context.Context { return w.ctx }

// Lost is closed when the worker is to leave the world and go to the rendezvous at once.
func (w World) Lost() <-chan struct{} { return w.ctx.Done() }

// Leave ends the world's context for a reason.
func (w World) Leave(cause error) { w.drop(cause) }

// New returns the rendezvous of a worker that has not arrived yet.
func New(master wire.MasterClient, self *rpc.Self) *Meeting {
	return &Meeting{
		client: master, self: self,
		worlds: make(chan World, 1), wake: make(chan struct{}, 1), moved: make(chan struct{}, 1),
	}
}

// Arrive reports that the worker stands between two worlds, and waits for the next one. A world
// stays valid when the master is replaced.
func (m *Meeting) Arrive(ctx context.Context, a *wire.Arrival) (World, error) {
	m.mu.Lock()
	if m.current <= a.Generation { // otherwise the next world is here already
		m.stands = proto.Clone(a).(*wire.Arrival)
		signal(m.moved)
	}
	m.mu.Unlock()
	select {
	case next := <-m.worlds:
		return next, nil
	case <-ctx.Done():
		return World{}, context.Cause(ctx)
	}
}

// standing returns the worker's position for the master. first: nothing was sent on this stream.
func (m *Meeting) standing(first bool) (*wire.Arrival, error) {
	m.mu.Lock()
	stands := m.stands
	again := first && stands == m.sent && !stands.Works && m.Renew != nil
	m.mu.Unlock()
	if again {
		renewed := proto.Clone(stands).(*wire.Arrival)
		if err := m.Renew(renewed); err != nil {
			return nil, err
		}
		m.mu.Lock()
		if m.stands == stands {
			m.stands = renewed
		}
		m.mu.Unlock()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent = m.stands
	return m.stands, nil
}

// lasting is the time that a stream has to last to count as a success. Shorter ones are followed by
// a pause.
const lasting = time.Second

// Attend keeps a stream to the master, from the first arrival on, until ctx is done. It returns an
// error if the worker has to end.
func (m *Meeting) Attend(ctx context.Context) error {
	select {
	case <-m.moved:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		err := Retry(ctx, func() error {
			began := time.Now()
			err := m.converse(ctx)
			if _, ends := conclusive(err); !ends && ctx.Err() == nil && time.Since(began) > lasting {
				return nil // the next one is opened at once
			}
			return err
		})
		if err != nil {
			return err
		}
	}
}

// converse runs one stream until it ends. It begins by sending the worker's position.
func (m *Meeting) converse(ctx context.Context) error {
	streaming, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := m.client.Rendezvous(streaming)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		for {
			said, err := stream.Recv()
			if err != nil {
				ended <- fmt.Errorf("rendezvous: %w", err)
				return
			}
			m.Hear(ctx, said)
		}
	}()
	for first := true; ; first = false {
		select { // the position is sent now
		case <-m.moved:
		default:
		}
		// the master knows the world that it has given since
		stands, err := m.standing(first)
		if err != nil {
			return err
		}
		if (first || !stands.Works) && stream.Send(stands) != nil {
			return <-ended
		}
		select {
		case <-m.moved:
		case err := <-ended:
			return err
		}
	}
}

// Hear takes what the master says: a world, a recall, an order to flush or to copy for a
// checkpoint.
func (m *Meeting) Hear(ctx context.Context, said *wire.Assembly) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch word := said.Word.(type) {
	case *wire.Assembly_World:
		p := Of(ctx, word.World)
		m.self.SetModelGeneration(p.ModelGeneration)
		if m.drop != nil {
			// the previous world, which the others may have left
			m.drop(ErrRecalled)
		}
		m.current, m.drop = p.Generation, p.drop
		if m.stands != nil {
			m.stands = &wire.Arrival{Worker: m.stands.Worker, Address: m.stands.Address,
				Process: m.stands.Process, Generation: p.Generation, Works: true}
		}
		// also if this worker was not in the first world of that generation
		if p.ModelGeneration != m.modelGeneration {
			m.modelGeneration, m.flush = p.ModelGeneration, 0
		}
		select {
		case <-m.worlds:
		default:
		}
		m.worlds <- p
	case *wire.Assembly_Recall:
		if word.Recall.Generation != m.current {
			return
		}
		m.recalled = word.Recall.Generation
		if word.Recall.Now {
			m.drop(ErrRecalled)
		} else {
			m.afterRound, m.joins = word.Recall.Generation, word.Recall.Joins
		}
	case *wire.Assembly_Flush:
		m.flush = max(m.flush, word.Flush)
	case *wire.Assembly_Cut:
		if word.Cut.GetNumber() > m.ordered.GetNumber() {
			m.ordered = word.Cut
		}
	}
	m.Stir()
}

// Stir wakes an idle rank to look for work.
func (m *Meeting) Stir() { signal(m.wake) }

// Heard returns what the master has asked of the members of a generation. Hear takes what the
// master says: a world, a recall, an order to flush or to copy for a checkpoint.
func (m *Meeting) Heard(generation int64) (recalled bool, flush int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.recalled == generation, m.flush
}

// Cut returns the newest checkpoint that the master has ordered, nil if there is none.
func (m *Meeting) Cut() *wire.Cut {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ordered
}

// Recalled reports whether the members of a generation were asked to come to the rendezvous at
// their convenience, even if one is lost since; joins reports whether the only reason was that
// workers wait to join.
func (m *Meeting) Recalled(generation int64) (recalled, joins bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.afterRound == generation, m.joins
}

// Wake returns a channel that has an element when the master has said something new.
func (m *Meeting) Wake() <-chan struct{} { return m.wake }

// signal puts an element into a channel of capacity 1, unless it has one. It does not wait.
func signal(word chan<- struct{}) {
	select {
	case word <- struct{}{}:
	default:
	}
}
