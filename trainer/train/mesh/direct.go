package mesh

import (
	"net"
	"syscall"
)

// direct writes to a connection what it takes at once.
type direct struct {
	raw     syscall.RawConn
	attempt func(fd uintptr) bool
	b       []byte
	n       int
}

// newDirect returns nil if the connection is no socket.
func newDirect(conn net.Conn) *direct {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	d := &direct{raw: raw}
	d.attempt = func(fd uintptr) bool {
		d.n, _ = syscall.Write(int(fd), d.b)
		return true
	}
	return d
}

// write returns how many bytes it wrote. An error of the connection is left for the next write to
// find.
func (d *direct) write(b []byte) int {
	d.b, d.n = b, 0
	if d.raw.Write(d.attempt) != nil {
		return 0
	}
	d.b = nil
	return max(d.n, 0)
}
