// Package memnet is a network in memory for tests in synctest bubbles: a goroutine
// that waits on it is durably blocked. It replaces grpc's bufconn, which uses
// time.AfterFunc(0): such a timer fires while it is made, on the system
// stack, which often crashes a bubble under the race detector of Go 1.26.
package memnet

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Listener accepts the connections that DialContext makes.
type Listener struct {
	size   int
	dialed chan net.Conn
	closed chan struct{}
	close  func()
}

// Listen returns a listener whose connections buffer size bytes in each direction.
func Listen(size int) *Listener {
	l := &Listener{size: size, dialed: make(chan net.Conn), closed: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.closed) })
	return l
}

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.dialed:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and DialContext; it does not close connections.
func (l *Listener) Close() error {
	l.close()
	return nil
}

// Addr implements [net.Listener].
func (l *Listener) Addr() net.Addr { return addr{} }

// DialContext returns a connection when the other side accepts it.
func (l *Listener) DialContext(ctx context.Context) (net.Conn, error) {
	there, back := newPipe(l.size), newPipe(l.size)
	select {
	case l.dialed <- &conn{read: there, write: back}:
		return &conn{read: back, write: there}, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type addr struct{}

func (addr) Network() string { return "memory" }
func (addr) String() string  { return "memory" }

// conn is one end of two pipes.
type conn struct{ read, write *pipe }

func (c *conn) Read(b []byte) (int, error)  { return c.read.Read(b) }
func (c *conn) Write(b []byte) (int, error) { return c.write.Write(b) }

// Close closes both directions. The other end can still read what it was sent; its writes fail.
func (c *conn) Close() error {
	c.read.end(&c.read.left)
	c.write.end(&c.write.finished)
	return nil
}

// CloseWrite closes one direction: the other end reads what it was sent, and then the end of the
// stream.
func (c *conn) CloseWrite() error {
	c.write.end(&c.write.finished)
	return nil
}

// CloseRead ends what the other end can send: what it has sent can still be read, then the stream
// ends.
func (c *conn) CloseRead() error {
	c.read.end(&c.read.finished)
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return addr{} }
func (c *conn) RemoteAddr() net.Addr { return addr{} }

func (c *conn) SetReadDeadline(t time.Time) error {
	c.read.limit(&c.read.readBy, t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.write.limit(&c.write.writeBy, t)
	return nil
}

func (c *conn) SetDeadline(t time.Time) error {
	c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// pipe is one direction of a connection. It buffers at most size bytes that are written and not
// read.
type pipe struct {
	mu      sync.Mutex
	changed sync.Cond
	size    int
	bytes   []byte

	finished        bool // by its writer
	left            bool // by its reader
	readBy, writeBy deadline
}

type deadline struct {
	at    time.Time // zero: none
	timer *time.Timer
}

func (d deadline) past() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func newPipe(size int) *pipe {
	p := &pipe{size: size}
	p.changed.L = &p.mu
	return p
}

func (p *pipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.left:
			return 0, io.ErrClosedPipe
		case p.readBy.past():
			return 0, os.ErrDeadlineExceeded
		case len(p.bytes) > 0:
			n := copy(b, p.bytes)
			p.bytes = append(p.bytes[:0], p.bytes[n:]...)
			p.changed.Broadcast()
			return n, nil
		case p.finished:
			return 0, io.EOF
		}
		p.changed.Wait()
	}
}

func (p *pipe) Write(b []byte) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.left || p.finished:
			return n, io.ErrClosedPipe
		case p.writeBy.past():
			return n, os.ErrDeadlineExceeded
		case n == len(b):
			return n, nil
		}
		if k := min(len(b)-n, p.size-len(p.bytes)); k > 0 {
			p.bytes = append(p.bytes, b[n:n+k]...)
			n += k
			p.changed.Broadcast()
			continue
		}
		p.changed.Wait()
	}
}

// end sets one of the flags of the pipe's end.
func (p *pipe) end(flag *bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*flag = true
	p.changed.Broadcast()
}

// limit sets one of the pipe's deadlines.
func (p *pipe) limit(d *deadline, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d.at = at
	if d.timer != nil {
		d.timer.Stop()
	}
	if wait := time.Until(at); !at.IsZero() && wait > 0 {
		d.timer = time.AfterFunc(wait, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.changed.Broadcast()
		})
	}
	p.changed.Broadcast()
}
