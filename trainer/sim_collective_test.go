package trainer_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// processGroup lets the ranks of a world gather and broadcast, as gloo's: a connection between each
// two of them. The mutex guards what changes.
type processGroup struct {
	process    *fakeProcess
	rank, size int
	// of its world, if the script uses the package
	generation int64
	listener   net.Listener

	mu      sync.Mutex
	changed *sync.Cond
	// by rank; nil: not connected
	peers []*peer
	// why it is of no use any more
	err error
}

// peer is another rank.
type peer struct {
	conn     net.Conn
	received [][]byte
	err      error
}

// exchange is the store through which ranks tell each other their addresses. Its calls return
// errors when the world is over.
type exchange interface {
	set(key, value string) error
	get(key string) (string, error)
}

var errCondemned = errors.New("the connections of the group were cut")

// newGroup returns the group of one rank, which is not connected.
func newGroup(p *fakeProcess, rank, size int) *processGroup {
	g := &processGroup{process: p, rank: rank, size: size, peers: make([]*peer, size)}
	g.changed = sync.NewCond(&g.mu)
	context.AfterFunc(p.ctx, func() { g.condemn(context.Canceled) })
	return g
}

// connect connects the ranks, within a limit.
func (g *processGroup) connect(store exchange, limit time.Duration) error {
	p := g.process
	timer := time.AfterFunc(limit, func() { g.condemn(errors.New("the group was not made in time")) })
	defer timer.Stop()
	p.groups++
	own := fmt.Sprintf("%s/%d/%d", p.host.name, p.pid, p.groups)
	listener := p.network.listen(p.host, own)
	g.mu.Lock()
	if g.listener = listener; g.err != nil {
		listener.Close()
	}
	g.mu.Unlock()
	go g.accept()
	if err := store.set(fmt.Sprint("address/", g.rank), own); err != nil {
		return err
	}
	for r := range g.rank {
		address, err := store.get(fmt.Sprint("address/", r))
		if err != nil {
			return err
		}
		if err := g.dial(r, address); err != nil {
			return err
		}
	}
	p.stand()
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.err == nil && !g.isWhole() {
		g.changed.Wait()
	}
	return g.err
}

// isWhole reports whether all ranks are connected. The mutex is held.
func (g *processGroup) isWhole() bool {
	for r, peer := range g.peers {
		if r != g.rank && peer == nil {
			return false
		}
	}
	return true
}

func (g *processGroup) dial(rank int, address string) error {
	p := g.process
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	conn, err := p.network.dial(p.host)(ctx, address)
	p.stand()
	if err != nil {
		return err
	}
	if err := binary.Write(conn, binary.BigEndian, int32(g.rank)); err != nil {
		conn.Close()
		return err
	}
	g.join(rank, conn)
	return nil
}

// accept takes the connections of higher ranks.
func (g *processGroup) accept() {
	for {
		conn, err := g.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			var rank int32
			if binary.Read(conn, binary.BigEndian, &rank) == nil && int(rank) < g.size {
				g.join(int(rank), conn)
			} else {
				conn.Close()
			}
		}()
	}
}

// join takes the connection of a rank, and reads what comes.
func (g *processGroup) join(rank int, conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		conn.Close()
		return
	}
	peer := &peer{conn: conn}
	g.peers[rank] = peer
	g.changed.Broadcast()
	go func() {
		for {
			var length uint32
			err := binary.Read(conn, binary.BigEndian, &length)
			body := make([]byte, length)
			if err == nil {
				_, err = io.ReadFull(conn, body)
			}
			g.process.stand()
			g.mu.Lock()
			if peer.err = err; err == nil {
				peer.received = append(peer.received, body)
			}
			g.changed.Broadcast()
			g.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
}

// condemn cuts the connections: every wait in the group ends.
func (g *processGroup) condemn(why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = why
	}
	if g.listener != nil {
		g.listener.Close()
	}
	for _, peer := range g.peers {
		if peer != nil {
			peer.conn.Close()
		}
	}
	g.changed.Broadcast()
}

// send sends a message to a rank.
func (g *processGroup) send(rank int, body []byte) error {
	g.process.stand()
	g.mu.Lock()
	peer, err := g.peers[rank], g.err
	g.mu.Unlock()
	if err != nil {
		return err
	}
	_, err = peer.conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	g.process.stand()
	return err
}

// receive waits for the next message of a rank.
func (g *processGroup) receive(rank int) ([]byte, error) {
	defer g.process.stand()
	g.mu.Lock()
	defer g.mu.Unlock()
	peer := g.peers[rank]
	for {
		switch {
		case g.err != nil:
			return nil, g.err
		case len(peer.received) > 0:
			body := peer.received[0]
			peer.received = peer.received[1:]
			return body, nil
		case peer.err != nil:
			return nil, fmt.Errorf("rank %d: %w", rank, peer.err)
		}
		g.changed.Wait()
	}
}

// gather returns what each rank brings.
func (g *processGroup) gather(own []byte) ([][]byte, error) {
	all := make([][]byte, g.size)
	all[g.rank] = own
	// so that not all send to the same one at a time
	for i := 1; i < g.size; i++ {
		if err := g.send((g.rank+i)%g.size, own); err != nil {
			return nil, err
		}
	}
	for r := range g.size {
		if r != g.rank {
			body, err := g.receive(r)
			if err != nil {
				return nil, err
			}
			all[r] = body
		}
	}
	return all, nil
}

// barrier returns when all ranks are there. Rank 0, which may end then, waits until its messages
// have arrived: the end of a process loses what is on its way here, as it does not with TCP.
func (g *processGroup) barrier() error {
	if _, err := g.gather(nil); err != nil || g.size == 1 {
		return err
	}
	if g.rank > 0 {
		g.send(0, nil)
		return nil
	}
	for r := 1; r < g.size; r++ {
		g.receive(r) // or it has ended
	}
	return nil
}

// spread returns what the source has.
func (g *processGroup) spread(source int, own []byte) ([]byte, error) {
	if g.rank != source {
		return g.receive(source)
	}
	for i := 1; i < g.size; i++ {
		if err := g.send((g.rank+i)%g.size, own); err != nil {
			return nil, err
		}
	}
	return own, nil
}
