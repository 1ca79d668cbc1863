package ps

import (
	"cmp"
	"fmt"
	"net"
	"syscall"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
)

// direct sends values to an unencrypted socket from where they are: the kernel copies them, and
// nobody else. Their lock is held while it does, and never while the socket has no room.
type direct struct {
	raw syscall.RawConn
	// of the system
	write func(fd int, b []byte) (int, error)
	// the element of which the socket has taken some bytes, and those that it has not taken
	split [4]byte
	rest  []byte
}

// newDirect returns nil if the connection is no socket, or values are sent in another order of
// bytes than that of the memory.
func newDirect(conn net.Conn) *direct {
	raw := credential.Socket(conn)
	if raw == nil || !param.LittleEndian {
		return nil
	}
	return &direct{raw: raw, write: syscall.Write}
}

// send sends the elements from a to b, which are in one chunk, of what read of the store copies. It
// reports false if read would.
func (d *direct) send(s *store, a, b int, snapshot int64, begun int) (there bool, err error) {
	there = true
	ended := d.raw.Write(func(fd uintptr) (done bool) {
		for there && err == nil && (len(d.rest) > 0 || a < b) {
			if len(d.rest) > 0 {
				var n int
				n, err = d.write(int(fd), d.rest)
				d.rest = d.rest[max(n, 0):]
			} else {
				there = s.look(a, b, snapshot, begun, func(x []float32) {
					var n int
					n, err = d.write(int(fd), param.Bytes(x))
					a += d.took(x, max(n, 0))
				})
			}
			switch err {
			case syscall.EAGAIN:
				err = nil
				return false
			case syscall.EINTR:
				err = nil
			}
		}
		return true
	})
	if err = cmp.Or(err, ended); err != nil {
		err = fmt.Errorf("send values: %w", err)
	}
	return there, err
}

// took returns the number of elements of x that begin in its first n bytes. If the last of them is
// sent in part, the rest of it is kept: an update may change it before it is sent.
func (d *direct) took(x []float32, n int) int {
	if part := n % 4; part > 0 {
		copy(d.split[:], param.Bytes(x)[n-part:])
		d.rest = d.split[part:]
	}
	return (n + 3) / 4
}
