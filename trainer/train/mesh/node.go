package mesh

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/train/ring"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
)

const (
	// strangersMost limits the unidentified connections, in addition to one of each member of the
	// world. One more ends the oldest: who belongs here speaks at once.
	strangersMost = 64
	// redial is the pause before a peer that cannot be reached is dialled again.
	redial = 5 * time.Millisecond
	// redialMost limits the pause.
	redialMost = 100 * time.Millisecond
	// parkedMost limits the connections that wait for worlds unknown to this worker.
	parkedMost = 256
)

// Config holds the settings of a node.
type Config struct {
	Listener net.Listener // owned by the node
	// Self returns who this worker is now.
	Self func() identity.Header
	// Credential proves it.
	Credential *credential.Credential
	// Plain has connections leave TLS when both ends are proved, on a network that encrypts below.
	Plain bool
	// Silence is the time without progress after which a link breaks its world; 0: for ever.
	Silence time.Duration
	// Dial connects to a peer's address; nil: TCP, within timing.Connect.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Traffic counts the bytes that all worlds exchange; nil: nothing counts them.
	Traffic *Traffic
	Log     *slog.Logger // nil: none
}

// Peer is a member of a world.
type Peer struct {
	Worker  int
	Address string
}

// Group is the connected world.
type Group struct {
	// above 0; each greater than the one before
	Generation int64
	// of this worker
	Rank int
	// by rank, this worker among them
	Peers []Peer
}

// Node is a worker's end of all meshes that it is in, one after the other.
type Node struct {
	config Config
	speaks credential.Protocol
	ctx    context.Context // ends with the node
	cancel context.CancelFunc
	wg     sync.WaitGroup
	warned atomic.Bool // of a stranger

	strangers credential.Strangers // those that have not said hello yet

	mu     sync.Mutex
	conns  map[net.Conn]bool // that are saying hello, or parked
	parked []parked
	world  *forming // the last that was connected
	newest int64    // its generation
	mesh   *Mesh    // what became of it; nil: nothing yet
}

// parked is a connection of a world that this worker has not heard of.
type parked struct {
	hello hello
	conn  net.Conn
}

// forming is a world that is being connected.
type forming struct {
	Group
	got       chan accepted // nil: connected, or abandoned
	abandoned bool
}

// accepted is a connection that a peer dialled.
type accepted struct {
	rank int
	conn net.Conn
}

// Listen begins to accept peers.
func Listen(c Config) *Node {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Dial == nil {
		c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{Timeout: timing.Connect, KeepAliveConfig: keepAlive}).DialContext(ctx, "tcp", address)
		}
	}
	c.Traffic = cmp.Or(c.Traffic, new(Traffic))
	n := &Node{config: c, speaks: credential.Mesh, conns: make(map[net.Conn]bool)}
	if c.Plain {
		n.speaks = n.speaks.Plain()
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.wg.Go(n.accept)
	return n
}

// Close ends the listener and what has not become part of a mesh. The meshes are their owners' to
// close.
func (n *Node) Close() {
	n.cancel()
	n.config.Listener.Close()
	n.mu.Lock()
	for c := range n.conns {
		c.Close()
	}
	n.mu.Unlock()
	n.wg.Wait()
}

func (n *Node) accept() {
	for {
		conn, err := n.config.Listener.Accept()
		if err != nil {
			if n.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			n.config.Log.Warn("Accepting a peer failed", "error", err)
			select {
			case <-time.After(redialMost):
			case <-n.ctx.Done():
			}
			continue
		}
		known := n.attend(conn)
		n.wg.Go(func() { n.greet(conn, known) })
		if n.ctx.Err() != nil { // Close may not have seen it
			n.drop(conn)
		}
	}
}

// attend waits for what a connection says, and no more for the oldest that has said nothing, if
// they are too many. The caller calls known when it has spoken.
func (n *Node) attend(conn net.Conn) (known func()) {
	n.mu.Lock()
	n.conns[conn] = true
	most := strangersMost
	if n.world != nil {
		most += len(n.world.Peers)
	}
	n.mu.Unlock()
	return n.strangers.Admit(conn, most) // the greet of one that is closed drops it
}

// greet has who dialled prove who it is, reads its hello, and does what follows from that.
func (n *Node) greet(raw net.Conn, known func()) {
	conn, h, err := n.receive(raw)
	known()
	n.mu.Lock()
	delete(n.conns, raw)
	if conn != nil {
		n.conns[conn] = true
	}
	n.mu.Unlock()
	switch {
	case conn == nil:
		n.suspect(raw, err)
		raw.Close()
	case n.ctx.Err() != nil:
		n.drop(conn)
	case errors.Is(err, identity.ErrForeign), errors.Is(err, identity.ErrForbidden):
		n.suspect(conn, err)
		n.refuse(conn, answer{verdict: foreign, text: err.Error()})
	case err != nil:
		n.config.Log.Debug("A connection is no peer's", "from", conn.RemoteAddr(), "error", err)
		n.drop(conn)
	default:
		conn.SetReadDeadline(time.Time{})
		n.serve(conn, h)
	}
}

// receive returns a connection whose other end is known, and its hello. There is no connection if
// the other end proves nothing.
func (n *Node) receive(raw net.Conn) (net.Conn, hello, error) {
	keep(raw)
	raw.SetDeadline(time.Now().Add(timing.Greeting))
	made, err := n.config.Credential.Server(n.ctx, raw, false, n.speaks)
	if err != nil {
		return nil, hello{}, err
	}
	conn := made.Bare()
	h, err := readHello(conn, func(from identity.Header) error {
		return identity.Admit(n.config.Self(), from, made.Peer, pod.Worker)
	})
	raw.SetWriteDeadline(time.Time{})
	return conn, h, err
}

// suspect says that somebody dialled who is not of this job: loudly once, as a stranger shall not
// fill the log.
func (n *Node) suspect(conn net.Conn, err error) {
	if n.ctx.Err() != nil {
		return
	}
	level := slog.LevelDebug
	if n.warned.CompareAndSwap(false, true) {
		level = slog.LevelWarn
	}
	n.config.Log.Log(n.ctx, level, "Refused a connection that is not of this job", "from",
		conn.RemoteAddr(), "error", err)
}

// serve does what a hello of a worker of the job asks for.
func (n *Node) serve(conn net.Conn, h hello) {
	n.mu.Lock()
	v := n.judge(h)
	a := answer{verdict: v, generation: n.newest, from: n.config.Self()}
	switch {
	case v != welcome:
	case h.errand == toAsk:
		a.sent = n.mesh.sentTo(h.fromRank)
	case h.generation > n.newest:
		n.park(h, conn)
		n.mu.Unlock()
		return
	default:
		delete(n.conns, conn)
		n.world.got <- accepted{h.fromRank, conn} // there is room: judge
		n.mu.Unlock()
		return
	}
	n.mu.Unlock()
	if v != welcome {
		n.config.Log.Debug("A peer is refused", "hello", h, "verdict", v)
	}
	n.refuse(conn, a)
}

// refuse ends a connection with an answer.
func (n *Node) refuse(conn net.Conn, a answer) {
	conn.SetWriteDeadline(time.Now().Add(timing.Greeting))
	conn.Write(a.append(nil))
	n.drop(conn)
}

// judge says whether who said hello is welcome, now or when its world is here.
func (n *Node) judge(h hello) verdict {
	switch {
	case h.to != n.config.Self().Index:
		return stranger
	case h.generation < n.newest:
		return outdated
	case h.generation > n.newest && h.errand == toAsk:
		// another process, or it would know that world
		return stranger
	case h.generation > n.newest:
		if len(n.parked) == parkedMost {
			return crowded
		}
		return welcome
	}
	w := n.world
	if h.size != len(w.Peers) || h.toRank != w.Rank || w.Peers[h.fromRank].Worker != h.from.Index ||
		!slices.Contains(ring.Peers(w.Rank, h.size), h.fromRank) {
		return stranger
	}
	switch {
	case h.errand == toAsk && (w.abandoned || n.mesh.over()):
		return outdated
	case h.errand == toAsk:
		return welcome
	case w.got == nil:
		return outdated // it gave up, or has this link already
	case len(w.got) == cap(w.got):
		return crowded
	}
	return welcome
}

// park keeps a connection; of one rank in one world the latest.
func (n *Node) park(h hello, conn net.Conn) {
	for i, p := range n.parked {
		if p.hello.same(h) {
			p.conn.Close()
			delete(n.conns, p.conn)
			n.parked[i].conn = conn
			return
		}
	}
	n.parked = append(n.parked, parked{h, conn})
}

// drop closes a connection that is nobody's.
func (n *Node) drop(conn net.Conn) {
	conn.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, conn)
}
