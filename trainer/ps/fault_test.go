package ps

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// open is a bare data connection of a worker that has declared itself.
func (f *fleet) open(c *Client) net.Conn {
	f.t.Helper()
	conn, err := f.dial(f.t.Context(), "ps-0")
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := exchange(conn, request{op: opOpen, session: c.servers[0].session.Load()}, nil, nil); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { conn.Close() })
	return conn
}

// ended waits until the server closes conn.
func ended(t *testing.T, conn net.Conn) {
	t.Helper()
	conn.SetDeadline(time.Now().Add(time.Hour))
	if n, err := io.Copy(io.Discard, conn); err != nil || n > 0 {
		t.Fatalf("%d bytes, %v", n, err)
	}
}

func TestRefusedConnections(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 1, ServerConfig{})
		c := f.client(0, dense(50, 0))
		f.init(c, filled(50, 1))
		dial := func() net.Conn {
			conn, err := f.dial(t.Context(), "ps-0")
			if err != nil {
				t.Fatal(err)
			}
			return conn
		}
		// A session that nobody was given.
		conn := dial()
		if _, err := exchange(conn, request{op: opOpen, session: c.servers[0].session.Load() ^ 1}, nil, nil); !errors.Is(err, errNoSession) {
			t.Fatal(err)
		}
		ended(t, conn)
		for name, b := range map[string][]byte{
			"a pull without a session": request{op: opPull}.appendTo(nil),
			"nonsense":                 slices.Concat(requestMagic[:], make([]byte, requestSize)),
		} {
			t.Log(name)
			conn := dial()
			conn.Write(b)
			ended(t, conn)
		}
		// Silence.
		conn = dial()
		start := time.Now()
		conn.Write([]byte("E"))
		ended(t, conn)
		if time.Since(start) > greeting {
			t.Fatal(time.Since(start))
		}
		// A payload that is not the server's range: nothing is read of it.
		conn = f.open(c)
		conn.Write(request{op: opPush, length: 4 << 40}.appendTo(nil))
		ended(t, conn)
		conn = f.open(c)
		conn.Write(request{op: opOpen, session: c.servers[0].session.Load()}.appendTo(nil))
		ended(t, conn)
		got, v := f.pull(c, PullOptions{})
		want(t, got, filled(50, 1))
		if v[0] != 0 {
			t.Fatal(v)
		}
	})
}

func TestCutMidPush(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 1, ServerConfig{})
		const n = 1000
		c := f.client(0, dense(n, 0))
		f.init(c, filled(n, 5))
		for _, length := range []int{0, 1, 4*n - 1} {
			conn := f.open(c)
			conn.Write(request{op: opPush, length: 4 * n, lease: 1, done: 1}.appendTo(nil))
			conn.Write(raw(filled(n, 1))[:length])
			conn.Close()
			got, v := f.pull(c, PullOptions{})
			want(t, got, filled(n, 5))
			if v[0] != 0 {
				t.Fatal(v)
			}
		}
		for range 2 {
			if ok, v := f.push(c, filled(n, 1), Gradient{Versions: Versions{0}, Lease: 1, Done: 1}); !ok || v[0] != 1 {
				t.Fatal(ok, v)
			}
			f.cut()
		}
		got, _ := f.pull(c, PullOptions{})
		want(t, got, filled(n, 4))
	})
}

// A worker that is stopped in the middle of a push keeps the others waiting
// for as long as one chunk may take, not longer.
func TestStalledPusher(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 1, ServerConfig{})
		const n = 1000
		a, b := f.client(0, dense(n, 0)), f.client(1, dense(n, 0))
		f.init(a, filled(n, 5))
		conn := f.open(a)
		conn.Write(request{op: opPush, length: 4 * n, lease: 1, done: 1}.appendTo(nil))
		conn.Write(raw(filled(n, 1))[:n])
		synctest.Wait()
		start := time.Now()
		f.push(b, filled(n, 2), Gradient{Versions: Versions{0}, Lease: 2, Done: 1})
		if took := time.Since(start); took > stall {
			t.Fatal(took)
		}
		got, _ := f.pull(b, PullOptions{})
		want(t, got, filled(n, 3))
		ended(t, conn)
	})
}

// A reader that takes nothing holds up nobody, and is sent away in the end.
func TestSlowReader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 1, ServerConfig{})
		const n = 3 * chunk
		c := f.client(0, dense(n, 0))
		f.init(c, filled(n, 5))
		conn := f.open(c)
		conn.Write(request{op: opPull}.appendTo(nil))
		synctest.Wait()
		start := time.Now()
		f.push(c, filled(n, 1), Gradient{Versions: Versions{0}})
		got, _ := f.pull(c, PullOptions{})
		want(t, got, filled(n, 4))
		if took := time.Since(start); took > 0 {
			t.Fatal(took)
		}
		time.Sleep(drag + time.Second)
		if n, err := io.Copy(io.Discard, conn); err != nil || n >= 4*chunk {
			t.Fatal(n, err)
		}
	})
}

// An update that falls into a pull is told, and Whole pulls again.
func TestTornPull(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 1, ServerConfig{})
		const n = 3 * chunk
		c, other := f.client(0, dense(n, 0)), f.client(1, dense(n, 0))
		f.init(c, filled(n, 5))
		conn := f.open(c)
		conn.Write(request{op: opPull}.appendTo(nil))
		synctest.Wait() // the first chunk is on its way
		f.push(other, filled(n, 1), Gradient{Versions: Versions{0}})
		dst := make([]float32, n)
		a, err := receive(conn, opPull, dst, func() {})
		if err != nil || !a.torn || a.version != 0 || dst[0] != 5 || dst[n-1] != 4 {
			t.Fatal(a, err, dst[0], dst[n-1])
		}
		got, v := f.pull(c, PullOptions{Whole: true})
		want(t, got, filled(n, 4))
		if v[0] != 1 {
			t.Fatal(v)
		}
	})
}

func TestServerStartsAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 2, ServerConfig{GradsToWait: 2})
		layout := dense(64, 0)
		a, b := f.client(0, layout), f.client(1, layout)
		f.init(a, filled(64, 10))
		var v Versions
		for i := range int64(5) {
			f.push(a, filled(64, 1), Gradient{Versions: Versions{i, i}, Lease: 1, Done: i + 1})
			_, v = f.push(b, filled(64, 1), Gradient{Versions: Versions{i, i}, Lease: 2, Done: i + 1})
		}
		values, _ := f.pull(b, PullOptions{})
		want(t, values, filled(64, 5))
		f.push(a, filled(64, 1), Gradient{Versions: v, Lease: 1, Done: 6}) // is lost at server 1
		f.kill(1)
		pushed := make(chan error)
		go func() {
			_, _, err := b.Push(t.Context(), filled(64, 1), Gradient{Versions: v, Lease: 2, Done: 6})
			pushed <- err
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		select {
		case err := <-pushed:
			t.Fatal("gave up:", err)
		default:
		}
		f.start(1)
		if err := <-pushed; !errors.Is(err, ErrUninitialized) || !strings.Contains(err.Error(), "parameter server 1 at ps-1") {
			t.Fatal(err)
		}
		if b.Initialized() {
			t.Fatal("it knows of values at the new server")
		}
		f.init(b, values)
		if v := f.server(1).Version(); v != 5 {
			t.Fatal("the new server is at version", v)
		}
		// a's gradient of before is not at the new server: a does not wait for it.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.Pull(ctx, values, PullOptions{After: true}); err != nil {
			t.Fatal(err)
		}
		if accepted, _ := f.push(b, filled(64, 1), Gradient{Versions: v, Lease: 2, Done: 6}); !accepted {
			t.Fatal("refused")
		}
		// Server 0 has both, server 1 has b's alone.
		if got := []int64{f.server(0).Version(), f.server(1).Version()}; !slices.Equal(got, []int64{6, 5}) {
			t.Fatal(got)
		}
	})
}

// Where a server replaces one, a worker that has just started waits for those that have trained, if there are any.
func TestTrainedValuesGoFirst(t *testing.T) {
	for _, survivor := range []bool{true, false} {
		t.Run(fmt.Sprintf("survivor=%t", survivor), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t, 1, ServerConfig{})
				layout := dense(64, 0)
				old := f.client(0, layout)
				f.init(old, filled(64, 10))
				f.push(old, filled(64, 1), Gradient{Versions: Versions{0}})
				values, _ := f.pull(old, PullOptions{})
				f.kill(0)
				f.config.Resume = 1
				f.start(0)
				fresh := f.client(1, layout)
				begin, answered := time.Now(), make(chan error)
				go func() { answered <- fresh.Init(t.Context(), filled(64, 10)) }()
				synctest.Wait()
				if f.server(0).hasValues() {
					t.Fatal("the initial values are taken at once")
				}
				if survivor {
					if _, err := old.Pull(t.Context(), values, PullOptions{}); !errors.Is(err, ErrUninitialized) {
						t.Fatal(err)
					}
					f.init(old, filled(64, 9))
				}
				if err := <-answered; err != nil {
					t.Fatal(err)
				}
				got, _ := f.pull(fresh, PullOptions{})
				if survivor {
					want(t, got, filled(64, 9))
				} else if want(t, got, filled(64, 10)); time.Since(begin) != resumeWait {
					t.Fatal("waited", time.Since(begin))
				}
			})
		})
	}
}

func TestContextEndsCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 2, ServerConfig{GradsToWait: 2})
		c := f.client(0, dense(64, 0))
		f.init(c, filled(64, 10))
		v := Versions{0, 0}
		f.push(c, filled(64, 1), Gradient{Versions: v, Lease: 1, Done: 1})
		within := func(call func(ctx context.Context) error) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			start := time.Now()
			err := call(ctx)
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 3*time.Second {
				t.Fatal(err, time.Since(start))
			}
			t.Log(err)
		}
		pull := func(ctx context.Context) error {
			_, err := c.Pull(ctx, make([]float32, 64), PullOptions{After: true})
			return err
		}
		within(pull) // for another worker's gradient
		f.kill(1)
		within(pull) // for a server that is away
		within(func(ctx context.Context) error {
			_, _, err := c.Push(ctx, filled(64, 1), Gradient{Versions: v, Lease: 1, Done: 2})
			return err
		})
		within(func(ctx context.Context) error {
			_, err := Dial(ctx, f.clientConfig(1, dense(64, 0)))
			return err
		})
		cause := errors.New("the job has ended")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		if err := pull(ctx); !errors.Is(err, cause) {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(time.Second)
			c.Close()
		}()
		if err := pull(t.Context()); !errors.Is(err, errClosed) {
			t.Fatal(err)
		}
	})
}

// fragile is a connection that breaks after so many bytes, either way.
type fragile struct {
	net.Conn
	left atomic.Int64
}

func (c *fragile) spend(n int) {
	if c.left.Add(-int64(n)) < 0 {
		c.Close()
	}
}

func (c *fragile) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b[:min(len(b), int(max(1, c.left.Load())))])
	c.spend(n)
	return n, err
}

func (c *fragile) Write(b []byte) (int, error) {
	whole := len(b)
	if left := int(max(0, c.left.Load())); left < whole {
		c.Conn.Write(b[:left])
		c.spend(whole)
		return left, net.ErrClosed
	}
	n, err := c.Conn.Write(b)
	c.spend(n)
	return n, err
}

// gated is a connection whose reader stops after so many bytes until the gate opens.
type gated struct {
	net.Conn
	left int
	gate chan struct{}
}

func (c *gated) Read(b []byte) (int, error) {
	if c.left <= 0 {
		<-c.gate
	}
	n, err := c.Conn.Read(b)
	c.left -= n
	return n, err
}

// slowly starts a pull whose reader stops within the values; open lets it go on.
func (f *fleet) slowly(o PullOptions) (open func() ([]float32, Versions, error)) {
	const n = 3 * chunk
	gate := make(chan struct{})
	config := f.clientConfig(9, dense(n, 0))
	config.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := f.dial(ctx, addr)
		return &gated{conn, 2 * chunk, gate}, err
	}
	c, err := Dial(f.t.Context(), config)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	dst, done := make([]float32, n), make(chan error)
	var v Versions
	go func() {
		var err error
		v, err = c.Pull(f.t.Context(), dst, o)
		done <- err
	}()
	synctest.Wait()
	return func() ([]float32, Versions, error) {
		close(gate)
		err := <-done
		return dst, v, err
	}
}

func TestWholePullIsRepeated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 1, ServerConfig{})
		const n = 3 * chunk
		c := f.client(0, dense(n, 0))
		f.init(c, filled(n, 5))
		for _, whole := range []bool{false, true} {
			open := f.slowly(PullOptions{Whole: whole})
			f.push(c, filled(n, 1), Gradient{Versions: Versions{0}})
			got, v, err := open()
			if err != nil {
				t.Fatal(err)
			}
			if agree := got[0] == got[n-1]; agree != whole {
				t.Fatal(whole, got[0], got[n-1], v)
			}
		}
	})
}

// A snapshot that is released while it is read is not mixed with the next.
func TestSnapshotReleasedMidway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 1, ServerConfig{EvaluationSteps: 1})
		const n = 3 * chunk
		c := f.client(0, dense(n, 0))
		f.init(c, filled(n, 5))
		f.push(c, filled(n, 1), Gradient{Versions: Versions{0}})
		open := f.slowly(PullOptions{Snapshot: 1})
		f.tell(0, &wire.ControlRequest{ReleaseSnapshot: 1})
		f.push(c, filled(n, 1), Gradient{Versions: Versions{1}})
		if _, _, err := open(); !errors.Is(err, ErrNoSnapshot) {
			t.Fatal(err)
		}
	})
}
