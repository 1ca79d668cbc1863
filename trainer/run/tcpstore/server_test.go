package tcpstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/test/memnet"
)

// memory is a server that is reached without a network.
type memory struct {
	*Server
	t   *testing.T
	lis *memnet.Listener
}

func serve(t *testing.T, o Options) *memory {
	lis := memnet.Listen(16 << 10)
	return &memory{Serve(lis, o), t, lis}
}

func (m *memory) conn() net.Conn {
	m.t.Helper()
	c, err := m.lis.DialContext(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	return c
}

func (m *memory) client() *Client {
	m.t.Helper()
	c, err := NewClient(m.t.Context(), m.conn())
	if err != nil {
		m.t.Fatal(err)
	}
	return c
}

func TestClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := serve(t, Options{})
		defer m.Close()
		a, b, ctx := m.client(), m.client(), t.Context()
		defer a.Close()
		defer b.Close()
		got := make(chan string)
		go func() {
			value, err := b.Get(ctx, "k")
			got <- fmt.Sprint(string(value), err)
		}()
		synctest.Wait()
		if err := a.Set(ctx, "k", []byte("v")); err != nil {
			t.Fatal(err)
		}
		if s := <-got; s != "v<nil>" {
			t.Errorf("get: %s", s)
		}
		check := func(what string, got, want any, err error) {
			if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: %v (%v), want %v", what, got, err, want)
			}
		}
		n, err := a.Add(ctx, "n", 40)
		check("add", n, 40, err)
		n, err = b.Add(ctx, "n", 2)
		check("add", n, 42, err)
		now, err := a.CompareSet(ctx, "k", []byte("v"), []byte("w"))
		check("compare set", string(now), "w", err)
		all, err := a.Check(ctx, "k", "n")
		check("check", all, true, err)
		check("wait", nil, nil, a.Wait(ctx, "k", "n"))
		n, err = b.Keys(ctx)
		check("keys", n, 2, err)
		existed, err := a.Delete(ctx, "k")
		check("delete", existed, true, err)
		existed, err = a.Delete(ctx, "k")
		check("delete", existed, false, err)
		all, err = b.Check(ctx, "k", "n")
		check("check", all, false, err)

		// Clients of 1.x and of 2.x meet in one store, under PyTorch's names.
		c := m.conn()
		defer c.Close()
		c.Write(request{kind: get, keys: []string{"/n"}}.append(nil, old))
		answer := make([]byte, 10)
		if _, err := io.ReadFull(c, answer); err != nil || string(answer[8:]) != "42" {
			t.Errorf("a client of 1.x reads %q (%v), want 42", answer, err)
		}
	})
}

// A wait that is cancelled leaves the client usable, whatever the store answers meanwhile; a call
// that waits for its turn is cancelled, too.
func TestClientCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := serve(t, Options{})
		defer m.Close()
		a, b := m.client(), m.client()
		defer a.Close()
		defer b.Close()
		for i := range 20 {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("too late"))
			key := fmt.Sprint("k", i)
			go func() {
				time.Sleep(time.Minute) // both at the same time
				b.Set(t.Context(), key, nil)
			}()
			other, stop := context.WithTimeout(t.Context(), time.Second)
			go func() {
				defer stop()
				time.Sleep(time.Millisecond)
				if err := a.Set(other, key, nil); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a call during one that waits: %v", err)
				}
			}()
			if err := a.Wait(ctx, key); err != nil && !strings.Contains(err.Error(), "too late") {
				t.Fatal(err)
			}
			cancel()
			if n, err := a.Add(t.Context(), "n", 1); err != nil || n != int64(i+1) {
				t.Fatalf("after a wait: %d (%v)", n, err)
			}
		}
	})
}

func TestClientIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := memnetPair(t)
		go func() {
			io.ReadFull(far, make([]byte, 10))
			far.Write([]byte("HTTP"))
		}()
		if _, err := NewClient(t.Context(), near); err == nil ||
			!strings.Contains(err.Error(), "not a TCPStore of PyTorch 2.x") {
			t.Errorf("of another server: %v", err)
		}
		near, _ = memnetPair(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := NewClient(ctx, near); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("of a silent server: %v", err)
		}
	})
}

func memnetPair(t *testing.T) (near, far net.Conn) {
	lis := memnet.Listen(1 << 10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		far, _ = lis.Accept()
	}()
	near, err := lis.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	<-done
	return near, far
}

// Close frees waiting clients at once. It waits for clients that stay, but not for long.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := serve(t, Options{Linger: 3 * time.Second})
		start := time.Now()
		// as the second connection of a client of 1.x, which says nothing
		stays := m.conn()
		waits := m.client()
		freed := make(chan string)
		go func() { freed <- fmt.Sprint(waits.Wait(t.Context(), "k")) }()
		first := m.conn()
		first.Write(request{kind: wait, keys: []string{"/k"}}.append(nil, old))
		synctest.Wait()
		closed := make(chan time.Duration)
		go func() { m.Close(); closed <- time.Since(start) }()
		if s := <-freed; !strings.Contains(s, "the store has closed the connection") {
			t.Errorf("a client that waits: %s", s)
		}
		for _, c := range []net.Conn{stays, first} {
			if b, err := io.ReadAll(c); len(b) > 0 || err != nil || time.Since(start) > 0 {
				t.Errorf("read %q (%v) after %v, want the end at once", b, err, time.Since(start))
			}
		}
		first.Close()
		if d := <-closed; d != 3*time.Second {
			t.Errorf("closed after %v, want 3s", d)
		}
		m.Close() // again
		if _, err := waits.Add(t.Context(), "k", 1); err == nil {
			t.Error("a client of a closed store continues")
		}
	})
}

// Answers sent before Close arrive before the end.
func TestCloseWritesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := serve(t, Options{})
		c := m.client()
		value := bytes.Repeat([]byte("v"), 100<<10) // more than the connection holds
		if err := c.Set(t.Context(), "k", value); err != nil {
			t.Fatal(err)
		}
		c.conn.Write(request{kind: get, keys: []string{"/k"}}.append(nil, modern))
		synctest.Wait()
		go m.Close()
		synctest.Wait()
		if got, err := c.blob(); err != nil || !bytes.Equal(got, value) {
			t.Errorf("read %d bytes (%v), want %d", len(got), err, len(value))
		}
		if _, err := c.r.ReadByte(); err != io.EOF {
			t.Errorf("after the answer: %v, want the end", err)
		}
		c.Close()
	})
}

// A client that does not read keeps neither the others waiting nor much memory.
func TestSlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := serve(t, Options{Linger: time.Second})
		quick, slow := m.client(), m.conn()
		slow.Write(hello)
		if err := quick.Set(t.Context(), "k", make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		go func() {
			for range 10_000 {
				if _, err := slow.Write(request{kind: get, keys: []string{"/k"}}.append(nil, modern)); err != nil {
					return
				}
			}
		}()
		synctest.Wait()
		if n, err := quick.Add(t.Context(), "n", 1); err != nil || n != 1 {
			t.Errorf("another client: %d, %v", n, err)
		}
		m.mu.Lock()
		for _, c := range m.conns {
			if len(c.out) > 0 {
				t.Errorf("%d bytes wait in addition to those that are being written", len(c.out))
			}
		}
		m.mu.Unlock()
		start := time.Now()
		m.Close()
		if d := time.Since(start); d != time.Second {
			t.Errorf("closed after %v, want 1s", d)
		}
		quick.Close()
		slow.Close()
	})
}

// A client that has disconnected is forgotten, with its wait. One client too many is disconnected,
// and one that breaks the rules; the others stay.
func TestClientsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := serve(t, Options{Connections: 2})
		defer m.Close()
		stays, goes := m.client(), m.conn()
		defer stays.Close()
		goes.Write(request{kind: wait, keys: []string{"/k"}}.append(hello, modern))
		synctest.Wait()
		if _, err := NewClient(t.Context(), m.conn()); err == nil ||
			!strings.Contains(err.Error(), "the store has closed the connection") {
			t.Errorf("one too many: %v", err)
		}
		goes.Close()
		synctest.Wait()
		m.mu.Lock()
		if len(m.conns) != 1 || m.store.held != 0 {
			t.Errorf("%d clients are there, and %d bytes held, want 1 and none", len(m.conns), m.store.held)
		}
		m.mu.Unlock()
		rude := m.conn()
		rude.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		if b, err := io.ReadAll(rude); len(b) > 0 || err != nil {
			t.Errorf("a stranger reads %q (%v), want the end", b, err)
		}
		rude.Close()
		if n, err := stays.Add(t.Context(), "n", 1); err != nil || n != 1 {
			t.Errorf("the first: %d, %v", n, err)
		}
		if err := stays.Set(t.Context(), strings.Repeat("k", maxKey), nil); err != nil {
			t.Error(err)
		}
		if _, err := stays.Add(t.Context(), "n", 1); err == nil {
			t.Error("a key of more than 8 KiB is accepted")
		}
	})
}

// serveLoopback returns a server on a free port of the loopback interface.
func serveLoopback(t *testing.T, o Options) *Server {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return Serve(lis, o)
}

// The kernel resets a connection that is closed with unread bytes: the server never does that.
func TestNoReset(t *testing.T) {
	s := serveLoopback(t, Options{Linger: time.Minute})
	long := bytes.Repeat([]byte{255}, 1<<20)
	for _, test := range []struct {
		name string
		ends func(net.Conn)
	}{
		{"unknown type", func(c net.Conn) { c.Write(long) }},
		{"refused value", func(c net.Conn) {
			c.Write(append([]byte("\x00\x01\x00\x00\x00\x00\x00\x00\x00k"), long...))
		}},
		{"closed", func(c net.Conn) {
			c.Write(request{kind: ping}.append(hello, modern))
			io.ReadFull(c, make([]byte, 4))
			go s.Close()
			io.ReadFull(c, make([]byte, 1)) // the end
			c.Write(long)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := net.Dial("tcp", s.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			test.ends(c)
			c.(*net.TCPConn).CloseWrite() // all of it has been sent
			if b, err := io.ReadAll(c); err != nil {
				t.Errorf("read %d bytes, then %v, want the end", len(b), err)
			}
			c.Close()
		})
	}
	s.Close()
}
