package mesh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/test/memnet"
	"github.com/elasticdl/elasticdl/test/prove"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/train/ring"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
)

// town has the nodes of workers on a network in memory. Worker i listens at the address "i".
type town struct {
	t         *testing.T
	listeners []*memnet.Listener
	nodes     []*Node
	// wraps each connection that a node dials; nil: no wrapping
	wrap func(from int, to string, c net.Conn) net.Conn
}

// newPlainTown returns a town whose connections leave TLS, so that bytes can be counted.
func newPlainTown(t *testing.T, workers int) *town { return makeTown(t, workers, 0, true) }

func newTown(t *testing.T, workers int) *town { return makeTown(t, workers, 0, false) }

// newStrictTown returns a town whose nodes have a limit on silence.
func newStrictTown(t *testing.T, workers int, silence time.Duration) *town {
	return makeTown(t, workers, silence, false)
}

func makeTown(t *testing.T, workers int, silence time.Duration, plain bool) *town {
	w := &town{t: t}
	for i := range workers {
		lis := memnet.Listen(16 << 10)
		w.listeners = append(w.listeners, lis)
		w.nodes = append(w.nodes, Listen(Config{Listener: lis, Self: func() identity.Header {
			return worker(i)
		}, Credential: prove.Of(worker(i)), Plain: plain, Silence: silence,
			Dial: func(ctx context.Context, address string) (net.Conn, error) {
				c, err := w.dial(ctx, address)
				if err == nil && w.wrap != nil {
					c = w.wrap(i, address, c)
				}
				return c, err
			}}))
	}
	return w
}

func (w *town) dial(ctx context.Context, address string) (net.Conn, error) {
	var i int
	if _, err := fmt.Sscan(address, &i); err != nil || i >= len(w.listeners) {
		return nil, fmt.Errorf("no worker at %q", address)
	}
	return w.listeners[i].DialContext(ctx)
}

func (w *town) close() {
	for _, n := range w.nodes {
		n.Close()
	}
}

// world returns the group of these workers, in the order of their ranks.
func world(generation int64, rank int, workers ...int) Group {
	w := Group{Generation: generation, Rank: rank}
	for _, i := range workers {
		w.Peers = append(w.Peers, Peer{i, fmt.Sprint(i)})
	}
	return w
}

// connect connects these workers as a world, and returns their meshes by rank.
func (w *town) connect(generation int64, workers ...int) []*Mesh {
	w.t.Helper()
	meshes := make([]*Mesh, len(workers))
	var wg sync.WaitGroup
	for r, i := range workers {
		wg.Go(func() {
			m, err := w.nodes[i].Connect(w.t.Context(), world(generation, r, workers...))
			if err != nil {
				w.t.Error(err)
			}
			meshes[r] = m
		})
	}
	wg.Wait()
	if w.t.Failed() {
		w.t.FailNow()
	}
	return meshes
}

// rounds makes at most that many rounds, as workers do, and checks their sums.
func rounds(m *Mesh, most int) error {
	w := m.Group()
	scratch := make([]float32, ring.ScratchSize)
	for range most {
		if _, err := ring.Gather(m, w.Rank, len(w.Peers), []byte("header")); err != nil {
			return err
		}
		for _, n := range []int{3, 17_000} {
			data := make([]float32, n)
			data[0] = 1
			if err := ring.Reduce(m, w.Rank, len(w.Peers), data, scratch); err != nil {
				return err
			}
			if data[0] != float32(len(w.Peers)) {
				return fmt.Errorf("sum is %v", data[0])
			}
		}
	}
	return nil
}

// all runs f on all meshes at the same time, and returns the errors.
func all(meshes []*Mesh, f func(m *Mesh) error) []error {
	errs := make([]error, len(meshes))
	var wg sync.WaitGroup
	for i, m := range meshes {
		wg.Go(func() { errs[i] = f(m) })
	}
	wg.Wait()
	return errs
}

func closeAll(meshes []*Mesh) {
	for _, m := range meshes {
		m.Close()
	}
}

// wantBroken checks that err is the BrokenError of a mesh, and that all further calls return the
// same error.
func wantBroken(t *testing.T, m *Mesh, err error) {
	t.Helper()
	broken, ok := errors.AsType[*BrokenError](err)
	if !ok || broken.Generation != m.Group().Generation {
		t.Errorf("rank %d: %v, want a BrokenError of world %d", m.Group().Rank, err, m.Group().Generation)
		return
	}
	peer := ring.Peers(m.Group().Rank, len(m.Group().Peers))[0]
	for name, again := range map[string]error{
		"Send": m.Send(peer, []byte("x")), "Recv": m.Recv(peer, make([]byte, 1)), "Flush": m.Flush(),
	} {
		if again != error(broken) {
			t.Errorf("rank %d: %s returns %v, not %v", m.Group().Rank, name, again, broken)
		}
	}
	select {
	case <-m.Arrived():
	default:
		t.Error("Arrived does not tell")
	}
	<-m.Broken()
}

// Whichever link breaks, and after whichever byte, the rounds of all ranks end with an error, and
// no goroutine is left.
func TestAnyLinkBreaks(t *testing.T) {
	for _, size := range []int{2, 4, 6} {
		for from := 1; from < size; from++ {
			for _, to := range ring.Peers(from, size) {
				if to > from { // the higher rank dials
					continue
				}
				for _, bytes := range []int{0, 5, 30, 100, 2000, 50_000, 200_001} {
					t.Run(fmt.Sprintf("%d/%d-%d/%d", size, from, to, bytes), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { breakLink(t, size, from, fmt.Sprint(to), bytes) })
					})
				}
			}
		}
	}
}

func breakLink(t *testing.T, size, from int, to string, bytes int) {
	w := newPlainTown(t, size)
	defer w.close()
	w.wrap = func(f int, address string, c net.Conn) net.Conn {
		if f == from && address == to {
			return &cut{Conn: c, left: helloSize + welcomeSize + 2*meetingSize + bytes}
		}
		return c
	}
	var workers []int
	for i := range size {
		workers = append(workers, i)
	}
	meshes := w.connect(7, workers...)
	defer closeAll(meshes)
	for i, err := range all(meshes, func(m *Mesh) error { return rounds(m, 100) }) {
		wantBroken(t, meshes[i], err)
	}
}

// A connection that breaks before its hello is complete is dialed again.
func TestBrokenHello(t *testing.T) {
	for bytes := range helloSize {
		synctest.Test(t, func(t *testing.T) {
			w := newPlainTown(t, 3)
			defer w.close()
			var mu sync.Mutex
			broken := make(map[string]bool)
			w.wrap = func(from int, to string, c net.Conn) net.Conn {
				mu.Lock()
				defer mu.Unlock()
				if pair := fmt.Sprint(from, to); !broken[pair] {
					broken[pair] = true
					return &cut{Conn: c, left: bytes}
				}
				return c
			}
			meshes := w.connect(1, 0, 1, 2)
			defer closeAll(meshes)
			for i, err := range all(meshes, func(m *Mesh) error { return rounds(m, 1) }) {
				if err != nil {
					t.Errorf("%d bytes: rank %d: %v", bytes, i, err)
				}
			}
		})
	}
}

// A node whose answer does not arrive may take the world for connected. Then the world breaks on
// both sides.
func TestBrokenAnswer(t *testing.T) {
	for bytes := range welcomeSize {
		synctest.Test(t, func(t *testing.T) {
			w := newPlainTown(t, 2)
			defer w.close()
			first := true
			w.wrap = func(_ int, _ string, c net.Conn) net.Conn {
				if !first {
					return c
				}
				first = false
				return &cut{Conn: c, left: helloSize + bytes}
			}
			var wg sync.WaitGroup
			for rank := range 2 {
				wg.Go(func() {
					m, err := w.nodes[rank].Connect(t.Context(), world(1, rank, 0, 1))
					if err != nil {
						return
					}
					defer m.Close()
					wantBroken(t, m, rounds(m, 1))
				})
			}
			wg.Wait()
		})
	}
}

// The others wait for a silent peer until one of them breaks the world.
func TestSilentPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, 4)
		defer w.close()
		meshes := w.connect(3, 0, 1, 2, 3)
		defer closeAll(meshes)
		why := errors.New("the master reports it")
		go func() {
			time.Sleep(time.Hour)
			meshes[0].Break(why)
			meshes[0].Break(errors.New("too late"))
		}()
		start := time.Now()
		for i, err := range all(meshes[:3], func(m *Mesh) error { return rounds(m, 1) }) {
			wantBroken(t, meshes[i], err)
		}
		if took := time.Since(start); took != time.Hour {
			t.Errorf("broken after %v", took)
		}
		if err := meshes[0].Flush(); !errors.Is(err, why) {
			t.Errorf("%v, want %v", err, why)
		}
		wantBroken(t, meshes[3], rounds(meshes[3], 1))
	})
}

// After Close, data that was flushed arrives, and later calls return ErrClosed.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, 2)
		defer w.close()
		meshes := w.connect(1, 0, 1)
		if err := errors.Join(meshes[0].Send(1, []byte("last")), meshes[0].Flush()); err != nil {
			t.Fatal(err)
		}
		meshes[0].Close()
		meshes[0].Close()
		got := make([]byte, 4)
		if err := meshes[1].Recv(0, got); err != nil || string(got) != "last" {
			t.Errorf("%q, %v", got, err)
		}
		if err := meshes[0].Send(1, nil); !errors.Is(err, ErrClosed) {
			t.Errorf("send after Close: %v", err)
		}
		err := meshes[1].Recv(0, got)
		wantBroken(t, meshes[1], err)
		if broken, ok := errors.AsType[*BrokenError](err); ok && broken.Rank != 0 {
			t.Errorf("rank %d is suspected", broken.Rank)
		}
		meshes[1].Close()
	})
}

// Arrived reports each time whether bytes have arrived that were not received yet, and does not
// receive them.
func TestArrived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, 3)
		defer w.close()
		meshes := w.connect(1, 0, 1, 2)
		defer closeAll(meshes)
		here := func() bool {
			ch := meshes[0].Arrived()
			synctest.Wait()
			select {
			case <-ch:
				return true
			default:
				return false
			}
		}
		send := func(from int, text string) {
			if err := errors.Join(meshes[from].Send(0, []byte(text)), meshes[from].Flush()); err != nil {
				t.Fatal(err)
			}
		}
		receive := func(from int, want string) {
			t.Helper()
			got := make([]byte, len(want))
			if err := meshes[0].Recv(from, got); err != nil || string(got) != want {
				t.Fatalf("received %q, %v", got, err)
			}
		}
		for range 3 {
			for range 2 {
				if here() {
					t.Fatal("something arrived before it was sent")
				}
			}
			send(2, "abc")
			for range 2 {
				if !here() {
					t.Fatal("nothing arrived")
				}
			}
			receive(2, "a")
			send(1, "x")
			receive(1, "x")
			if !here() {
				t.Fatal("what was read ahead did not arrive")
			}
			receive(2, "bc")
		}
		ch := meshes[0].Arrived()
		all(meshes[1:], func(m *Mesh) error { m.Close(); return nil })
		<-ch
		wantBroken(t, meshes[0], meshes[0].Recv(1, make([]byte, 1)))
	})
}

// greeted returns the answer of a node to a hello, nil if there is none within a second.
func (w *town) greeted(to int, h hello) (net.Conn, *answer) {
	w.t.Helper()
	raw, err := w.dial(w.t.Context(), fmt.Sprint(to))
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := prove.Of(h.from).Client(w.t.Context(), raw, credential.Mesh, identity.Is(worker(to).ID()))
	if err != nil {
		w.t.Fatal(err)
	}
	c.Write(h.append(nil))
	c.SetReadDeadline(time.Now().Add(time.Second))
	a, err := readAnswer(c)
	if isTimeout(err) {
		return c, nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return c, &a
}

func TestWhoIsWelcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, 3)
		defer w.close()
		meshes := w.connect(5, 0, 1)
		defer closeAll(meshes)
		for name, c := range map[string]struct {
			hello hello
			want  *answer
		}{
			"older generation":  {greets(4, 1, 0, 1, 0, 2), &answer{verdict: outdated, generation: 5}},
			"connected already": {greets(5, 1, 0, 1, 0, 2), &answer{verdict: outdated, generation: 5}},
			"to another worker": {greets(5, 1, 2, 1, 0, 2), &answer{verdict: stranger, generation: 5}},
			"another size":      {greets(5, 1, 0, 1, 0, 3), &answer{verdict: stranger, generation: 5}},
			"another worker":    {greets(5, 2, 0, 1, 0, 2), &answer{verdict: stranger, generation: 5}},
			"newer generation":  {greets(6, 1, 0, 1, 0, 2), nil},
		} {
			conn, got := w.greeted(0, c.hello)
			if (got == nil) != (c.want == nil) || got != nil &&
				(got.verdict != c.want.verdict || got.generation != c.want.generation) {
				t.Errorf("%s: answer %v, want %v", name, got, c.want)
			}
			conn.Close()
		}
		conn, _ := w.dial(t.Context(), "0")
		conn.Write(bytes.Repeat([]byte("GET / "), 20))
		// longer than an alert of TLS
		if said, err := io.ReadAll(conn); len(said) > 7 || err != nil {
			t.Errorf("a peer with another protocol is answered: %q, %v", said, err)
		}
		silent, _ := w.dial(t.Context(), "0")
		start := time.Now()
		if _, err := silent.Read(make([]byte, 1)); err == nil || time.Since(start) != timing.Greeting {
			t.Errorf("who says nothing is closed after %v: %v", time.Since(start), err)
		}
	})
}

// A rank that is no neighbor is refused: its link would be counted as one of those that are
// missing.
func TestStrangerOfTheSameWorld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, 1)
		defer w.close()
		ctx, cancel := context.WithCancel(t.Context())
		var connecting sync.WaitGroup
		connecting.Go(func() { w.nodes[0].Connect(ctx, world(5, 0, 0, 1, 2, 3, 4, 5, 6, 7)) })
		synctest.Wait()
		for rank, want := range map[int]verdict{3: stranger, 4: welcome, 5: stranger} {
			conn, got := w.greeted(0, greets(5, rank, 0, rank, 0, 8))
			if got == nil || got.verdict != want {
				t.Errorf("rank %d is answered %v", rank, got)
			}
			defer conn.Close()
		}
		cancel()
		connecting.Wait()
	})
}

// A peer that does not know the world yet is waited for; one that is in a newer world is not.
func TestLatePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, 2)
		defer w.close()
		closeAll(w.connect(1, 0, 1))
		var late *Mesh
		var wg sync.WaitGroup
		wg.Go(func() {
			time.Sleep(time.Minute)
			var err error
			if late, err = w.nodes[0].Connect(t.Context(), world(3, 0, 0, 1)); err != nil {
				t.Error(err)
			}
		})
		early, err := w.nodes[1].Connect(t.Context(), world(3, 1, 0, 1))
		if err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		for i, err := range all([]*Mesh{late, early}, func(m *Mesh) error { return rounds(m, 1) }) {
			if err != nil {
				t.Errorf("rank %d: %v", i, err)
			}
		}
		closeAll([]*Mesh{late, early})
		// Worker 0 is in a newer world.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = w.nodes[0].Connect(ctx, world(9, 0, 0, 1))
		if b, ok := errors.AsType[*BrokenError](err); !ok || b.Rank != 1 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a world whose peer does not come: %v", err)
		}
		start := time.Now()
		_, err = w.nodes[1].Connect(t.Context(), world(8, 1, 0, 1))
		if b, ok := errors.AsType[*BrokenError](err); !ok || b.Rank != 0 || time.Since(start) > 0 {
			t.Errorf("a world that the peer has left behind: %v after %v", err, time.Since(start))
		}
		for _, generation := range []int64{8, 7} {
			if _, err := w.nodes[1].Connect(t.Context(), world(generation, 1, 0, 1)); err == nil {
				t.Error("a generation is connected again")
			}
		}
	})
}

// Connect returns an error if another worker listens at the address of a peer.
func TestAnotherWorkerUnderTheAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, 3)
		defer w.close()
		other := world(1, 1, 0, 1)
		other.Peers[0].Address = "2"
		if _, err := w.nodes[1].Connect(t.Context(), other); err == nil {
			t.Error("worker 2 is taken for worker 0")
		}
	})
}

// Parked connections are bounded, and closed when their world is over or the node ends.
func TestParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, 2)
		var parked []net.Conn
		for i := range parkedMost {
			c, a := w.greeted(0, greets(int64(2*i+3), 1, 0, 1, 0, 2))
			if a != nil {
				t.Fatalf("number %d is answered %v", i, a)
			}
			parked = append(parked, c)
		}
		if _, a := w.greeted(0, greets(1000, 1, 0, 1, 0, 2)); a == nil || a.verdict != crowded {
			t.Errorf("one more is answered %v", a)
		}
		closeAll(w.connect(100, 0, 1)) // 49 of them are older
		open := 0
		for _, c := range parked {
			c.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := c.Read(make([]byte, welcomeSize)); isTimeout(err) {
				open++
			}
		}
		if want := parkedMost - 49; open != want {
			t.Errorf("%d are parked, want %d", open, want)
		}
		w.close()
		for _, c := range parked {
			c.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := io.ReadAll(c); isTimeout(err) {
				t.Fatal("a parked connection outlives its node")
			}
		}
	})
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// Close ends a Connect that waits for peers.
func TestCloseWhileConnecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, 3)
		go func() {
			time.Sleep(time.Minute)
			w.close()
		}()
		var wg sync.WaitGroup
		for _, rank := range []int{0, 2} {
			wg.Go(func() {
				if _, err := w.nodes[rank].Connect(t.Context(), world(1, rank, 0, 1, 2)); err == nil {
					t.Error("connected without a peer")
				}
			})
		}
		wg.Wait()
	})
}
