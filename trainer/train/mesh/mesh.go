package mesh

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/train/ring"
)

var _ ring.Link = (*Mesh)(nil)

// Mesh is the connections of one world. Send, Recv, Flush and Arrived are for one goroutine at a
// time; Break and Close for any.
type Mesh struct {
	world   Group
	links   []*link // by rank; nil: none
	wg      sync.WaitGroup
	traffic *Traffic

	mu      sync.Mutex
	err     *BrokenError
	broken  chan struct{}
	taken   *link         // that Recv reads
	timer   *time.Timer   // to watch
	arrived chan struct{} // what the last Arrived returned
	heard   bool          // and it is closed
}

// BrokenError is returned by every call on a broken mesh, and by a failed connect.
type BrokenError struct {
	Generation int64
	// whose connection failed first, seen from here: it may itself have closed because of another;
	// -1: none, it was Break
	Rank int
	Err  error
}

func (e *BrokenError) Error() string {
	if e.Rank < 0 {
		return fmt.Sprintf("world %d broken: %v", e.Generation, e.Err)
	}
	return fmt.Sprintf("world %d broken at rank %d: %v", e.Generation, e.Rank, e.Err)
}

func (e *BrokenError) Unwrap() error { return e.Err }

// ErrClosed is in the BrokenError of a mesh that was closed.
var ErrClosed = errors.New("mesh closed")

// readAhead is the buffer of a link: what is shorter is read through it.
const readAhead = 4 << 10

// quiet is the time after the last Recv from which all links are watched: who waits for one peer,
// or computes, then hears that the link to another broke. Between the Recvs of a collective nobody
// is to be started.
const quiet = 20 * time.Millisecond

// keep has the kernel tell when the other machine has vanished; best effort.
func keep(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetKeepAliveConfig(keepAlive)
	}
}

// keepAlive has the kernel ask whether the other machine is there while nothing is under way to it.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: timing.KernelIdle,
	Interval: timing.KernelInterval, Count: timing.KernelTests}

// link is one connection.
type link struct {
	rank   int
	conn   net.Conn
	in     *bufio.Reader
	access memoryAccess
	// bytes
	got atomic.Int64
	// bytes that the kernel has taken
	sent atomic.Int64
	// since the last Flush it received a message that its sender still has
	owes bool
	// what it has sent since then, and the other copies: nobody else may hold it
	kept [][]byte
	// closed when the first byte is in the buffer; nil: nobody looks
	peek chan struct{}
	// nil: encrypted, or no socket
	socket *socket

	mu      sync.Mutex
	changed sync.Cond
	// nil: there is no such way
	direct direct
	// to be written; the first is being so
	queue  [][]byte
	closed bool
}

func newMesh(w Group, conns map[int]net.Conn, accesses map[int]memoryAccess, t *Traffic) *Mesh {
	m := &Mesh{world: w, links: make([]*link, len(w.Peers)), broken: make(chan struct{}), traffic: t}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.timer = time.AfterFunc(quiet, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.watch()
	})
	for r, conn := range conns {
		l := &link{rank: r, conn: conn, access: accesses[r]}
		l.in = bufio.NewReaderSize(counting{conn, &l.got}, readAhead)
		l.changed.L = &l.mu
		l.socket = newSocket(conn)
		l.direct = newDirect(conn, l.socket)
		m.links[r] = l
		m.wg.Go(func() { m.write(l) })
	}
	return m
}

// Group is the connected world.
func (m *Mesh) Group() Group { return m.world }

// Send implements [ring.Link].
func (m *Mesh) Send(to int, b []byte) error {
	if len(b) == 0 {
		return m.cause()
	}
	m.traffic.Sent.Add(int64(len(b)))
	l := m.links[to]
	if l.access.read && long(b) {
		l.kept = append(l.kept, b)
		b = addressOf(b)
	}
	if !l.send(b) {
		return m.cause()
	}
	return nil
}

// send queues b, unless the link is closed.
func (l *link) send(b []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if len(l.queue) == 0 && l.direct != nil {
		n := l.direct.write(b)
		l.sent.Add(int64(n))
		b = b[n:]
		if len(b) == 0 {
			return true
		}
	}
	l.queue = append(l.queue, b)
	l.changed.Broadcast()
	for !l.closed && len(l.queue) > ring.Ahead {
		l.changed.Wait()
	}
	return !l.closed
}

// Recv implements [ring.Link].
func (m *Mesh) Recv(from int, b []byte) error {
	// it may be the last, so that no byte comes after it
	if len(b) == 0 {
		return m.cause()
	}
	l := m.links[from]
	seen, err := m.claim(l)
	if err != nil {
		return err
	}
	if seen != nil {
		<-seen
	}
	if err := l.receive(b); err != nil {
		return m.fail(l.rank, err)
	}
	m.traffic.Received.Add(int64(len(b)))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taken = nil
	if m.err != nil {
		return m.err
	}
	m.timer.Reset(quiet)
	return nil
}

// receive fills b with the next message.
func (l *link) receive(b []byte) error {
	if long(b) && !l.access.reads && l.socket != nil {
		n := l.in.Buffered()
		if _, err := io.ReadFull(l.in, b[:n]); err != nil {
			return err
		}
		return l.socket.readFull(b[n:], &l.got)
	}
	l.socket.wakeAt(1)
	if !long(b) || !l.access.reads {
		_, err := io.ReadFull(l.in, b)
		return err
	}
	var place [8]byte
	if _, err := io.ReadFull(l.in, place[:]); err != nil {
		return err
	}
	l.owes = true
	return l.access.memory.read(b, uintptr(binary.NativeEndian.Uint64(place[:])))
}

// claim makes Recv the only reader of a link, after a look has ended.
func (m *Mesh) claim(l *link) (seen <-chan struct{}, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return nil, m.err
	}
	seen, l.peek, m.taken = l.peek, nil, l
	return seen, nil
}

// Flush implements [ring.Link].
func (m *Mesh) Flush() error {
	for _, l := range m.links {
		if l != nil && l.owes && !l.send(received) {
			return m.cause()
		}
	}
	for _, l := range m.links {
		if l == nil {
			continue
		}
		l.owes = false
		if len(l.kept) > 0 {
			if err := m.Recv(l.rank, make([]byte, len(received))); err != nil {
				return err
			}
			clear(l.kept)
			l.kept = l.kept[:0]
		}
		if !l.flush() {
			return m.cause()
		}
	}
	return nil
}

// received is the word that messages that their sender had kept are no more needed.
var received = []byte{1}

// flush waits until all is written, or the link is closed.
func (l *link) flush() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.closed && len(l.queue) > 0 {
		l.changed.Wait()
	}
	return !l.closed
}

// write writes what is queued until the link is closed.
func (m *Mesh) write(l *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		for !l.closed && len(l.queue) == 0 {
			l.changed.Wait()
		}
		if l.closed {
			return
		}
		b := l.queue[0]
		l.mu.Unlock()
		n, err := l.conn.Write(b)
		l.sent.Add(int64(n))
		if err != nil {
			m.fail(l.rank, err)
		}
		l.mu.Lock()
		l.queue = l.queue[1:]
		l.changed.Broadcast()
	}
}

// Arrived returns a channel that is closed when bytes that nobody has received are here from any
// peer, or the mesh is broken. It takes none of them.
func (m *Mesh) Arrived() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.arrived == nil || m.heard {
		m.arrived, m.heard = make(chan struct{}), false
	}
	if m.err != nil {
		m.closeArrived()
	}
	for _, l := range m.links {
		if l != nil && l.peek != nil {
			select {
			case <-l.peek:
				m.closeArrived()
			default:
			}
		}
	}
	m.watch()
	return m.arrived
}

// watch looks at every link that nobody reads: for bytes, and for its end.
func (m *Mesh) watch() {
	if m.err != nil {
		return
	}
	for _, l := range m.links {
		if l != nil && l.peek == nil && l != m.taken {
			seen := make(chan struct{})
			l.peek = seen
			m.wg.Go(func() { m.awaitByte(l, seen) })
		}
	}
}

// awaitByte waits for the first byte of a link.
func (m *Mesh) awaitByte(l *link, seen chan struct{}) {
	l.socket.wakeAt(1)
	if _, err := l.in.Peek(1); err != nil {
		m.fail(l.rank, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closeArrived()
	// with that: a channel of Arrived is made before both, or sees this one closed
	close(seen)
}

// closeArrived closes the channel of Arrived.
func (m *Mesh) closeArrived() {
	if m.arrived != nil && !m.heard {
		m.heard = true
		close(m.arrived)
	}
}

// Broken is closed when the mesh is broken or closed.
func (m *Mesh) Broken() <-chan struct{} { return m.broken }

// cause is the reason why the mesh is broken.
func (m *Mesh) cause() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		return nil
	}
	return m.err
}

// Break closes every connection, because of err. The first of all failures and Breaks counts.
func (m *Mesh) Break(err error) { m.fail(-1, err) }

// fail breaks the mesh, if it is not broken yet, and returns why it is.
func (m *Mesh) fail(rank int, err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	for _, l := range m.links {
		if l != nil {
			l.access.guard.clear()
		}
	}
	m.err = &BrokenError{m.world.Generation, rank, err}
	m.closeArrived()
	m.timer.Stop()
	close(m.broken)
	for _, l := range m.links {
		if l != nil {
			l.close()
		}
	}
	return m.err
}

func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.conn.Close()
	l.changed.Broadcast()
}

// Close breaks the mesh with [ErrClosed] and waits for its goroutines. Flushed data still reaches
// the peers.
func (m *Mesh) Close() {
	m.Break(ErrClosed)
	m.wg.Wait()
}
