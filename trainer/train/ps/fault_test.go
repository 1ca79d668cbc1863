package ps

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/test/prove"
	"github.com/elasticdl/elasticdl/test/speak"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// open is a bare data connection of a worker that has declared itself.
func (f *fleet) open(c *Client) *credential.Conn {
	f.t.Helper()
	conn := f.secured(c.servers[0].self.Credential())
	if err := c.servers[0].introduce(conn, conn.Peer); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { conn.Close() })
	return conn
}

// secured is a data connection whose ends have proved who they are.
func (f *fleet) secured(c *credential.Credential) *credential.Conn {
	f.t.Helper()
	raw, err := f.dial(f.t.Context(), "ps-0")
	if err != nil {
		f.t.Fatal(err)
	}
	conn, err := c.Client(f.t.Context(), raw, credential.Push, identity.Is(pod.ID{Role: pod.PS}))
	if err != nil {
		f.t.Fatal(err)
	}
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
		// A peer whose header differs from its certificate, of another job, or of a role that does
		// not push, gets an error and is disconnected. A worker of another generation gets the
		// server's generation. A peer without a certificate gets no answer.
		worker := identity.Header{Job: uid, Role: pod.Worker, Incarnation: 1, ModelGeneration: 1}
		for name, c := range map[string]struct {
			change func(*identity.Header)
			want   error
			says   string
		}{
			"another worker": {func(h *identity.Header) { h.Index = 8 }, ErrRefused, "with the certificate of"},
			"another job":    {func(h *identity.Header) { h.Job = "another" }, ErrRefused, "not of this job"},
			"a server":       {func(h *identity.Header) { h.Role = pod.PS }, ErrRefused, "not allowed"},
			"a generation behind": {func(h *identity.Header) {
				h.ModelGeneration = 0
			}, ErrStaleModel, "the server is in generation 1 of it, this worker in 0"},
			"a generation to come": {func(h *identity.Header) {
				h.ModelGeneration = 2
			}, nil, "the server is in model generation 1 still, this worker in 2"},
		} {
			h := worker
			c.change(&h)
			proves := worker
			if name == "a server" {
				proves = h
			}
			conn := f.secured(prove.Of(proves))
			p := peer{self: speak.Self(h), callee: rpc.Callee{ID: pod.ID{Role: pod.PS}}}
			err := p.introduce(conn, conn.Peer)
			if err == nil || c.want != nil && !errors.Is(err, c.want) || c.want == nil &&
				permanent(err) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", name, err)
			}
			ended(t, conn)
		}
		for name, b := range map[string][]byte{
			"a pull of nobody": request{op: opPull}.appendTo(nil),
			"nonsense":         slices.Concat(requestMagic[:], make([]byte, requestSize)),
		} {
			t.Log(name)
			conn := f.secured(prove.Of(worker))
			conn.Write(b)
			ended(t, conn)
		}
		nobody, err := credential.New(prove.Authority(uid).Root())
		if err != nil {
			t.Fatal(err)
		}
		conn := f.secured(nobody) // it hears of that when it reads
		if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Errorf("who has no certificate is answered: %d bytes, %v", n, err)
		}
		// Silence.
		raw := dial()
		start := time.Now()
		raw.Write([]byte("E"))
		ended(t, raw)
		if time.Since(start) > greeting {
			t.Fatal(time.Since(start))
		}
		// A payload that is not the server's range: nothing is read of it.
		conn = f.open(c)
		conn.Write(request{op: opPush, length: 4 << 40}.appendTo(nil))
		ended(t, conn)
		conn = f.open(c)
		conn.Write(request{op: opOpen, length: 1}.appendTo(nil))
		ended(t, conn)
		got, v := f.pull(c, PullOptions{})
		want(t, got, filled(50, 1))
		if v[0] != 0 {
			t.Fatal(v)
		}
	})
}

// Connections that say nothing keep no worker out, however many they are and however often they
// come again: the oldest are closed.
func TestStrangers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 1, ServerConfig{})
		c := f.client(0, dense(50, 0))
		var ended atomic.Int64
		for range 2 * maxStrangers {
			conn, err := f.dial(t.Context(), "ps-0")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			go func() {
				io.Copy(io.Discard, conn)
				ended.Add(1)
			}()
			synctest.Wait()
		}
		if n := ended.Load(); n != maxStrangers {
			t.Errorf("%d strangers are closed, want %d", n, maxStrangers)
		}
		began := time.Now()
		f.pull(c, PullOptions{})
		late := f.client(1, dense(50, 0)) // a worker that comes now
		f.pull(late, PullOptions{})
		if took := time.Since(began); took > 0 {
			t.Errorf("the workers waited for %v", took)
		}
		// a connection for control and one for data of each worker
		if n := ended.Load(); n > maxStrangers+4 {
			t.Errorf("%d strangers are closed after two workers came", n)
		}
		time.Sleep(greeting)
		synctest.Wait()
		if n := ended.Load(); n != 2*maxStrangers {
			t.Errorf("%d strangers of %d are closed", n, 2*maxStrangers)
		}
		f.pull(c, PullOptions{})
		f.pull(late, PullOptions{})
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
			conn.Write(request{op: opPush, length: 4 * n, epoch: 1, task: 1, to: 1, of: 1000}.appendTo(nil))
			conn.Write(param.Bytes(filled(n, 1))[:length])
			conn.Close()
			got, v := f.pull(c, PullOptions{})
			want(t, got, filled(n, 5))
			if v[0] != 0 {
				t.Fatal(v)
			}
		}
		for range 2 {
			if ok, v := f.push(c, filled(n, 1), Gradient{Versions: Versions{0}, Epoch: 1, Task: 1,
				To: 1, Of: 1000}); !ok || v[0] != 1 {
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
		conn.Write(request{op: opPush, length: 4 * n, epoch: 1, task: 1, to: 1, of: 1000}.appendTo(nil))
		conn.Write(param.Bytes(filled(n, 1))[:n])
		synctest.Wait()
		start := time.Now()
		f.push(b, filled(n, 2), Gradient{Versions: Versions{0}, Epoch: 1, Task: 2, To: 1, Of: 1000})
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
		if n, err := io.Copy(io.Discard, conn); err != nil && err != io.ErrUnexpectedEOF || n >= 4*chunk {
			t.Fatal(n, err)
		}
	})
}

// A pull reports an update that falls into it, and Whole pulls again.
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

// A server that begins a new generation drops its state, and workers of the earlier one get an
// error.
func TestNewModelGeneration(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 2, ServerConfig{GradsToWait: 2, EvaluationSteps: 1,
			Optimizer: optim.Config{Name: optim.Momentum, Momentum: 0.9, LearningRate: 1}})
		layout := dense(64, 0)
		a, b := f.client(0, layout), f.client(1, layout)
		f.init(a, filled(64, 10))
		v := Versions{0, 0}
		f.push(a, filled(64, 1), Gradient{Versions: v, Epoch: 1, Task: 1, To: 1, Of: 1000})
		f.push(b, filled(64, 1), Gradient{Versions: v, Epoch: 1, Task: 2, To: 1, Of: 1000})
		// is gathered
		f.push(a, filled(64, 1), Gradient{Versions: Versions{1, 1}, Epoch: 1, Task: 1, From: 1, To: 2, Of: 1000})
		stands := func(want [3]int64) {
			if modelGeneration, version, snapshot := f.server(1).standing(); [3]int64{modelGeneration,
				version, snapshot} != want {
				t.Errorf("generation, version and snapshot: %d, %d, %d; want %d", modelGeneration,
					version, snapshot, want)
			}
		}
		stands([3]int64{1, 1, 1})
		f.modelGeneration = 2
		for i := range 2 {
			f.tell(i, &wire.ControlRequest{})
		}
		stands([3]int64{2, 0, 0})
		if s := f.server(1); s.Version() != 0 || s.Snapshot() != 0 || s.self.ModelGeneration() != 2 {
			t.Fatal(s.Version(), s.Snapshot(), s.self.ModelGeneration())
		}
		dst := make([]float32, 64)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := a.Pull(ctx, dst, PullOptions{}); !errors.Is(err, ErrStaleModel) {
			t.Fatal(err)
		}
		if _, err := b.Push(ctx, dst, Gradient{Versions: v, Epoch: 1, Task: 2, From: 1, To: 2,
			Of: 1000}); !errors.Is(err, ErrStaleModel) {
			t.Fatal(err)
		}
		// In the new generation the same records are taken again, from the initial values, with the
		// slots at their beginning.
		again, other := f.client(0, layout), f.client(1, layout)
		got, _ := f.pull(again, PullOptions{})
		want(t, got, filled(64, 10))
		f.push(again, filled(64, 1), Gradient{Versions: v, Epoch: 1, Task: 1, To: 1, Of: 1000})
		f.push(other, filled(64, 1), Gradient{Versions: v, Epoch: 1, Task: 2, To: 1, Of: 1000})
		got, v = f.pull(again, PullOptions{})
		want(t, got, filled(64, 9))
		if !slices.Equal(v, Versions{1, 1}) {
			t.Fatal(v)
		}
		// An order of the generation before comes late, whatever its number.
		for _, number := range []int64{1, 1000} {
			_, err := f.control(0).Control(t.Context(), &wire.ControlRequest{ModelGeneration: 1,
				Number: number, Settled: 1})
			if grpcstatus.Code(err) != codes.Aborted || f.server(0).Version() != 1 ||
				f.server(0).rule.ledger.Settled() != 0 {
				t.Fatalf("order %d: %v", number, err)
			}
		}
	})
}

// Orders that overtake each other leave things as the newest says.
func TestLateOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 1, ServerConfig{GradsToWait: 3})
		c := f.client(0, dense(20, 0))
		order := func(number int64, contributors int32) error {
			_, err := f.control(0).Control(t.Context(), &wire.ControlRequest{ModelGeneration: 1, Number: number,
				Contributors: contributors})
			return err
		}
		if err := order(2, 1); err != nil {
			t.Fatal(err)
		}
		if err := order(1, 3); grpcstatus.Code(err) != codes.Aborted {
			t.Fatal(err)
		}
		if err := order(2, 1); err != nil { // repeated
			t.Fatal(err)
		}
		if _, v := f.push(c, filled(20, 1), Gradient{Versions: Versions{0}, Epoch: 1, To: 1, Of: 1000}); v[0] != 1 {
			t.Fatal("the gradient of the only worker waits for others")
		}
	})
}

// A client that reaches another incarnation of a server than the master named does not accept it.
func TestIncarnations(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 1, ServerConfig{})
		f.client(0, dense(20, 0))
		f.kill(0)
		f.start(0) // incarnation 2
		for expected, want := range map[int]error{1: ErrStaleModel, 2: nil, 3: context.DeadlineExceeded} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			config := f.clientConfig(1, dense(20, 0))
			config.Servers[0].Incarnation = expected
			c, err := Dial(ctx, config)
			if !errors.Is(err, want) {
				t.Errorf("incarnation %d is expected: %v", expected, err)
			}
			if err == nil {
				c.Close()
			}
			cancel()
		}
	})
}

// A push of records that begin elsewhere gets the server's marker of the task.
func TestCut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 2, ServerConfig{})
		gone, c := f.client(0, dense(20, 0)), f.client(1, dense(20, 0))
		f.init(c, filled(20, 10))
		v := Versions{0, 0}
		f.push(gone, filled(20, 1), Gradient{Versions: v, Epoch: 1, Task: 3, To: 4, Of: 1000})
		// one server has more: the worker was lost in the middle of a push
		p := gone.servers[1]
		must(p.call(t.Context(), &p.push, request{op: opPush, epoch: 1, task: 3, from: 4, to: 8,
			of: 1000}, p.part(filled(20, 1)), nil))
		push := func(from, to int64) Pushed {
			return must(c.Push(t.Context(), filled(20, 1), Gradient{Versions: v, Epoch: 1, Task: 3,
				From: from, To: to, Of: 1000}))
		}
		// server 0 takes it, server 1 has a part of it
		if p := push(4, 10); p.Accepted || p.Cut != 8 {
			t.Fatal(p)
		}
		if p := push(8, 10); !p.Accepted || p.Cut != -1 {
			t.Fatal(p)
		}
		if p := push(0, 10); !p.Accepted {
			t.Fatal("a repeat is refused:", p)
		}
		if p := push(12, 14); p.Accepted || p.Cut != 10 { // a gap
			t.Fatal(p)
		}
		got, v := f.pull(c, PullOptions{})
		expect := filled(20, 8)
		for i := range p.part(expect) {
			p.part(expect)[i] = 7
		}
		if want(t, got, expect); !slices.Equal(v, Versions{2, 3}) {
			t.Fatal(v)
		}
		// Where each has another part, the records that any of them lacks are to follow.
		for i, to := range []int64{2, 3} {
			p := gone.servers[i]
			must(p.call(t.Context(), &p.push, request{op: opPush, epoch: 1, task: 5, to: to, of: 1000},
				p.part(filled(20, 0)), nil))
		}
		if p := must(c.Push(t.Context(), filled(20, 1), Gradient{Versions: v, Epoch: 1, Task: 5, To: 4,
			Of: 1000})); p.Accepted || p.Cut != 2 {
			t.Fatal(p)
		}
		// After the epoch nothing of it is taken.
		f.tell(0, &wire.ControlRequest{Settled: 1})
		f.tell(1, &wire.ControlRequest{Settled: 1})
		if p := push(10, 12); !p.Accepted || slices.Max(p.Versions) != 4 {
			t.Fatal(p)
		}
	})
}

func TestContextEndsCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 2, ServerConfig{GradsToWait: 2})
		c := f.client(0, dense(64, 0))
		f.init(c, filled(64, 10))
		v := Versions{0, 0}
		f.push(c, filled(64, 1), Gradient{Versions: v, Epoch: 1, Task: 1, To: 1, Of: 1000})
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
			_, err := c.Push(ctx, filled(64, 1), Gradient{Versions: v, Epoch: 1, Task: 1, From: 1, To: 2, Of: 1000})
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
