package ps

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/test/memnet"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
)

// relay is a network between a fleet and its clients that can lose whole nodes: what their
// connections carry is lost then, and neither end hears of it. Later connections are as good as
// any.
type relay struct {
	*fleet
	mu    sync.Mutex
	lost  chan struct{}
	dials int
}

func newRelay(f *fleet) *relay { return &relay{fleet: f, lost: make(chan struct{})} }

func (r *relay) dial(ctx context.Context, addr string) (net.Conn, error) {
	far, err := r.fleet.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dials++
	lost, lis := r.lost, memnet.Listen(1<<10)
	pump := func(to, from net.Conn) {
		b := make([]byte, 1<<10)
		for {
			n, err := from.Read(b)
			select {
			case <-lost:
				return
			default:
			}
			if n > 0 {
				to.Write(b[:n])
			}
			if err != nil {
				to.Close()
				return
			}
		}
	}
	go func() {
		near, err := lis.Accept()
		if err != nil {
			far.Close()
			return
		}
		go pump(near, far)
		pump(far, near)
	}()
	defer lis.Close()
	return lis.DialContext(ctx)
}

// vanish loses the node.
func (r *relay) vanish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.lost)
	r.lost = make(chan struct{})
}

func (r *relay) dialed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dials
}

func (r *relay) client() *Client {
	r.t.Helper()
	layout := dense(2000, 0)
	r.of(layout)
	config := r.clientConfig(0, layout)
	config.Dial = r.dial
	c, err := Dial(r.t.Context(), config)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

// A node that vanishes, without a word and whenever it is, keeps a worker as long as the control
// connection takes to notice it: not for the patience that a server is due which works.
func TestNodeVanishes(t *testing.T) {
	const n = 2000
	for name, during := range map[string]func(t *testing.T, r *relay, c *Client){
		"before a pull": func(t *testing.T, r *relay, c *Client) {
			r.vanish()
			r.pull(c, PullOptions{})
		},
		"in a push": func(t *testing.T, r *relay, c *Client) {
			s := r.server(0)
			s.takeTurn(t.Context())
			time.AfterFunc(time.Second, func() {
				r.vanish()
				s.yieldTurn()
			})
			if accepted, _ := r.push(c, filled(n, -1), Gradient{Versions: Versions{0}, Epoch: 1, To: 4,
				Of: 1000}); !accepted {
				t.Error("the gradient is refused")
			}
			got, v := r.pull(c, PullOptions{})
			want(t, got, filled(n, 1)) // once
			if v[0] != 1 {
				t.Error(v)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRelay(newFleet(t, 1, ServerConfig{}))
				c := r.client()
				r.pull(c, PullOptions{})
				time.Sleep(time.Minute)
				began := time.Now()
				during(t, r, c)
				if took := time.Since(began); took > timing.Vanish+2*time.Second {
					t.Errorf("it took %v to continue", took)
				}
			})
		})
	}
}

// A server that works and is slow is waited for, and connections at rest stay.
func TestPatience(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRelay(newFleet(t, 1, ServerConfig{}))
		c := r.client()
		push := func() { r.push(c, filled(2000, -1), Gradient{Versions: Versions{0}}) }
		push()
		before := r.dialed()
		time.Sleep(2 * time.Hour)
		s := r.server(0)
		s.takeTurn(t.Context())
		time.AfterFunc(patience-time.Second, s.yieldTurn)
		push()
		synctest.Wait()
		if after := r.dialed(); after != before {
			t.Errorf("%d connections, there were %d", after, before)
		}
	})
}
