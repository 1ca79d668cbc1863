package trainer_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/test/memnet"
)

// network is what the simulated pods are connected by. It delays, blocks and cuts
// connections; what is blocked arrives later, as it does over TCP.
type network struct {
	mu        sync.Mutex
	listeners map[string]*listener
	conns     map[*conn]bool
	blocked   map[string]chan struct{} // by pod or by pair: closed when it is open again
	delays    map[string]time.Duration // by pair
	latency   time.Duration            // of everything, always
	writes    int                      // not to the master, by those that dialled
}

// host is one launch of a pod, as the network knows it.
type host struct {
	name string
	dead bool // its connections are cut, and it gets no more; guarded by the network's mutex
}

type listener struct {
	*memnet.Listener
	owner   *host
	address string
}

// pipeSize is what a connection buffers in each direction.
const pipeSize = 8 << 10

func newNetwork() *network {
	return &network{
		listeners: make(map[string]*listener),
		conns:     make(map[*conn]bool),
		blocked:   make(map[string]chan struct{}),
		delays:    make(map[string]time.Duration),
	}
}

// pair is the key of two pods, in either order.
func pair(a, b string) string { return min(a, b) + "|" + max(a, b) }

func (n *network) listen(owner *host, address string) net.Listener {
	l := &listener{memnet.Listen(pipeSize), owner, address}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[address] = l
	return l
}

// occupied says that somebody listens there, who is leaving perhaps.
func (n *network) occupied(address string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.listeners[address] != nil
}

// dial is the dialer of one host.
func (n *network) dial(from *host) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		n.mu.Lock()
		l := n.listeners[address]
		n.mu.Unlock()
		if l == nil {
			return nil, fmt.Errorf("dial %s: connection refused", address)
		}
		c := &conn{network: n, from: from, to: l.owner, closed: make(chan struct{})}
		if err := c.pass(ctx.Done()); err != nil {
			return nil, err
		}
		inner, err := l.DialContext(ctx)
		if err != nil {
			return nil, fmt.Errorf("dial %s: %w", address, err)
		}
		c.Conn = inner
		n.mu.Lock()
		defer n.mu.Unlock()
		if c.from.dead || c.to.dead {
			inner.Close()
			return nil, fmt.Errorf("dial %s: connection reset", address)
		}
		n.conns[c] = true
		return c, nil
	}
}

// kill cuts everything of a host, for good.
func (n *network) kill(h *host) {
	n.mu.Lock()
	h.dead = true
	var conns []*conn
	for c := range n.conns {
		if c.from == h || c.to == h {
			conns = append(conns, c)
		}
	}
	for address, l := range n.listeners {
		if l.owner == h {
			l.Close()
			delete(n.listeners, address)
		}
	}
	n.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}

// cut resets the connections between two pods; new ones can be made.
func (n *network) cut(a, b string) {
	n.mu.Lock()
	var conns []*conn
	for c := range n.conns {
		if pair(c.from.name, c.to.name) == pair(a, b) {
			conns = append(conns, c)
		}
	}
	n.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}

// block holds up what is sent for a while: everything of a pod, or what is between a pair.
func (n *network) block(key string, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.blocked[key] != nil {
		return
	}
	open := make(chan struct{})
	n.blocked[key] = open
	time.AfterFunc(d, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.blocked, key)
		close(open)
	})
}

// delay slows what is sent between a pair for a while.
func (n *network) delay(a, b string, by, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delays[pair(a, b)] = by
	time.AfterFunc(d, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.delays, pair(a, b))
	})
}

// conn is the dialing end of a connection; both directions pass through it.
type conn struct {
	net.Conn
	network  *network
	from, to *host
	once     sync.Once
	closed   chan struct{}
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		if err := c.pass(nil); err != nil {
			return 0, err
		}
	}
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	if err := c.pass(nil); err != nil {
		return 0, err
	}
	if c.to.name != "master" {
		c.network.mu.Lock()
		c.network.writes++
		c.network.mu.Unlock()
	}
	return c.Conn.Write(p)
}

func (c *conn) Close() error {
	var err error
	c.once.Do(func() {
		close(c.closed)
		c.network.mu.Lock()
		delete(c.network.conns, c)
		c.network.mu.Unlock()
		err = c.Conn.Close()
	})
	return err
}

// pass waits as long as the network makes it wait.
func (c *conn) pass(cancel <-chan struct{}) error {
	wait, slow := c.gate()
	var slept <-chan time.Time
	if slow > 0 {
		timer := time.NewTimer(slow)
		defer timer.Stop()
		slept = timer.C
	}
	for wait != nil || slept != nil {
		select {
		case <-wait:
			wait, _ = c.gate()
		case <-slept:
			slept = nil
		case <-c.closed:
			return net.ErrClosed
		case <-cancel:
			return context.Canceled
		}
	}
	return nil
}

// gate is what a sender has to wait for: nil if for nothing.
func (c *conn) gate() (<-chan struct{}, time.Duration) {
	n := c.network
	n.mu.Lock()
	defer n.mu.Unlock()
	between := pair(c.from.name, c.to.name)
	for _, key := range []string{between, c.from.name, c.to.name} {
		if open := n.blocked[key]; open != nil {
			return open, n.latency + n.delays[between]
		}
	}
	return nil, n.latency + n.delays[between]
}

// stand returns when a pod is not stopped, or its launch is dead.
func (n *network) stand(ctx context.Context, h *host) {
	for {
		n.mu.Lock()
		open := n.blocked[h.name]
		n.mu.Unlock()
		if open == nil {
			return
		}
		select {
		case <-open:
		case <-ctx.Done():
			return
		}
	}
}
