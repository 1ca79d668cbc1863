package mesh

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/test/prove"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/train/ring"
)

// loopback connects size workers over TCP.
func loopback(t *testing.T, size int) []*Mesh {
	t.Helper()
	return connectAll(t, size, func(c net.Conn) net.Conn { return c })
}

// wrapped is a listener that wraps its connections.
type wrapped struct {
	net.Listener
	wrap func(net.Conn) net.Conn
}

func (w wrapped) Accept() (net.Conn, error) {
	c, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return w.wrap(c), nil
}

// connectAll connects size workers over TCP, and wraps both ends of each connection.
func connectAll(t *testing.T, size int, wrap func(net.Conn) net.Conn) []*Mesh {
	t.Helper()
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return wrap(c), nil
	}
	world := Group{Generation: 1}
	var nodes []*Node
	for i := range size {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		n := Listen(Config{Listener: wrapped{lis, wrap}, Self: func() identity.Header {
			return worker(10 + i)
		}, Credential: prove.Of(worker(10 + i)), Dial: dial})
		t.Cleanup(n.Close)
		nodes = append(nodes, n)
		world.Peers = append(world.Peers, Peer{10 + i, lis.Addr().String()})
	}
	meshes := make([]*Mesh, size)
	var wg sync.WaitGroup
	for i, n := range nodes {
		w := world
		w.Rank = i
		wg.Go(func() {
			m, err := n.Connect(context.Background(), w)
			if err != nil {
				t.Error(err)
				return
			}
			meshes[i] = m
		})
	}
	wg.Wait()
	for _, m := range meshes {
		if m == nil {
			t.FailNow()
		}
		t.Cleanup(m.Close)
	}
	return meshes
}

func TestReduceOverLoopback(t *testing.T) {
	for size := 1; size <= 5; size++ {
		for _, n := range []int{0, 1, 5, 1000, 300_000, 2_000_001} {
			t.Run(fmt.Sprint(size, "x", n), func(t *testing.T) {
				meshes, rounds := loopback(t, size), 3
				if n > 1_000_000 {
					rounds = 1
					// also over links that do not copy from memory
					if size%2 == 1 {
						meshes = connectAll(t, size, func(c net.Conn) net.Conn { return far{c} })
					}
				}
				var wg sync.WaitGroup
				for r, m := range meshes {
					wg.Go(func() {
						scratch := make([]float32, ring.ScratchSize)
						for range rounds {
							data := make([]float32, n)
							for i := range data {
								data[i] = float32(i%97 + r)
							}
							if err := ring.Reduce(m, r, size, data, scratch); err != nil {
								t.Error(err)
								return
							}
							for i := range data {
								if want := float32(i%97*size + size*(size-1)/2); data[i] != want {
									t.Errorf("rank %d: data[%d] is %v, want %v", r, i, data[i], want)
									return
								}
							}
						}
						all, err := ring.Gather(m, r, size, fmt.Append(nil, "rank", r))
						if err != nil {
							t.Error(err)
							return
						}
						for i, b := range all {
							if string(b) != fmt.Sprint("rank", i) {
								t.Errorf("rank %d heard %q of %d", r, b, i)
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

// Recv of no bytes returns at once, also when the links are watched.
func TestReceiveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, 2)
		defer w.close()
		meshes := w.connect(1, 0, 1)
		defer closeAll(meshes)
		time.Sleep(2 * quiet)
		start := time.Now()
		time.AfterFunc(time.Second, func() { meshes[1].Break(io.EOF) })
		if err := meshes[0].Recv(1, nil); err != nil || time.Since(start) > 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}
