package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Why a world is left before a link of it has broken.
var (
	errRecalled = errors.New("a member of the ring is gone")
	errAway     = errors.New("the connection to the master is lost")
)

// meeting is the worker's end of the rendezvous: one stream, over which it arrives, and hears of
// worlds and recalls. The stream stays open while the worker is in a world.
type meeting struct {
	client wire.MasterClient
	self   *wire.Self
	worlds chan place    // the newest that this worker has been given and is not in yet
	wake   chan struct{} // something was said that an idle rank has to know

	mu       sync.Mutex
	stream   *conversation
	recalled int64 // formation that it is recalled from,
	joins    bool  // for the sake of those that wait to join alone
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

// conversation is one stream.
type conversation struct {
	wire.Master_RendezvousClient
	cancel context.CancelFunc
	ended  chan struct{} // closed after err is set
	err    error
}

func newMeeting(client wire.MasterClient, self *wire.Self) *meeting {
	return &meeting{client: client, self: self, worlds: make(chan place, 1), wake: make(chan struct{}, 1)}
}

// arrive says that the worker stands between two rounds, and waits for the next world.
func (m *meeting) arrive(ctx context.Context, a *wire.Arrival) (place, error) {
	var next place
	err := retry(ctx, func() error {
		stream, err := m.open(ctx)
		if err != nil {
			return err
		}
		if err := stream.Send(a); err != nil {
			<-stream.ended
			return stream.err
		}
		select {
		case next = <-m.worlds:
			return nil
		case <-stream.ended:
			return stream.err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return next, err
}

// open is the stream, a new one if the last has ended.
func (m *meeting) open(ctx context.Context) (*conversation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stream != nil {
		select {
		case <-m.stream.ended:
		default:
			return m.stream, nil
		}
	}
	select { // what the old stream said is of no use any more
	case <-m.worlds:
	default:
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := m.client.Rendezvous(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	c := &conversation{Master_RendezvousClient: stream, cancel: cancel, ended: make(chan struct{})}
	m.stream = c
	go m.listen(ctx, c)
	return c, nil
}

// listen takes what the master says until the stream ends. The world of the worker ends with it: the
// master holds a worker whose stream has ended for gone.
func (m *meeting) listen(ctx context.Context, c *conversation) {
	defer close(c.ended)
	defer c.cancel()
	for {
		said, err := c.Recv()
		if err != nil {
			c.err = fmt.Errorf("rendezvous: %w", err)
			m.leave(errAway)
			return
		}
		m.hear(ctx, said)
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
func (m *meeting) stir() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// leave drops the world that the worker is in.
func (m *meeting) leave(cause error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.drop != nil {
		m.drop(cause)
	}
}

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

// close ends the stream, and with it the worker's membership.
func (m *meeting) close() {
	m.mu.Lock()
	stream := m.stream
	m.mu.Unlock()
	if stream != nil {
		stream.cancel()
		<-stream.ended
	}
}
