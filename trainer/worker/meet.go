package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/elasticdl/elasticdl/trainer/rpc"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// errRecalled is the reason to leave a world before one of its links breaks.
var errRecalled = errors.New("the world has lost a member")

// meeting is the worker's end of the rendezvous: a stream on which it reports its position, and receives worlds and recalls. When a stream
// ends, for example because the master is replaced, the worker goes on in its world and opens another stream.
type meeting struct {
	client wire.MasterClient
	self   *rpc.Self
	worlds chan membership // the newest world that this worker was given and has not entered yet
	wake   chan struct{}   // the master has said something that an idle rank has to know
	moved  chan struct{}   // stands has changed since it was sent to the master

	mu         sync.Mutex
	stands     *wire.Arrival // the worker's position; nil: it has not arrived yet
	recalled   int64         // formation from which it is recalled
	drop       context.CancelCauseFunc
	afterRound int64     // formation from which it is recalled after a round; since then perhaps at once
	joins      bool      // the only reason of that is that workers wait to join
	current    int64     // formation of the world that drop cancels
	life       int64     // life of the model in the newest world
	flush      int64     // number of the newest flush order in that life
	ordered    *wire.Cut // newest checkpoint order; nil: none
}

// membership is a world that this worker is a member of. Its context ends when the worker is to leave the world.
type membership struct {
	*wire.World
	ctx  context.Context
	drop context.CancelCauseFunc
}

func newMeeting(client wire.MasterClient, self *rpc.Self) *meeting {
	return &meeting{client: client, self: self, worlds: make(chan membership, 1), wake: make(chan struct{}, 1), moved: make(chan struct{}, 1)}
}

// arrive reports that the worker stands between two rounds, and waits for the next world.
func (m *meeting) arrive(ctx context.Context, a *wire.Arrival) (membership, error) {
	m.mu.Lock()
	if m.current <= a.Formation { // otherwise the next world is here already
		m.stands = proto.Clone(a).(*wire.Arrival)
		signal(m.moved)
	}
	m.mu.Unlock()
	select {
	case next := <-m.worlds:
		return next, nil
	case <-ctx.Done():
		return membership{}, context.Cause(ctx)
	}
}

// standing returns the worker's position for the master.
func (m *meeting) standing() *wire.Arrival {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stands
}

// lasting is how long a stream has to last to count as a success. Shorter ones are followed by a pause.
const lasting = time.Second

// attend keeps a stream to the master, from the first arrival on, until ctx is done. It returns an error if the worker has to end.
func (m *meeting) attend(ctx context.Context) error {
	select {
	case <-m.moved:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		err := retry(ctx, func() error {
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
func (m *meeting) converse(ctx context.Context) error {
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
			m.hear(ctx, said)
		}
	}()
	for first := true; ; first = false {
		select { // the position is sent now
		case <-m.moved:
		default:
		}
		if stands := m.standing(); (first || !stands.Works) && stream.Send(stands) != nil { // the master knows the world that it has given since
			return <-ended
		}
		select {
		case <-m.moved:
		case err := <-ended:
			return err
		}
	}
}

func (m *meeting) hear(ctx context.Context, said *wire.Assembly) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch word := said.Word.(type) {
	case *wire.Assembly_World:
		p := membership{World: word.World}
		m.self.SetLife(p.Life)
		p.ctx, p.drop = context.WithCancelCause(ctx)
		if m.drop != nil {
			m.drop(errRecalled) // the previous world, which the others may have left
		}
		m.current, m.drop = p.Formation, p.drop
		if m.stands != nil {
			m.stands = &wire.Arrival{Worker: m.stands.Worker, Address: m.stands.Address, Process: m.stands.Process, Formation: p.Formation, Works: true}
		}
		if p.Life != m.life { // also if this worker was not in the first world of that life
			m.life, m.flush = p.Life, 0
		}
		select {
		case <-m.worlds:
		default:
		}
		m.worlds <- p
	case *wire.Assembly_Recall:
		if word.Recall.Formation != m.current {
			return
		}
		m.recalled = word.Recall.Formation
		if word.Recall.Now {
			m.drop(errRecalled)
		} else {
			m.afterRound, m.joins = word.Recall.Formation, word.Recall.Joins
		}
	case *wire.Assembly_Flush:
		m.flush = max(m.flush, word.Flush)
	case *wire.Assembly_Cut:
		if word.Cut.GetNumber() > m.ordered.GetNumber() {
			m.ordered = word.Cut
		}
	}
	m.stir()
}

// stir wakes an idle rank to look for work.
func (m *meeting) stir() { signal(m.wake) }

// heard returns what the master has asked of the members of a formation.
func (m *meeting) heard(formation int64) (recalled bool, flush int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.recalled == formation, m.flush
}

// cut returns the newest checkpoint that the master has ordered, nil if there is none.
func (m *meeting) cut() *wire.Cut {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ordered
}
