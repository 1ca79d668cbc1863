package ps

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/optim"
	"github.com/elasticdl/elasticdl/trainer/wire"

	"github.com/elasticdl/elasticdl/trainer/param"
)

// schedule is one random job over connections that break anywhere.
type schedule struct {
	*fleet
	servers, workers, rounds, size int
	kills                          int           // of servers, each started anew
	telling                        chan struct{} // held by the one who tells; durably waited for, unlike a mutex

	mu     sync.Mutex
	rand   *rand.Rand
	leased int // workers that have something to do yet
}

func newSchedule(t *testing.T, seed uint64, config ServerConfig) *schedule {
	r := rand.New(rand.NewPCG(seed, 2))
	s := &schedule{rand: r, servers: 1 + r.IntN(3), workers: 1 + r.IntN(4), rounds: 1 + r.IntN(8), size: 1 + r.IntN(200),
		telling: make(chan struct{}, 1)}
	config.Optimizer = optim.Config{Name: optim.SGD, LearningRate: 1}
	s.fleet = newFleet(t, s.servers, config)
	s.leased = s.workers
	return s
}

func (s *schedule) draw(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rand.IntN(n)
}

func (s *schedule) dialFragile(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := s.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	c := &fragile{Conn: conn}
	c.left.Store(int64(1 << s.draw(14)))
	return c, nil
}

// told makes the servers know how many workers may push: one order after another, as
// the master gives them, since an older one that arrives last would stand. A server
// that is away is told when it is back.
func (s *schedule) told() {
	s.telling <- struct{}{}
	defer func() { <-s.telling }()
	s.mu.Lock()
	left := s.leased
	s.mu.Unlock()
	for i := range s.servers {
		if s.server(i) == nil {
			continue
		}
		_, err := s.control(i).Control(s.t.Context(), &wire.ControlRequest{Contributors: int32(left), Flush: left == 0})
		if err != nil && s.kills == 0 {
			s.t.Error(err)
		}
	}
}

// work pushes the worker's records, each once, however often it must be
// computed. A server that is started anew gets the worker's values.
func (s *schedule) work(worker int, sync bool) error {
	config := s.clientConfig(worker, dense(s.size, 1))
	config.Dial = s.dialFragile
	c, err := Dial(s.t.Context(), config)
	if err != nil {
		return err
	}
	defer c.Close()
	values := filled(s.size+1, 1000)
	err = c.Init(s.t.Context(), values)
	for round := 0; err == nil && round < s.rounds; {
		var accepted bool
		accepted, err = s.step(c, values, sync, int64(worker+1), int64(round+1))
		switch {
		case errors.Is(err, ErrUninitialized):
			err = c.Init(s.t.Context(), values)
		case accepted:
			round++
		}
	}
	s.mu.Lock()
	s.leased--
	s.mu.Unlock()
	s.told()
	return err
}

func (s *schedule) step(c *Client, values []float32, sync bool, lease, done int64) (bool, error) {
	v, err := c.Pull(s.t.Context(), values, PullOptions{After: sync, Whole: sync})
	if err != nil {
		return false, err
	}
	time.Sleep(time.Duration(s.draw(100)) * time.Millisecond)
	accepted, after, err := c.Push(s.t.Context(), filled(s.size+1, 1), Gradient{Versions: v, Lease: lease, Done: done})
	for i := range after {
		if after[i] < v[i] && s.kills == 0 {
			return false, fmt.Errorf("version %d of server %d after %d", after[i], i, v[i])
		}
	}
	return accepted, err
}

// run plays the schedule.
func (s *schedule) run(sync bool) {
	s.t.Helper()
	s.told()
	errs := make(chan error)
	for w := range s.workers {
		go func() { errs <- s.work(w, sync) }()
	}
	go func() {
		for range s.kills {
			time.Sleep(time.Duration(s.draw(200)) * time.Millisecond)
			i := s.draw(s.servers)
			s.kill(i)
			time.Sleep(time.Duration(s.draw(2000)) * time.Millisecond)
			s.start(i)
			s.told()
		}
		errs <- nil
	}()
	for range s.workers + 1 {
		if err := <-errs; err != nil {
			s.t.Fatal(err)
		}
	}
}

// values and versions at the end.
func (s *schedule) end() ([]float32, Versions) {
	s.t.Helper()
	return s.pull(s.client(99, dense(s.size, 1)), PullOptions{})
}

// after is what a span holds after some updates from 1000: gradients and
// observations are ones, the last element is the state.
func (s *schedule) after(span param.Range, updates int64) []float32 {
	values := filled(span.Len(), 1000-float32(updates))
	if span.End == s.size+1 && span.Len() > 0 {
		state := float32(1000)
		for range updates {
			state = 0.75*state + 0.25
		}
		values[len(values)-1] = state
	}
	return values
}

// TestSchedules plays hundreds of jobs. All gradients are ones and the learning
// rate is 1, so a value tells the number of updates in it.
func TestSchedules(t *testing.T) {
	for seed := range uint64(100) {
		wait, tolerance := 1+int(seed%5), int(seed/5%3)
		gather := ServerConfig{GradsToWait: wait, SyncVersionTolerance: &tolerance}
		t.Run(fmt.Sprint("async ", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newSchedule(t, seed, ServerConfig{})
				s.run(false)
				values, v := s.end()
				n := int64(s.workers * s.rounds)
				want(t, values, s.after(param.Range{End: s.size + 1}, n))
				if slices.Min(v) != n || slices.Max(v) != n {
					t.Fatal(v, n)
				}
			})
		})
		t.Run(fmt.Sprint("sync ", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newSchedule(t, seed, gather)
				s.run(true)
				values, v := s.end()
				n := int64(s.workers * s.rounds)
				for i, p := range s.client(100, dense(s.size, 1)).servers {
					want(t, p.part(values), s.after(p.span, v[i]))
					if v[i] > n || v[i]*int64(wait) < n {
						t.Fatalf("%d updates of %d gradients, %d at once", v[i], n, wait)
					}
				}
			})
		})
		// Servers that are killed lose their state, not the job: every gradient is
		// accepted in the end, and nobody waits for ever.
		t.Run(fmt.Sprint("kill ", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				config := ServerConfig{}
				if seed%2 == 1 {
					config = gather
				}
				s := newSchedule(t, seed, config)
				s.kills = 1 + s.draw(4)
				s.run(seed%2 == 1)
			})
		})
	}
}
