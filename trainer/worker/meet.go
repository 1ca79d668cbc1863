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

// errRecalled is why a world is left before a link of it has broken.
var errRecalled = errors.New("a member of the ring is gone")

// meeting is the worker's end of the rendezvous: a stream, over which it says where it stands, and hears of worlds and
// recalls. When a stream ends another one is opened, and the worker works on in its world meanwhile: the master is away, or
// the way to it.
type meeting struct {
	client wire.MasterClient
	self   *rpc.Self
	worlds chan place    // the newest that this worker has been given and is not in yet
	wake   chan struct{} // something was said that an idle rank has to know
	moved  chan struct{} // stands has changed, and the master does not know

	mu       sync.Mutex
	stands   *wire.Arrival // where the worker stands; nil: it has not arrived yet
	recalled int64         // formation that it is recalled from,
	joins    bool          // for the sake of those that wait to join alone
	drop     context.CancelCauseFunc
	current  int64 // formation of the world that drop drops
	life     int64 // of the model, in the newest world
	flush    int64 // the newest order of that life
	ordered  int64 // the newest checkpoint
}

// place is a world that the worker is given a place in. Its context ends when it is not to be in it any more.
type place struct {
	*wire.World
	ctx  context.Context
	drop context.CancelCauseFunc
}

func newMeeting(client wire.MasterClient, self *rpc.Self) *meeting {
	return &meeting{client: client, self: self, worlds: make(chan place, 1), wake: make(chan struct{}, 1), moved: make(chan struct{}, 1)}
}

// arrive says that the worker stands between two rounds, and waits for the next world.
func (m *meeting) arrive(ctx context.Context, a *wire.Arrival) (place, error) {
	m.mu.Lock()
	if m.current <= a.Formation { // else the next one is there
		m.stands = proto.Clone(a).(*wire.Arrival)
		signal(m.moved)
	}
	m.mu.Unlock()
	select {
	case next := <-m.worlds:
		return next, nil
	case <-ctx.Done():
		return place{}, context.Cause(ctx)
	}
}

// standing is where the worker stands, for the master.
func (m *meeting) standing() *wire.Arrival {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stands
}

// lasting is how long a stream lasts that is no attempt which has failed.
const lasting = time.Second

// attend keeps a stream to the master, from the first arrival on, until ctx is done. Another error is the worker's end.
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

// converse is one stream, until it ends. It begins with where the worker stands.
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
		select { // it is said now
		case <-m.moved:
		default:
		}
		if stands := m.standing(); (first || !stands.Works) && stream.Send(stands) != nil { // the master knows of the world that it has given since
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
		p := place{World: word.World}
		m.self.SetLife(p.Life)
		p.ctx, p.drop = context.WithCancelCause(ctx)
		if m.drop != nil {
			m.drop(errRecalled) // the one before, which the others may have left
		}
		m.current, m.drop = p.Formation, p.drop
		if m.stands != nil {
			m.stands = &wire.Arrival{Worker: m.stands.Worker, Address: m.stands.Address, Process: m.stands.Process, Formation: p.Formation, Works: true}
		}
		if p.Life != m.life { // also if its first world was missed
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
		m.recalled, m.joins = word.Recall.Formation, word.Recall.Joins
		if word.Recall.Now {
			m.drop(errRecalled)
		}
	case *wire.Assembly_Flush:
		m.flush = max(m.flush, word.Flush)
	case *wire.Assembly_Cut:
		m.ordered = max(m.ordered, word.Cut)
	}
	m.stir()
}

// stir has an idle rank look what there is to do.
func (m *meeting) stir() { signal(m.wake) }

// heard is what the master asks of the members of a formation.
func (m *meeting) heard(formation int64) (recalled bool, flush int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.recalled == formation, m.flush
}

// cut is the newest checkpoint that the master ordered.
func (m *meeting) cut() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ordered
}
