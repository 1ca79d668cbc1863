package credential

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
)

// watched counts what a connection writes, and fails from a write on.
type watched struct {
	net.Conn
	writes, bytes, longest atomic.Int64
	failing                atomic.Bool
}

func (w *watched) Write(b []byte) (int, error) {
	if w.failing.Load() {
		return 0, os.ErrDeadlineExceeded
	}
	w.writes.Add(1)
	w.bytes.Add(int64(len(b)))
	w.longest.Store(max(w.longest.Load(), int64(len(b))))
	return w.Conn.Write(b)
}

// watch returns a secured connection whose client's writes are watched.
func watch(t *testing.T, protocol Protocol) (client, accepted *Conn, w *watched) {
	t.Helper()
	a := authority(t, "uid")
	to, from := credential(t, a, server, time.Hour), credential(t, a, worker, time.Hour)
	dialled, raw := wire(t)
	w = &watched{Conn: dialled}
	got := make(chan error, 1)
	go func() {
		var err error
		accepted, err = to.Server(t.Context(), raw, false, protocol)
		got <- err
	}()
	client, err := from.Client(t.Context(), w, protocol, identity.Is(server.ID))
	if err := errors.Join(err, <-got); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		accepted.Close()
	})
	return client, accepted, w
}

// Data written in slices of any lengths is read in any others.
func TestRecordsKeepTheirOrder(t *testing.T) {
	for _, protocol := range []Protocol{GRPC, Push, Mesh, Mesh.Plain()} {
		client, accepted, _ := watch(t, protocol)
		r := rand.New(rand.NewPCG(1, 2))
		sent := make([]byte, 5<<20)
		for i := range sent {
			sent[i] = byte(r.Uint32())
		}
		go func() {
			defer client.Close()
			for b := sent; len(b) > 0; {
				first, second := b[:min(len(b), r.IntN(3*together))], []byte(nil)
				if b = b[len(first):]; r.IntN(2) == 0 {
					second = b[:min(len(b), r.IntN(2*record))]
					b = b[len(second):]
				}
				if n, err := client.WriteAll(first, second); err != nil || n != int64(len(first)+len(second)) {
					t.Errorf("wrote %d of %d: %v", n, len(first)+len(second), err)
					return
				}
				part := b[:min(len(b), r.IntN(2*record))]
				if n, err := client.Write(part); err != nil || n != len(part) {
					t.Errorf("wrote %d of %d: %v", n, len(part), err)
					return
				}
				b = b[len(part):]
			}
		}()
		heard := make([]byte, len(sent))
		for at := 0; at < len(heard); {
			n := min(len(heard)-at, 1+at%(5*record))
			if _, err := io.ReadFull(accepted, heard[at:at+n]); err != nil {
				t.Fatalf("%s, after %d bytes: %v", protocol, at, err)
			}
			at += n
		}
		if !bytes.Equal(heard, sent) {
			t.Errorf("%s: other bytes than were sent", protocol)
		}
	}
}

// The records of a long write go out together, a header with what follows it, and none is kept
// back.
func TestRecordsGoOutTogether(t *testing.T) {
	client, accepted, w := watch(t, Push)
	go io.Copy(io.Discard, accepted)
	for _, c := range []struct {
		all  [][]byte
		want int64
	}{
		{[][]byte{make([]byte, 100)}, 1},
		{[][]byte{make([]byte, 72), make([]byte, 4*record)}, 1},
		{[][]byte{make([]byte, 2*together)}, 2},
		{[][]byte{make([]byte, 1<<20)}, 8},
	} {
		before, moved := w.writes.Load(), w.bytes.Load()
		n, err := client.WriteAll(c.all...)
		if err != nil {
			t.Fatal(err)
		}
		if wrote := w.writes.Load() - before; wrote < c.want || wrote > c.want+1 {
			t.Errorf("%d bytes went out by %d writes, want %d", n, wrote, c.want)
		}
		if moved = w.bytes.Load() - moved; moved < n {
			t.Errorf("%d of %d bytes went out", moved, n)
		}
	}
	if w.longest.Load() > together+2*record {
		t.Errorf("a write of %d bytes", w.longest.Load())
	}
}

// An error of a write that crypto/tls took for good is reported, and no later write is good.
func TestRecordsTellTheirFailure(t *testing.T) {
	client, accepted, w := watch(t, Push)
	go io.Copy(io.Discard, accepted)
	w.failing.Store(true)
	if _, err := client.Write(make([]byte, 2*record)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a write that failed: %v", err)
	}
	w.failing.Store(false)
	for _, n := range []int{1, 2 * record} {
		if _, err := client.Write(make([]byte, n)); err == nil {
			t.Errorf("%d bytes were written after a part was lost", n)
		}
	}
}

// full is a connection on which as much has arrived as is asked for.
type full struct{ net.Conn }

func (full) Read(b []byte) (int, error) { return len(b), nil }

// A connection that carries values reads many records at once as soon as many have arrived. One
// that only has short messages has no buffer for that.
func TestBufferIsForValues(t *testing.T) {
	for _, values := range []bool{true, false} {
		r := records{Conn: full{}, values: values}
		for _, n := range []int{5, 100, record - 1} {
			r.Read(make([]byte, n))
		}
		if r.in != nil {
			t.Errorf("values: %v: a buffer for short messages", values)
		}
		r.Read(make([]byte, record+22))
		r.Read(make([]byte, 5))
		if got := r.in != nil && r.in.Buffered() == ahead-5; got != values {
			t.Errorf("values: %v: many records are read at once: %v", values, got)
		}
	}
}
