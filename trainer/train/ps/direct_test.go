package ps

import (
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
)

// narrow is a connection that takes a few bytes at a time, in no whole elements.
type narrow struct {
	syscall.RawConn
	got    []byte
	room   int
	waited func()
}

func (c *narrow) Write(attempt func(fd uintptr) bool) error {
	for !attempt(0) {
		c.room = 1 + len(c.got)%9973
		c.waited()
	}
	return nil
}

func (c *narrow) write(_ int, b []byte) (int, error) {
	n := min(c.room, len(b))
	if n == 0 {
		return -1, syscall.EAGAIN
	}
	c.got, c.room = append(c.got, b[:n]...), c.room-n
	return n, nil
}

// An element of which the connection has taken some bytes is sent as it was then, also if an update
// comes before its other bytes are sent: each element is of one version.
func TestDirectSplitsNoElement(t *testing.T) {
	s := &store{optimizer: must(optim.New(optim.Config{Name: optim.SGD}))}
	s.fill(dense(chunk, 0), param.Range{End: chunk}, filled(chunk, 0.1), 0)
	versions := []float32{0.1}
	c := &narrow{waited: func() {
		s.sum = filled(chunk, -0.7)
		s.apply([]float64{1}, 0.3)
		versions = append(versions, s.values[0])
	}}
	d := &direct{raw: c, write: c.write}
	if there, err := d.send(s, 0, chunk, 0, s.times()); !there || err != nil {
		t.Fatal(there, err)
	}
	if len(c.got) != 4*chunk || len(versions) < 10 {
		t.Fatalf("%d bytes were sent, in %d versions", len(c.got), len(versions))
	}
	values := make([]float32, chunk)
	copy(param.Bytes(values), c.got)
	for i, v := range values {
		if !slices.Contains(versions, v) || i > 0 && v < values[i-1] {
			t.Fatalf("element %d is %v, after %v; the versions are %v", i, v, values[max(0, i-1)], versions)
		}
	}
	if there, err := d.send(s, 0, 1, 7, s.times()); there || err != nil {
		t.Errorf("a snapshot that is not there was sent: %v", err)
	}
}

// Values that a socket is sent from where they are, while updates come, are as those that are
// copied: of the version that the pull says, or of newer ones.
func TestPullsFromSockets(t *testing.T) {
	const n, updates = 20*chunk + 7, 30
	for _, plain := range []bool{true, false} {
		c := onLoopback(t, n, ServerConfig{Async: true, PlainData: plain,
			Optimizer: optim.Config{Name: optim.SGD, LearningRate: 1}})
		var pushing sync.WaitGroup
		pushing.Go(func() {
			grads := filled(n, -1)
			for range updates {
				if _, err := c.Push(t.Context(), grads, Gradient{Versions: Versions{0}}); err != nil {
					t.Error(err)
				}
			}
		})
		values := make([]float32, n)
		for last := float32(0); last < updates && !t.Failed(); {
			versions := must(c.Pull(t.Context(), values, PullOptions{}))
			least, most := slices.Min(values), slices.Max(values)
			if least < last || most > updates || least != float32(int(least)) || least < float32(versions[0]) {
				t.Errorf("plain: %v: values from %v to %v, of version %d, after %v", plain, least, most,
					versions[0], last)
			}
			last = least
		}
		pushing.Wait()
	}
}
