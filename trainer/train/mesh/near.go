package mesh

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/elasticdl/elasticdl/trainer/train/ring"
)

// Two processes on one machine need no bytes between them: the sender says where a message of
// [ring.Whole] bytes or more lies, and the receiver copies it from there, once, if the system lets
// it read the other's memory. On each connection each end says first, one after the other and each
// time before it listens,
//
//	nonce    16 bytes that nobody can know before
//	card     process id u64, address of a guard u64, in its own order of bytes
//	verdict  1 byte: 1 if it could read its nonce in the other's guard
//
// A guard is memory that its process gives away: it holds the nonce of the one reader that may
// copy. So nothing is copied from a process that did not take part: who names the process, the
// address and even the content of somebody else's memory cannot have put a fresh nonce there. Nonce
// and card are all zero from an end that sees two addresses and so two machines. The ends need not
// see the same: there may be a translation of addresses between them.
//
// Who leaves a world continues with its memory, while a peer may still copy from it. So the guard
// is cleared first, and the receiver looks at it after each copy: a copy made while it was whole
// equals the sent data.
const (
	nonceSize   = 16
	cardSize    = 16
	meetingSize = nonceSize + cardSize + 1 // what each end says in all
)

type nonce [nonceSize]byte

func newNonce() (n nonce) {
	rand.Read(n[:]) // never fails
	return n
}

// guard shows the nonce of a reader as long as what was sent to it is as it was sent.
type guard struct{ shown [2]atomic.Uint64 }

func newGuard(reader nonce) *guard {
	g := new(guard)
	for i := range g.shown {
		g.shown[i].Store(binary.NativeEndian.Uint64(reader[8*i:]))
	}
	return g
}

// clear says that what was sent may change from now on. A nil guard shows nothing.
func (g *guard) clear() {
	if g != nil {
		g.shown[0].Store(0)
		g.shown[1].Store(0)
	}
}

// card describes a guard to the peer: where it is.
type card struct {
	pid   int     // from 1; 0: nowhere
	guard uintptr // its address
}

func (g *guard) card() card { return card{os.Getpid(), uintptr(unsafe.Pointer(g))} }

func (c card) append(b []byte) []byte {
	b = binary.NativeEndian.AppendUint64(b, uint64(c.pid))
	return binary.NativeEndian.AppendUint64(b, uint64(c.guard))
}

// parseCard reads a card from its cardSize bytes.
func parseCard(b []byte) (card, error) {
	pid, guard := binary.NativeEndian.Uint64(b), binary.NativeEndian.Uint64(b[8:])
	if pid > math.MaxInt32 || pid == 0 && guard != 0 {
		return card{}, fmt.Errorf("parse card: impossible process %d at %#x", pid, guard)
	}
	return card{int(pid), uintptr(guard)}, nil
}

// memory reads the memory of another process. The nonce in that process's guard proves that it is
// the peer.
type memory struct {
	card
	nonce nonce
}

// read fills b with the data at an address of the other process, from which the peer sends.
func (m memory) read(b []byte, address uintptr) error {
	var shown nonce
	if err := copyMemory(m.pid, b, address, shown[:], m.guard); err != nil {
		return fmt.Errorf("copy from process %d: %w", m.pid, err)
	}
	if shown != m.nonce {
		return fmt.Errorf("copy from process %d: %w", m.pid, net.ErrClosed)
	}
	return nil
}

// memoryAccess holds the permissions of the two ends of a connection within a machine to copy from
// each other's memory. The zero value is of a connection between two machines.
type memoryAccess struct {
	reads  bool   // this end copies from the peer
	memory memory // of the peer
	read   bool   // the peer copies from this end
	guard  *guard // checked after each copy; nil: none
}

// sameMachine reports whether both ends of a connection seem to be on one machine.
func sameMachine(conn net.Conn) bool {
	local, ok := conn.LocalAddr().(*net.TCPAddr)
	remote, ok2 := conn.RemoteAddr().(*net.TCPAddr)
	return ok && ok2 && canCopy && local.IP.Equal(remote.IP)
}

// negotiateAccess finds out which peers can copy from each other's memory, and waits until all of
// them know. The rank is of the peer that the error is about.
func negotiateAccess(ctx, node context.Context, conns map[int]net.Conn) (accesses map[int]memoryAccess, rank int,
	err error) {
	end := func() {
		for _, c := range conns {
			c.Close()
		}
	}
	defer context.AfterFunc(ctx, end)()
	defer context.AfterFunc(node, end)()
	accesses = make(map[int]memoryAccess)
	// All write before anybody waits: it fits into the connections.
	for _, step := range []func(net.Conn, *memoryAccess) error{sayNonce, sayCard, sayVerdict, hearVerdict} {
		for r, conn := range conns {
			n := accesses[r]
			if err := step(conn, &n); err != nil {
				return nil, r, err
			}
			accesses[r] = n
		}
	}
	return accesses, -1, nil
}

func sayNonce(conn net.Conn, n *memoryAccess) error {
	if sameMachine(conn) {
		n.memory.nonce = newNonce()
	}
	_, err := conn.Write(n.memory.nonce[:])
	return err
}

func sayCard(conn net.Conn, n *memoryAccess) error {
	var reader nonce
	if _, err := io.ReadFull(conn, reader[:]); err != nil {
		return err
	}
	var c card
	if reader != (nonce{}) && sameMachine(conn) {
		n.guard = newGuard(reader)
		c = n.guard.card()
	}
	_, err := conn.Write(c.append(nil))
	return err
}

func sayVerdict(conn net.Conn, n *memoryAccess) error {
	var b [cardSize]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return err
	}
	var err error
	if n.memory.card, err = parseCard(b[:]); err != nil {
		return err
	}
	n.reads = sameMachine(conn) && n.memory.pid > 0 && n.memory.read(nil, 0) == nil
	verdict := []byte{0}
	if n.reads {
		verdict[0] = 1
	}
	_, err = conn.Write(verdict)
	return err
}

func hearVerdict(conn net.Conn, n *memoryAccess) error {
	var verdict [1]byte
	_, err := io.ReadFull(conn, verdict[:])
	n.read = verdict[0] == 1
	return err
}

// addressOf is a message that says where b lies. Its sender keeps b: an address alone does not.
func addressOf(b []byte) []byte {
	return binary.NativeEndian.AppendUint64(nil, uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))))
}

// long reports whether b is a message that is copied from memory, or else read by readFull.
func long(b []byte) bool { return len(b) >= ring.Whole }
