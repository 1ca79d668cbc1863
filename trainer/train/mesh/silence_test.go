package mesh

import (
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/train/ring"
)

// limit is the limit on silence in these tests.
const limit = 5 * time.Second

// valve delays all data on its connections while it is shut. It resets no connection and loses no
// data.
type valve struct {
	mu sync.Mutex
	// closed when it opens again; nil: it is open
	shut chan struct{}
}

func (v *valve) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.shut == nil {
		v.shut = make(chan struct{})
	}
}

func (v *valve) open() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.shut != nil {
		close(v.shut)
		v.shut = nil
	}
}

// through returns the dialing end of a connection through a valve.
func (v *valve) through(c net.Conn) net.Conn {
	return &valved{Conn: c, valve: v, closed: make(chan struct{})}
}

type valved struct {
	net.Conn
	valve  *valve
	once   sync.Once
	closed chan struct{}
}

func (c *valved) pass() error {
	c.valve.mu.Lock()
	shut := c.valve.shut
	c.valve.mu.Unlock()
	if shut == nil {
		return nil
	}
	select {
	case <-shut:
		return nil
	case <-c.closed:
		return net.ErrClosed
	}
}

func (c *valved) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if stuck := c.pass(); stuck != nil {
		return 0, stuck
	}
	return n, err
}

func (c *valved) Write(b []byte) (int, error) {
	if err := c.pass(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// Close closes the connection only if the valve is open, so that the other end does not notice it
// otherwise.
func (c *valved) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.valve.mu.Lock()
		defer c.valve.mu.Unlock()
		if c.valve.shut == nil {
			c.Conn.Close()
		}
	})
	return nil
}

// wantSilent checks because of which rank, and why, a mesh broke, and that it broke after the
// limit.
func wantSilent(t *testing.T, err error, rank int, why error, took time.Duration) {
	t.Helper()
	broken, ok := errors.AsType[*BrokenError](err)
	if !ok || broken.Rank != rank || !errors.Is(err, why) {
		t.Errorf("%v, want that rank %d broke it: %v", err, rank, why)
	}
	if took < limit || took > limit*3/2 {
		t.Errorf("broken after %v, the limit is %v", took, limit)
	}
}

// Two workers that cannot reach each other, but all others, name each other, although the kernel
// reports no error.
func TestPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStrictTown(t, 3, limit)
		defer w.close()
		between := new(valve)
		defer between.open()
		w.wrap = func(from int, to string, c net.Conn) net.Conn {
			if from == 1 && to == "0" || from == 0 && to == "1" {
				return between.through(c)
			}
			return c
		}
		meshes := w.connect(1, 0, 1, 2)
		defer closeAll(meshes)
		time.AfterFunc(time.Second, between.close)
		var mu sync.Mutex
		named := 0
		start := time.Now()
		all(meshes, func(m *Mesh) error {
			for {
				err := rounds(m, 1)
				if err == nil {
					time.Sleep(10 * time.Millisecond)
					continue
				}
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, ErrSilent) {
					named++
					wantSilent(t, err, 1-m.Group().Rank, ErrSilent, time.Since(start)-time.Second)
				}
				return err
			}
		})
		if named == 0 {
			t.Error("nobody says who does not answer")
		}
	})
}

// A long step does not break a world: the node of a worker that computes answers when it is asked.
func TestLongStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStrictTown(t, 4, limit)
		defer w.close()
		meshes := w.connect(1, 0, 1, 2, 3)
		defer closeAll(meshes)
		for i, err := range all(meshes, func(m *Mesh) error {
			if m.Group().Rank == 2 {
				time.Sleep(time.Minute)
			}
			return rounds(m, 3)
		}) {
			if err != nil {
				t.Errorf("rank %d: %v", i, err)
			}
		}
	})
}

// A worker that sends to a live peer that does not read for a long time waits, too, with a full TCP
// window.
func TestFullWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStrictTown(t, 2, limit)
		defer w.close()
		meshes := w.connect(1, 0, 1)
		defer closeAll(meshes)
		go func() {
			time.Sleep(time.Minute)
			b := make([]byte, 1<<20)
			if err := meshes[1].Recv(0, b); err != nil {
				t.Error(err)
			}
		}()
		if err := errors.Join(meshes[0].Send(1, make([]byte, 1<<20)), meshes[0].Flush()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
}

// A suspended worker (SIGSTOP) is waited for until the limit, not longer.
func TestStoppedWorker(t *testing.T) {
	for _, stopped := range []time.Duration{limit * 3 / 4, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			w := newStrictTown(t, 3, limit)
			defer w.close()
			process := new(valve)
			defer process.open()
			w.wrap = func(from int, to string, c net.Conn) net.Conn {
				if from == 2 || to == "2" {
					return process.through(c)
				}
				return c
			}
			meshes := w.connect(1, 0, 1, 2)
			defer closeAll(meshes)
			process.close()
			time.AfterFunc(stopped, process.open)
			start := time.Now()
			if stopped < limit {
				for i, err := range all(meshes, func(m *Mesh) error { return rounds(m, 3) }) {
					if err != nil {
						t.Errorf("rank %d: %v", i, err)
					}
				}
				return
			}
			errs := all(meshes[:2], func(m *Mesh) error { return rounds(m, 1) })
			found := errs[0]
			if !errors.Is(found, ErrSilent) { // the other rank noticed it first
				found = errs[1]
			}
			wantSilent(t, found, 2, ErrSilent, time.Since(start))
			process.open()
		})
	}
}

// valve puts a valve into the first connection that is dialed, and into no later one.
func (w *town) valve() *valve {
	link, first := new(valve), true
	w.wrap = func(_ int, _ string, c net.Conn) net.Conn {
		if !first {
			return c
		}
		first = false
		return link.through(c)
	}
	return link
}

// A link may be dead although its ends can reach each other, because a device between them has
// forgotten the connection.
func TestForgottenConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStrictTown(t, 2, limit)
		defer w.close()
		link := w.valve()
		defer link.open()
		meshes := w.connect(1, 0, 1)
		defer closeAll(meshes)
		link.close()
		start := time.Now()
		if err := errors.Join(meshes[0].Send(1, []byte("lost")), meshes[0].Flush()); err != nil {
			t.Fatal(err)
		}
		wantSilent(t, meshes[1].Recv(0, make([]byte, 4)), 0, ErrUndelivered, time.Since(start))
	})
}

// The end of a connection may not arrive. Then a worker that asks the peer learns that it has left
// the world.
func TestPeerLeftInSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStrictTown(t, 2, limit)
		defer w.close()
		link := w.valve()
		defer link.open()
		meshes := w.connect(1, 0, 1)
		defer closeAll(meshes)
		link.close()
		meshes[0].Close()
		start := time.Now()
		err := meshes[1].Recv(0, make([]byte, ring.Whole))
		if refused, ok := errors.AsType[*refusedError](err); !ok || refused.verdict != outdated ||
			time.Since(start) > limit {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}
