package credential

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Prompt is the largest number of bytes that [Conn.WriteNow] writes. A socket to which poll(2) says
// that data can be written takes more.
const Prompt = 1 << 10

// room finds out whether a socket can be written to without waiting.
type room struct {
	raw   syscall.RawConn
	check func(fd uintptr)
	poll  [1]unix.PollFd
	found bool
}

// newRoom returns nil if the connection is no socket.
func newRoom(conn net.Conn) *room {
	raw := Socket(conn)
	if raw == nil {
		return nil
	}
	r := &room{raw: raw}
	r.check = func(fd uintptr) {
		r.poll[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLOUT}
		n, err := unix.Poll(r.poll[:], 0)
		r.found = err == nil && n == 1 && r.poll[0].Revents == unix.POLLOUT
	}
	return r
}

// any reports whether there is room. A nil room has none.
func (r *room) any() bool {
	return r != nil && r.raw.Control(r.check) == nil && r.found
}

// WriteNow writes b if b has at most [Prompt] bytes and the connection takes them without waiting.
// It reports whether b was written; if not, Write is to write b. Neither may be called from several
// goroutines at once.
func (c *Conn) WriteNow(b []byte) bool {
	if len(b) > Prompt || !c.room.any() {
		return false
	}
	_, err := c.Write(b)
	// crypto/tls fails every later write, too
	return err == nil
}
