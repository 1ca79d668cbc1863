package mesh

import (
	"net"
	"syscall"

	"github.com/elasticdl/elasticdl/trainer/wire/credential"
)

// direct writes on the calling goroutine, without waiting. A writer on a goroutine of its own would
// first have to get a processor, which other processes may have.
type direct interface {
	// write returns how many bytes it wrote. An error of the connection is left for the next write
	// to find.
	write(b []byte) int
}

// newDirect returns nil if there is no such way.
func newDirect(conn net.Conn) direct {
	if c, ok := conn.(*credential.Conn); ok {
		return sealed{c}
	}
	if s := newSocket(conn); s != nil {
		return s
	}
	return nil
}

// sealed writes short messages to an encrypted connection.
type sealed struct{ conn *credential.Conn }

func (s sealed) write(b []byte) int {
	if s.conn.WriteNow(b) {
		return len(b)
	}
	return 0
}

// socket writes to a connection what it takes at once.
type socket struct {
	raw     syscall.RawConn
	attempt func(fd uintptr) bool
	b       []byte
	n       int
}

// newSocket returns nil if the connection is no socket.
func newSocket(conn net.Conn) *socket {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	s := &socket{raw: raw}
	s.attempt = func(fd uintptr) bool {
		s.n, _ = syscall.Write(int(fd), s.b)
		return true
	}
	return s
}

func (s *socket) write(b []byte) int {
	s.b, s.n = b, 0
	if s.raw.Write(s.attempt) != nil {
		return 0
	}
	s.b = nil
	return max(s.n, 0)
}
