package mesh

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"unsafe"
	"weak"

	"github.com/elasticdl/elasticdl/trainer/train/ring"
)

// give returns a guard of this process, and its memory as a reader with that nonce sees it.
func give(n nonce) (*guard, memory) {
	g := newGuard(n)
	return g, memory{g.card(), n}
}

// canRead skips a test where one process cannot copy from another.
func canRead(t *testing.T) {
	g, m := give(newNonce())
	if err := m.read(nil, 0); err != nil {
		t.Skip("a process may not copy from itself here: ", err)
	}
	runtime.KeepAlive(g)
}

// The memory of a process can be copied until it clears its guard.
func TestCopyFromMemory(t *testing.T) {
	canRead(t)
	g, m := give(newNonce())
	sent := bytes.Repeat([]byte("sent"), 100_000)
	got := make([]byte, len(sent))
	from := uintptr(unsafe.Pointer(unsafe.SliceData(sent)))
	if err := m.read(got, from); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, sent) {
		t.Error("what was copied is not what was there")
	}
	if err := m.read(got, 1); err == nil {
		t.Error("copied from where nothing is")
	}
	g.clear()
	if err := m.read(got, from); err == nil {
		t.Error("copied although the guard was cleared")
	}
}

// Memory cannot be copied with a card of another process, address or nonce.
func TestCardOfAnother(t *testing.T) {
	g, m := give(newNonce())
	for name, m := range map[string]memory{
		"no process":    {card{1<<31 - 2, m.guard}, m.nonce},
		"another nonce": {m.card, newNonce()},
		"no address":    {card{os.Getpid(), 0}, m.nonce},
	} {
		if err := m.read(nil, 0); err == nil {
			t.Error(name, "was read")
		}
	}
	runtime.KeepAlive(g)
}

// Memory cannot be copied with a valid card that was made for another connection: its process,
// address and nonce are right, but the other end of this connection has not made it.
func TestRightCardOfAnother(t *testing.T) {
	canRead(t)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	there, err := net.Dial("tcp", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	here, err := lis.Accept()
	if err != nil {
		t.Fatal(err)
	}
	known := newNonce()
	g, _ := give(known)
	said := make(chan []byte, 1)
	go func() {
		there.Write(known[:])
		there.Write(g.card().append(nil))
		b := make([]byte, meetingSize)
		io.ReadFull(there, b)
		there.Write([]byte{0})
		said <- b
	}()
	accesses, _, err := negotiateAccess(t.Context(), t.Context(), map[int]net.Conn{0: here})
	if err != nil {
		t.Fatal(err)
	}
	if accesses[0].reads {
		t.Error("it reads the memory of who did not give it")
	}
	if b := <-said; b[meetingSize-1] != 0 {
		t.Error("it says that it reads it")
	}
	runtime.KeepAlive(g)
}

func FuzzCard(f *testing.F) {
	g, _ := give(newNonce())
	f.Add(g.card().append(nil))
	f.Add(make([]byte, cardSize))
	f.Add(bytes.Repeat([]byte{255}, cardSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < cardSize {
			return
		}
		b = b[:cardSize]
		c, err := parseCard(b)
		if err != nil {
			return
		}
		if !bytes.Equal(c.append(nil), b) {
			t.Errorf("% x is read as %+v", b, c)
		}
		if canCopy && (memory{c, newNonce()}).read(nil, 0) == nil {
			t.Errorf("%+v gives what it cannot know", c)
		}
	})
}

// far is a connection without the addresses of its ends, so that its link does not copy from
// memory.
type far struct{ net.Conn }

func (far) LocalAddr() net.Addr { return &net.UnixAddr{} }

func (f far) SyscallConn() (syscall.RawConn, error) { return f.Conn.(*net.TCPConn).SyscallConn() }

// Large messages arrive whole over links that copy from memory and over those that do not. The
// sender may change them after a Flush.
func TestLargeMessages(t *testing.T) {
	var ends atomic.Int32
	for name, wrap := range map[string]func(net.Conn) net.Conn{
		"near": func(c net.Conn) net.Conn { return c },
		"far":  func(c net.Conn) net.Conn { return far{c} },
		"far, as one end sees it": func(c net.Conn) net.Conn {
			if ends.Add(1)%2 == 0 {
				return c
			}
			return far{c}
		},
	} {
		t.Run(name, func(t *testing.T) {
			meshes := connectAll(t, 2, wrap)
			if m := meshes[0].links[1].access; name != "near" && (m.read || m.reads) {
				t.Fatal("a link whose ends are unknown copies from memory")
			}
			const rounds = 20
			done := make(chan error, 1)
			go func() { done <- sendRounds(meshes[0], rounds) }()
			b := make([]byte, ring.Whole+1)
			for i := range rounds {
				if err := meshes[1].Recv(0, b); err != nil {
					t.Fatal(err)
				}
				if want := bytes.Repeat([]byte{byte(i)}, len(b)); !bytes.Equal(b, want) {
					t.Fatalf("round %d: received %d… %d", i, b[0], b[len(b)-1])
				}
				if err := meshes[1].Flush(); err != nil {
					t.Fatal(err)
				}
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// sendRounds sends the same array several times, and changes it after each Flush.
func sendRounds(m *Mesh, rounds int) error {
	b := make([]byte, ring.Whole+1)
	for i := range rounds {
		for j := range b {
			b[j] = byte(i)
		}
		if err := m.Send(1, b); err != nil {
			return fmt.Errorf("send: %w", err)
		}
		if err := m.Flush(); err != nil {
			return fmt.Errorf("flush: %w", err)
		}
	}
	return nil
}

// No memory is copied from a rank that has broken its mesh, although it has sent the address.
func TestBreakBeforeCopy(t *testing.T) {
	canRead(t)
	meshes := connectAll(t, 2, func(c net.Conn) net.Conn { return c })
	b := make([]byte, ring.Whole)
	if err := meshes[0].Send(1, b); err != nil {
		t.Fatal(err)
	}
	meshes[0].Break(net.ErrClosed)
	clear(b)
	got := make([]byte, len(b))
	err := meshes[1].Recv(0, got)
	if err == nil {
		t.Error("received what its sender may have changed")
	}
}

// Sent data is kept in memory until the receiver has copied it, even if the sender has no reference
// to it. Then it can be collected.
func TestSentIsKept(t *testing.T) {
	meshes := connectAll(t, 2, func(c net.Conn) net.Conn { return c })
	if !meshes[0].links[1].access.read {
		t.Skip("a process may not copy from itself here")
	}
	send := func() weak.Pointer[byte] {
		b := bytes.Repeat([]byte("sent"), ring.Whole/4)
		if err := meshes[0].Send(1, b); err != nil {
			t.Error(err)
		}
		return weak.Make(&b[0])
	}
	sent := send()
	runtime.GC()
	if sent.Value() == nil {
		t.Error("what was sent was collected before the other has it")
	}
	got := make([]byte, ring.Whole)
	done := make(chan error, 1)
	go func() { done <- cmp.Or(meshes[1].Recv(0, got), meshes[1].Flush()) }()
	if err := cmp.Or(meshes[0].Flush(), <-done); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, bytes.Repeat([]byte("sent"), ring.Whole/4)) {
		t.Error("received something else")
	}
	runtime.GC()
	if sent.Value() != nil {
		t.Error("what was sent is kept after a Flush")
	}
}

// A link that breaks while its ends find out whether they can copy from memory breaks the world at
// both ends.
func TestBreakWhileApproaching(t *testing.T) {
	for bytes := range 2 * meetingSize {
		synctest.Test(t, func(t *testing.T) {
			w := newPlainTown(t, 2)
			defer w.close()
			w.wrap = func(_ int, _ string, c net.Conn) net.Conn {
				return &cut{Conn: c, left: helloSize + welcomeSize + bytes}
			}
			for r := range 2 {
				go func() {
					m, err := w.nodes[r].Connect(t.Context(), world(7, r, 0, 1))
					if m != nil { // the link broke after this end was done
						defer m.Close()
						err = rounds(m, 1)
					}
					if broken, ok := errors.AsType[*BrokenError](err); !ok || broken.Rank != 1-r {
						t.Errorf("cut after %d bytes, rank %d: %v", bytes, r, err)
					}
				}()
			}
			synctest.Wait()
		})
	}
}
