package tcpstore

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"
)

// Options bound what a server does for its clients. The zero value is usable.
type Options struct {
	// Connections is the largest number of open connections; 0: 4096. A process has one, with
	// PyTorch 1.x two.
	Connections int
	// Bytes is the largest number of bytes that the store may hold; 0: 1 GiB.
	Bytes int
	// Linger is the time that a client has, after the server has announced the end of its
	// connection, to end it too; 0: one second.
	Linger time.Duration
	// Log takes warnings about clients that were disconnected; nil: none.
	Log *slog.Logger
}

// Server is a store and the connections to it. It is made by [Serve], and lives until Close.
type Server struct {
	options Options
	lis     net.Listener
	closing chan struct{}
	wg      sync.WaitGroup

	mu     sync.Mutex
	store  *store
	conns  map[client]*conn
	last   client
	closed bool
}

// Serve returns a server with a new, empty store, to which clients may connect already. It owns the
// listener.
func Serve(lis net.Listener, o Options) *Server {
	o.Connections = cmp.Or(o.Connections, 4096)
	o.Bytes = cmp.Or(o.Bytes, 1<<30)
	o.Linger = cmp.Or(o.Linger, time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{options: o, lis: lis, closing: make(chan struct{}), store: newStore(o.Bytes),
		conns: make(map[client]*conn)}
	s.wg.Go(s.accept)
	return s
}

// Addr returns where the server listens.
func (s *Server) Addr() net.Addr { return s.lis.Addr() }

// Close ends the server. All clients see the end of their connections at once, also those that
// wait. It returns when they have ended them too, at the latest after Options.Linger: a client of
// PyTorch 1.x keeps one open as long as it lives.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
		if l, ok := s.lis.(*net.TCPListener); !ok || l.SetDeadline(time.Now().Add(backlogLimit)) != nil {
			s.lis.Close()
		}
		for _, c := range s.conns {
			c.end(s.options.Linger)
		}
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// backlogLimit is the time that connections are accepted that were made before the server was
// closed: the kernel would reset them with the listener, which aborts processes of PyTorch 1.x.
const backlogLimit = 50 * time.Millisecond

func (s *Server) accept() {
	for {
		nc, err := s.lis.Accept()
		if err != nil {
			select {
			case <-s.closing:
				s.lis.Close()
				return
			case <-time.After(50 * time.Millisecond):
				// of file descriptors there may be more soon
				s.options.Log.Warn("Accepting a client of the store failed", "err", err)
				continue
			}
		}
		s.mu.Lock()
		switch full := len(s.conns) >= s.options.Connections; {
		case len(s.conns) >= 2*s.options.Connections:
			nc.Close()
		default:
			s.last++
			id, c := s.last, &conn{Conn: nc}
			c.changed.L = &c.mu
			s.conns[id] = c
			s.wg.Go(c.write)
			s.wg.Go(func() { s.serve(id, c, full) })
			if s.closed {
				c.end(s.options.Linger)
			}
		}
		s.mu.Unlock()
	}
}

var errFull = errors.New("too many connections")

// serve answers a client until it ends, or what it sends is refused, or the server is closed.
func (s *Server) serve(id client, c *conn, full bool) {
	err := errFull
	if !full {
		err = s.read(id, c)
	}
	if err != io.EOF && !errors.Is(err, net.ErrClosed) {
		s.options.Log.Warn("Disconnected a client of the store", "client", c.RemoteAddr().String(), "err", err)
	}
	s.mu.Lock()
	s.store.stopWaiting(id)
	s.mu.Unlock()
	c.end(s.options.Linger)
	io.Copy(io.Discard, c.Conn)
	c.flush()
	c.Close()
	s.mu.Lock()
	delete(s.conns, id)
	s.mu.Unlock()
}

// read applies the client's requests, each when all before it are answered, so that little is ever
// kept for a client that does not read.
func (s *Server) read(id client, c *conn) error {
	d := newDecoder(c.Conn)
	for c.flush() {
		r, err := d.next()
		if err != nil {
			if c.ended() {
				return net.ErrClosed
			}
			return err
		}
		if err := s.apply(id, r); err != nil {
			return err
		}
	}
	return net.ErrClosed
}

func (s *Server) apply(id client, r request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	answers, err := s.store.apply(id, r)
	for _, a := range answers {
		s.conns[a.to].put(a.bytes)
	}
	return err
}

// conn is a connection, and what is still to be written on it.
type conn struct {
	net.Conn
	mu      sync.Mutex
	changed sync.Cond
	out     []byte
	writing bool
	over    bool // nothing more is accepted
}

// put queues bytes to be written. It does not block.
func (c *conn) put(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.out = append(c.out, b...)
		c.changed.Broadcast()
	}
}

// flush waits until all is written, and reports whether more may be.
func (c *conn) flush() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.writing || len(c.out) > 0 {
		c.changed.Wait()
	}
	return !c.over
}

func (c *conn) ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// end announces the end to the client when all is written, and gives reading and writing that much
// time from the first call on.
func (c *conn) end(linger time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.over = true
		c.SetDeadline(time.Now().Add(linger))
		c.changed.Broadcast()
	}
}

// write writes what is put, and shuts down this direction at the end.
func (c *conn) write() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for len(c.out) == 0 && !c.over {
			c.changed.Wait()
		}
		if len(c.out) == 0 {
			break
		}
		b := c.out
		c.out, c.writing = nil, true
		c.mu.Unlock()
		_, err := c.Write(b)
		c.mu.Lock()
		c.writing = false
		if err != nil {
			c.out, c.over = nil, true
			c.SetReadDeadline(time.Now())
		}
		c.changed.Broadcast()
	}
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
}
