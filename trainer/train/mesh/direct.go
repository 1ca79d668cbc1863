package mesh

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/elasticdl/elasticdl/trainer/train/ring"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
)

const (
	// wakeMost limits the bytes for which [socket.readFull] lets the kernel wait. It is the size of
	// a chunk of an all-reduce. The kernel extends the buffer of the connection for them.
	wakeMost = 512 << 10
	// unread is the number of bytes for which the kernel reports a link that nobody reads: those
	// that a peer sends ahead. If it reported the packets of other links while one is awaited, or
	// while the rank computes, then the Go runtime would wake a thread for each.
	unread = ring.Ahead * wakeMost
)

// direct writes on the calling goroutine, without waiting. A writer on a goroutine of its own would
// first have to get a processor, which other processes may have.
type direct interface {
	// write returns how many bytes it wrote. An error of the connection is left for the next write
	// to find.
	write(b []byte) int
}

// newDirect returns nil if there is no such way; s is the connection's socket.
func newDirect(conn net.Conn, s *socket) direct {
	if c, ok := conn.(*credential.Conn); ok {
		return sealed{c}
	}
	if s != nil {
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

// socket writes to a connection what it takes at once, and reads long messages from it.
type socket struct {
	raw     syscall.RawConn
	attempt func(fd uintptr) bool
	b       []byte
	n       int

	mu sync.Mutex
	// number of bytes for which the kernel wakes a reader
	awaited int
}

// newSocket returns nil if the connection is no socket, or encrypted.
func newSocket(conn net.Conn) *socket {
	raw := credential.Socket(conn)
	if raw == nil {
		return nil
	}
	s := &socket{raw: raw, awaited: 1}
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

// readFull fills b, and adds to n the bytes that it reads. The kernel wakes it for all bytes of b,
// or for wakeMost, and not for each packet. Then the kernel reports no fewer than unread bytes,
// until a call of wakeAt. Four processes on two cores sum a third faster with both.
func (s *socket) readFull(b []byte, n *atomic.Int64) error {
	var err error
	read := 0
	stuck := s.raw.Read(func(fd uintptr) bool {
		for read < len(b) {
			var k int
			switch k, err = syscall.Read(int(fd), b[read:]); {
			case k > 0:
				read += k
				n.Add(int64(k))
			case err == syscall.EINTR:
			case err == syscall.EAGAIN:
				s.wakeAt(min(len(b)-read, wakeMost))
				return false
			case err != nil:
				err = os.NewSyscallError("read", err)
				return true
			default:
				err = io.EOF
				return true
			}
		}
		err = nil
		return true
	})
	s.wakeAt(unread)
	switch {
	case stuck != nil:
		return stuck
	case err == io.EOF && read > 0:
		return io.ErrUnexpectedEOF
	}
	return err
}

// wakeAt calls [credential.WakeAt] if the number changes. A nil socket does nothing.
func (s *socket) wakeAt(bytes int) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.awaited == bytes {
		return
	}
	s.awaited = bytes
	credential.WakeAt(s.raw, bytes)
}
