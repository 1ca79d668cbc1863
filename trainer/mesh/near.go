package mesh

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/elasticdl/elasticdl/trainer/ring"
)

// Two processes on one machine need no bytes between them: the sender says where a message of [ring.Whole] bytes or
// more lies, and the receiver copies it from there, once, if the system lets it read the other's memory. On each
// connection each end says first, in its own order of bytes,
//
//	0 process id u64   8 address of a guard u64   16 what is there u64
//
// which is all zero if it sees two addresses and so two machines, and then in one byte whether it could read the other's
// guard. The ends need not see the same: there may be a translation of addresses between them.
//
// Who leaves a world goes on with its memory, while a peer may still copy from it. So the guard is cleared first,
// and the receiver looks at it after each copy: what was copied while it was whole is what was sent.
const cardSize = 24

// guard is a number that nobody can know, as long as what this process sent in one world is as it was sent.
type guard struct{ number atomic.Uint64 }

func newGuard() *guard {
	g := new(guard)
	g.number.Store(rand.Uint64() | 1)
	return g
}

// clear says that what was sent may change from now on.
func (g *guard) clear() { g.number.Store(0) }

func (g *guard) card() []byte {
	ne := binary.NativeEndian
	b := ne.AppendUint64(nil, uint64(os.Getpid()))
	b = ne.AppendUint64(b, uint64(uintptr(unsafe.Pointer(g))))
	return ne.AppendUint64(b, g.number.Load())
}

// memory is the memory of another process.
type memory struct {
	pid    int
	guard  uintptr
	number uint64
}

func parseCard(b []byte) memory {
	ne := binary.NativeEndian
	return memory{int(ne.Uint64(b)), uintptr(ne.Uint64(b[8:])), ne.Uint64(b[16:])}
}

// read fills b with what the other sent from an address.
func (m memory) read(b []byte, address uintptr) error {
	var number [8]byte
	if err := copyMemory(m.pid, b, address, number[:], m.guard); err != nil {
		return fmt.Errorf("copy from process %d: %w", m.pid, err)
	}
	if binary.NativeEndian.Uint64(number[:]) != m.number {
		return fmt.Errorf("copy from process %d: %w", m.pid, net.ErrClosed)
	}
	return nil
}

// near is what one end of a connection within a machine may do.
type near struct {
	reads  bool   // this end copies from
	memory memory // of the other
	read   bool   // the other copies from this one
}

// sameMachine reports whether both ends of a connection seem to be on one machine.
func sameMachine(conn net.Conn) bool {
	local, ok := conn.LocalAddr().(*net.TCPAddr)
	remote, ok2 := conn.RemoteAddr().(*net.TCPAddr)
	return ok && ok2 && canCopy && local.IP.Equal(remote.IP)
}

// approach finds out which peers are near, and waits until all know. The rank is of the peer that the error is about.
func approach(ctx, node context.Context, g *guard, conns map[int]net.Conn) (nears map[int]near, rank int, err error) {
	end := func() {
		for _, c := range conns {
			c.Close()
		}
	}
	defer context.AfterFunc(ctx, end)()
	defer context.AfterFunc(node, end)()
	nears = make(map[int]near)
	each := func(do func(conn net.Conn, n *near) error) bool {
		for r, conn := range conns {
			n := nears[r]
			if err = do(conn, &n); err != nil {
				rank = r
				return false
			}
			nears[r] = n
		}
		return true
	}
	// All write before anybody waits: it fits into the connections.
	ok := each(func(conn net.Conn, _ *near) error {
		card := make([]byte, cardSize)
		if sameMachine(conn) {
			card = g.card()
		}
		_, err := conn.Write(card)
		return err
	}) && each(func(conn net.Conn, n *near) error {
		var b [cardSize]byte
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			return err
		}
		n.memory = parseCard(b[:])
		n.reads = sameMachine(conn) && n.memory.pid > 0 && n.memory.read(nil, 0) == nil
		verdict := []byte{0}
		if n.reads {
			verdict[0] = 1
		}
		_, err := conn.Write(verdict)
		return err
	}) && each(func(conn net.Conn, n *near) error {
		var verdict [1]byte
		_, err := io.ReadFull(conn, verdict[:])
		n.read = verdict[0] == 1
		return err
	})
	if !ok {
		return nil, rank, err
	}
	return nears, -1, nil
}

// place is a message that says where b lies. Its sender keeps b: an address alone does not.
func place(b []byte) []byte {
	return binary.NativeEndian.AppendUint64(nil, uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))))
}

// nearby reports whether b is copied and not sent.
func nearby(b []byte) bool { return len(b) >= ring.Whole }
