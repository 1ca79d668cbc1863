package mesh

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/train/ring"
)

// tcpLink returns a mesh with one link over TCP, and the peer's end of it.
func tcpLink(t *testing.T) (*Mesh, net.Conn) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	conn, err := net.Dial("tcp", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := lis.Accept()
	if err != nil {
		t.Fatal(err)
	}
	m := newMesh(Group{Generation: 1, Peers: make([]Peer, 2)}, map[int]net.Conn{1: conn}, nil, new(Traffic))
	t.Cleanup(func() {
		m.Close()
		peer.Close()
	})
	return m, peer
}

// A few bytes of a long message, which the kernel keeps until there are more, are progress.
func TestSlowMessage(t *testing.T) {
	m, peer := tcpLink(t)
	message := make([]byte, 4*ring.Whole)
	m.watchSilence(400*time.Millisecond, func(context.Context, int) (answer, error) {
		return answer{sent: int64(len(message))}, nil
	})
	go func() {
		sent := 0
		slowly := time.NewTicker(40 * time.Millisecond)
		defer slowly.Stop()
		for range 40 {
			n, _ := peer.Write(message[:100])
			sent += n
			<-slowly.C
		}
		peer.Write(message[sent:])
	}()
	if err := m.Recv(1, make([]byte, len(message))); err != nil {
		t.Error(err)
	}
}

// A long message that ends early is an error at once, also while bytes of it are awaited. So is a
// mesh that breaks.
func TestLongMessageEnds(t *testing.T) {
	for name, test := range map[string]struct {
		sent int
		end  func(*Mesh, net.Conn)
		want error
	}{
		"before it":    {0, func(_ *Mesh, peer net.Conn) { peer.Close() }, io.EOF},
		"within it":    {1000, func(_ *Mesh, peer net.Conn) { peer.Close() }, io.ErrUnexpectedEOF},
		"by a failure": {1000, func(m *Mesh, _ net.Conn) { m.Break(errors.ErrUnsupported) }, errors.ErrUnsupported},
		"not at all":   {ring.Whole, func(*Mesh, net.Conn) {}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m, peer := tcpLink(t)
			if _, err := peer.Write(make([]byte, test.sent)); err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(20*time.Millisecond, func() { test.end(m, peer) })
			if err := m.Recv(1, make([]byte, ring.Whole)); !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
		})
	}
}

// A byte after a long message is reported at once, to Recv and to Arrived.
func TestByteAfterLongMessage(t *testing.T) {
	m, peer := tcpLink(t)
	defer time.AfterFunc(5*time.Second, func() { m.Break(errors.ErrUnsupported) }).Stop()
	long, short := make([]byte, ring.Whole), make([]byte, 1)
	send := func(b []byte) {
		time.AfterFunc(20*time.Millisecond, func() { peer.Write(b) })
	}
	for _, b := range [][]byte{long, short, long} {
		send(make([]byte, len(b)))
		if err := m.Recv(1, b); err != nil {
			t.Fatalf("%d bytes: %v", len(b), err)
		}
	}
	arrived := m.Arrived()
	send(make([]byte, 1))
	<-arrived
	if err := m.Recv(1, short); err != nil {
		t.Error(err)
	}
}
