package trainer_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/test/memnet"
)

// network connects the simulated pods. It delays, blocks and cuts connections; what is blocked
// arrives later, as it does over TCP.
type network struct {
	mu sync.Mutex
	// by address; the last one hears, while it lives
	listeners map[string][]*listener
	conns     map[*conn]bool
	// by pod or by pair: closed when it is open again
	blocked map[string]chan struct{}
	// by pair
	delays map[string]time.Duration
	// of everything, always
	latency time.Duration
	// of what makes no two packets arrive at the same time
	seed uint64
	// not to the master, by those that dialled
	writes int
}

// host is one incarnation of a pod, as the network knows it. The network's mutex guards what
// changes.
type host struct {
	name        string
	incarnation int
	// its connections are cut, and it gets no more
	dead bool
	// connections, by address
	dialed map[string]int
	hears  []*listener
}

type listener struct {
	*memnet.Listener
	owner   *host
	address string
}

// pipeSize is the size of a connection's buffer in each direction.
const pipeSize = 8 << 10

func newNetwork(seed uint64) *network {
	return &network{
		seed:      seed,
		listeners: make(map[string][]*listener),
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
	owner.hears = append(owner.hears, l)
	n.listeners[address] = append(n.listeners[address], l)
	return l
}

// occupied says that somebody listens there, who is leaving perhaps.
func (n *network) occupied(address string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.listeners[address]) > 0
}

// listening returns the listener at an address, or nil. The mutex is held.
func (n *network) listening(address string) *listener {
	if all := n.listeners[address]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// dial is the dialer of one host.
func (n *network) dial(from *host) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		n.mu.Lock()
		l := n.listening(address)
		n.mu.Unlock()
		if l == nil {
			return nil, fmt.Errorf("dial %s: connection refused", address)
		}
		c := &conn{network: n, from: from, to: l.owner, closed: make(chan struct{})}
		c.there, c.back = n.flows(from, address)
		if err := c.pass(c.there, ctx.Done()); err != nil {
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

// slot is the interval at which one direction of a connection delivers. No two connections have the
// same ones: what arrived at the same time could be handled in any order, and in another each time
// that a seed is replayed.
const slot = 100 * time.Microsecond

// flow is one direction of a connection. The network's mutex guards it.
type flow struct {
	// of its slots
	offset time.Duration
	// when it let something through: what is sent at the same instant goes with that
	passed time.Time
}

// flows is the two directions of a host's next connection.
func (n *network) flows(from *host, address string) (there, back *flow) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if from.dialed == nil {
		from.dialed = make(map[string]int)
	}
	from.dialed[address]++
	h := n.seed*31 + hash(from.name, address, fmt.Sprint(from.incarnation, from.dialed[address]))
	return &flow{offset: time.Duration(h % uint64(slot))}, &flow{offset: time.Duration(h >> 32 % uint64(slot))}
}

// hash is a number of some words.
func hash(words ...string) uint64 {
	h := fnv.New64a()
	for _, word := range words {
		h.Write([]byte(word))
		h.Write([]byte{0})
	}
	return h.Sum64()
}

// isDead reports whether a host was killed.
func (n *network) isDead(h *host) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return h.dead
}

// kill closes all listeners and connections of a host, permanently.
func (n *network) kill(h *host) {
	n.mu.Lock()
	h.dead = true
	var conns []*conn
	for c := range n.conns {
		if c.from == h || c.to == h {
			conns = append(conns, c)
		}
	}
	for _, l := range h.hears {
		l.Close()
		n.listeners[l.address] = slices.DeleteFunc(n.listeners[l.address], func(other *listener) bool {
			return other == l
		})
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

// block holds up what is sent for a while: everything of a pod, or what is between a pair. False:
// it is held up already.
func (n *network) block(key string, d time.Duration) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.blocked[key] != nil {
		return false
	}
	open := make(chan struct{})
	n.blocked[key] = open
	time.AfterFunc(d, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.blocked, key)
		close(open)
	})
	return true
}

// undisturbed reports whether at most one block is on, and nothing is slowed.
func (n *network) undisturbed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.blocked) <= 1 && len(n.delays) == 0
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

	there, back *flow
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		if err := c.pass(c.back, nil); err != nil {
			return 0, err
		}
	}
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	if err := c.pass(c.there, nil); err != nil {
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
func (c *conn) pass(f *flow, cancel <-chan struct{}) error {
	for began := time.Now(); ; {
		blocked, due := c.gate(f, began)
		var wait <-chan time.Time
		if blocked == nil {
			rest := time.Until(due)
			if rest <= 0 {
				break
			}
			timer := time.NewTimer(rest)
			defer timer.Stop()
			wait = timer.C
		}
		select {
		case <-blocked:
			began = time.Now().Add(-c.network.latency)
		case <-wait:
		case <-c.closed:
			return net.ErrClosed
		case <-cancel:
			return context.Canceled
		}
	}
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	f.passed = time.Now()
	return nil
}

// gate holds back senders that began then: until nothing blocks, and until when.
func (c *conn) gate(f *flow, began time.Time) (blocked <-chan struct{}, due time.Time) {
	n := c.network
	n.mu.Lock()
	defer n.mu.Unlock()
	between := pair(c.from.name, c.to.name)
	for _, key := range []string{between, c.from.name, c.to.name} {
		if open := n.blocked[key]; open != nil {
			return open, began
		}
	}
	if began.Equal(f.passed) {
		return nil, began
	}
	due = began.Add(n.latency + n.delays[between])
	late := time.Duration(due.UnixNano()) % slot
	return nil, due.Add((f.offset - late + slot) % slot)
}

// stand returns when a pod is not stopped, or its incarnation is dead.
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
