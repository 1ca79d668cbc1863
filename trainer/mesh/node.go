package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/ring"
)

const (
	// greeting is how long a connection may take to say hello.
	greeting = 5 * time.Second
	// redial is the pause before a peer that cannot be reached is dialled again.
	redial = 5 * time.Millisecond
	// redialMost is how long the pause becomes.
	redialMost = 100 * time.Millisecond
	// parkedMost is how many connections wait for worlds that this worker has not heard of.
	parkedMost = 256
)

// Config is what a node is made of.
type Config struct {
	Listener net.Listener // owned by the node
	Worker   int          // of this process
	// Dial connects to a peer's address; nil: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	Log  *slog.Logger // nil: none
}

// Peer is a member of a world.
type Peer struct {
	Worker  int
	Address string
}

// World is who is connected.
type World struct {
	Formation int64  // above 0; each greater than the one before
	Rank      int    // of this worker
	Peers     []Peer // by rank, this worker among them
}

// Node is a worker's end of all meshes that it is in, one after the other.
type Node struct {
	config Config
	ctx    context.Context // ends with the node
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool // that are saying hello, or parked
	parked []parked
	world  *forming // the last that was connected
	newest int64    // its formation
}

// parked is a connection of a world that this worker has not heard of.
type parked struct {
	hello hello
	conn  net.Conn
}

// forming is a world that is being connected.
type forming struct {
	World
	got chan accepted // nil: connected, or given up
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
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	n := &Node{config: c, conns: make(map[net.Conn]bool)}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.wg.Go(n.accept)
	return n
}

// Close ends the listener and what has not become part of a mesh. The meshes are their owners' to close.
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
		n.mu.Lock()
		n.conns[conn] = true
		n.mu.Unlock()
		n.wg.Go(func() { n.greet(conn) })
		if n.ctx.Err() != nil { // Close may not have seen it
			n.drop(conn)
		}
	}
}

// greet reads a hello and does what follows from it.
func (n *Node) greet(conn net.Conn) {
	b := make([]byte, helloSize)
	conn.SetReadDeadline(time.Now().Add(greeting))
	_, err := io.ReadFull(conn, b)
	var h hello
	if err == nil {
		h, err = parseHello(b)
	}
	if err != nil || n.ctx.Err() != nil {
		n.config.Log.Debug("A connection is no peer's", "from", conn.RemoteAddr(), "error", err)
		n.drop(conn)
		return
	}
	conn.SetReadDeadline(time.Time{})
	n.mu.Lock()
	v := n.judge(h)
	formation := n.newest
	switch {
	case v == welcome && h.formation > n.newest:
		n.park(h, conn)
		n.mu.Unlock()
		return
	case v == welcome:
		delete(n.conns, conn)
		n.world.got <- accepted{h.fromRank, conn} // there is room: judge
		n.mu.Unlock()
		return
	}
	n.mu.Unlock()
	n.config.Log.Debug("A peer is refused", "hello", h, "verdict", v)
	conn.SetWriteDeadline(time.Now().Add(greeting))
	conn.Write(answer{v, formation}.append(nil))
	n.drop(conn)
}

// judge says whether who said hello is welcome, now or when its world is here.
func (n *Node) judge(h hello) verdict {
	switch {
	case h.toWorker != n.config.Worker:
		return stranger
	case h.formation < n.newest:
		return outdated
	case h.formation > n.newest:
		if len(n.parked) == parkedMost {
			return crowded
		}
		return welcome
	}
	w := n.world
	if h.size != len(w.Peers) || h.toRank != w.Rank || w.Peers[h.fromRank].Worker != h.fromWorker ||
		!slices.Contains(ring.Peers(w.Rank, h.size), h.fromRank) {
		return stranger
	}
	switch {
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
		if p.hello == h {
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

// Connect connects this worker with its peers in the world, and waits for those that have not heard of it
// yet, until ctx is done. A formation is connected once, whatever comes of it. A [BrokenError] names a peer that
// refuses, or that did not come.
func (n *Node) Connect(ctx context.Context, w World) (*Mesh, error) {
	peers := ring.Peers(w.Rank, len(w.Peers))
	f, err := n.begin(w)
	if err != nil {
		return nil, err
	}
	conns, err := n.gather(ctx, f, peers)
	n.mu.Lock()
	got := f.got
	f.got = nil
	n.mu.Unlock()
	close(got)
	for a := range got {
		a.conn.Close()
	}
	var nears map[int]near
	if err == nil {
		admit()
		var rank int
		if nears, rank, err = approach(ctx, n.ctx, conns); err != nil {
			err = &BrokenError{w.Formation, rank, cmp.Or(context.Cause(ctx), err)}
		}
	}
	if err != nil {
		for _, c := range conns {
			c.Close()
		}
		return nil, fmt.Errorf("connect: %w", err)
	}
	return newMesh(w, conns, nears), nil
}

// begin makes w the world whose peers are welcome.
func (n *Node) begin(w World) (*forming, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w.Formation <= n.newest {
		return nil, fmt.Errorf("connect world %d: world %d was connected before", w.Formation, n.newest)
	}
	if n.ctx.Err() != nil {
		return nil, fmt.Errorf("connect world %d: %w", w.Formation, net.ErrClosed)
	}
	f := &forming{World: w, got: make(chan accepted, parkedMost)}
	n.world, n.newest = f, w.Formation
	var later []parked
	for _, p := range n.parked {
		switch v := n.judge(p.hello); {
		case p.hello.formation > w.Formation:
			later = append(later, p)
			continue
		case v == welcome:
			f.got <- accepted{p.hello.fromRank, p.conn}
		default:
			p.conn.Close() // it dials again and hears why
		}
		delete(n.conns, p.conn)
	}
	n.parked = later
	return f, nil
}

// gather returns a connection to each of the peers; with an error, those that it has.
func (n *Node) gather(ctx context.Context, f *forming, peers []int) (map[int]net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(n.ctx, cancel)
	type dialled struct {
		rank int
		conn net.Conn
		err  error
	}
	results := make(chan dialled, len(peers))
	var dials sync.WaitGroup
	defer func() {
		stop()
		cancel()
		dials.Wait()
		close(results)
		for d := range results {
			if d.conn != nil {
				d.conn.Close()
			}
		}
	}()
	conns := make(map[int]net.Conn)
	for _, r := range peers {
		if r < f.Rank {
			dials.Go(func() {
				conn, err := n.dial(ctx, f.World, r)
				results <- dialled{r, conn, err}
			})
		}
	}
	for len(conns) < len(peers) {
		select {
		case d := <-results:
			if d.err != nil {
				return conns, &BrokenError{f.Formation, d.rank, d.err}
			}
			conns[d.rank] = d.conn
		case a := <-f.got:
			a.conn.SetWriteDeadline(time.Now().Add(greeting))
			if _, err := a.conn.Write((answer{welcome, f.Formation}).append(nil)); err != nil {
				a.conn.Close() // it dials again
				continue
			}
			a.conn.SetWriteDeadline(time.Time{})
			if old := conns[a.rank]; old != nil {
				old.Close()
			}
			conns[a.rank] = a.conn
		case <-ctx.Done():
			return conns, missing(f, peers, conns, context.Cause(ctx))
		}
	}
	return conns, nil
}

// missing says who did not come.
func missing(f *forming, peers []int, conns map[int]net.Conn, cause error) error {
	for _, r := range peers {
		if conns[r] == nil {
			return &BrokenError{f.Formation, r, fmt.Errorf("worker %d at %s: %w", f.Peers[r].Worker, f.Peers[r].Address, cause)}
		}
	}
	return cause
}

// dial connects to one peer, again and again until ctx is done.
func (n *Node) dial(ctx context.Context, w World, rank int) (net.Conn, error) {
	pause := redial
	for {
		conn, err := n.call(ctx, w, rank)
		if refused, ok := errors.AsType[*refusedError](err); err == nil || ok && refused.final() {
			return conn, err
		}
		n.config.Log.Debug("A peer is dialled again", "worker", w.Peers[rank].Worker, "address", w.Peers[rank].Address, "error", err)
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("worker %d: %w: %w", w.Peers[rank].Worker, context.Cause(ctx), err)
		case <-time.After(pause):
			pause = min(2*pause, redialMost)
		}
	}
}

// refusedError is a peer's answer other than welcome.
type refusedError struct {
	peer Peer
	answer
}

func (e *refusedError) final() bool { return e.verdict != crowded }

func (e *refusedError) Error() string {
	text := map[verdict]string{
		outdated: fmt.Sprintf("it is in world %d already", e.formation),
		stranger: "it is another worker, or has another place",
		crowded:  "it has no room",
	}
	return fmt.Sprintf("worker %d at %s refuses: %s", e.peer.Worker, e.peer.Address, text[e.verdict])
}

// call dials once, says hello, and waits for the answer.
func (n *Node) call(ctx context.Context, w World, rank int) (net.Conn, error) {
	peer := w.Peers[rank]
	conn, err := n.config.Dial(ctx, peer.Address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	h := hello{w.Formation, w.Peers[w.Rank].Worker, peer.Worker, w.Rank, rank, len(w.Peers)}
	b := make([]byte, answerSize)
	if _, err = conn.Write(h.append(nil)); err == nil {
		_, err = io.ReadFull(conn, b)
	}
	var a answer
	if err == nil {
		a, err = parseAnswer(b)
	}
	if err == nil && a.verdict != welcome {
		err = &refusedError{peer, a}
	}
	if !stop() {
		err = cmp.Or(err, context.Cause(ctx))
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}
