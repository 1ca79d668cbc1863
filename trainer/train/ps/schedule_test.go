package ps

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/train/optim"
	"github.com/elasticdl/elasticdl/trainer/wire"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
)

// schedule is one random job over connections that break anywhere.
type schedule struct {
	*fleet
	servers, workers, rounds, size int
	// of servers, each started again
	kills int
	// held by the one who tells; durably waited for, unlike a mutex
	telling chan struct{}

	// The fleet's mutex guards what follows.
	rand *rand.Rand
	// by worker: the model generation in which it has done all of its records
	done map[int]int64
	// closed, and replaced, when one of these has
	changed chan struct{}
	// no server is killed any more
	calm bool
}

func newSchedule(t *testing.T, seed uint64, config ServerConfig) *schedule {
	r := rand.New(rand.NewPCG(seed, 2))
	s := &schedule{rand: r, servers: 1 + r.IntN(3), workers: 1 + r.IntN(4), rounds: 1 + r.IntN(8),
		size:    1 + r.IntN(200),
		telling: make(chan struct{}, 1)}
	config.Optimizer = optim.Config{Name: optim.SGD, LearningRate: 1}
	s.fleet = newFleet(t, s.servers, config)
	s.done, s.changed = make(map[int]int64), make(chan struct{})
	values := filled(s.size+1, 1000)
	s.of(dense(s.size, 1))
	s.init(nil, values)
	return s
}

// change changes what is guarded by mu, and has those look again who wait for it.
func (s *schedule) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// left counts the workers that have something to do in this generation.
func (s *schedule) left() int {
	n := s.workers
	for _, modelGeneration := range s.done {
		if modelGeneration == s.modelGeneration {
			n--
		}
	}
	return n
}

func (s *schedule) draw(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rand.IntN(n)
}

// handshake is about what TLS takes before anything is reported.
const handshake = 1500

func (s *schedule) dialFragile(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := s.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	c := &fragile{Conn: conn}
	c.left.Store(int64(handshake + 1<<s.draw(14)))
	return c, nil
}

// inform sends the servers the number of workers that may push, and the generation: one order after
// another, as the master gives them, since an older one that arrives last would stand. A server
// that is away gets it when it is back.
func (s *schedule) inform() {
	s.telling <- struct{}{}
	defer func() { <-s.telling }()
	s.mu.Lock()
	left := s.left()
	s.orders++
	order := &wire.ControlRequest{Contributors: int32(left), ModelGeneration: s.modelGeneration, Number: s.orders}
	s.mu.Unlock()
	if left == 0 {
		order.Settled = 1
	}
	for i := range s.servers {
		if s.server(i) == nil {
			continue
		}
		if _, err := s.control(i).Control(s.t.Context(), order); err != nil && s.kills == 0 {
			s.t.Error(err)
		}
	}
}

// work has the worker's records pushed in the model generation that turns out to be the last.
func (s *schedule) work(worker int, sync bool) error {
	for {
		s.mu.Lock()
		modelGeneration, changed := s.modelGeneration, s.changed
		over, did := s.calm && s.left() == 0, s.done[worker] == modelGeneration
		s.mu.Unlock()
		if over {
			return nil
		}
		if !did {
			err := s.live(worker, sync)
			if err == nil {
				s.change(func() { s.done[worker] = modelGeneration })
				s.inform()
				continue
			}
			if !errors.Is(err, ErrStaleModel) {
				return err
			}
			// it may have heard before the master's word is out
			time.Sleep(50 * time.Millisecond)
			continue
		}
		<-changed
	}
}

// live pushes the worker's records, each once, however often it must be computed, in one generation
// of the model.
func (s *schedule) live(worker int, sync bool) error {
	config := s.clientConfig(worker, dense(s.size, 1))
	config.Dial = s.dialFragile
	c, err := Dial(s.t.Context(), config)
	if err != nil {
		return err
	}
	defer c.Close()
	values := filled(s.size+1, 0)
	for round := 0; err == nil && round < s.rounds; {
		var accepted bool
		if accepted, err = s.step(c, values, sync, int64(worker), int64(round)); accepted {
			round++
		}
	}
	return err
}

// step pushes one record of a task.
func (s *schedule) step(c *Client, values []float32, sync bool, task, from int64) (bool, error) {
	v, err := c.Pull(s.t.Context(), values, PullOptions{After: sync, Whole: sync})
	if err != nil {
		return false, err
	}
	time.Sleep(time.Duration(s.draw(100)) * time.Millisecond)
	p, err := c.Push(s.t.Context(), filled(s.size+1, 1), Gradient{Versions: v, Epoch: 1, Task: task,
		From: from, To: from + 1, Of: 1000})
	for i := range p.Versions {
		if p.Versions[i] < v[i] {
			return false, fmt.Errorf("version %d of server %d after %d", p.Versions[i], i, v[i])
		}
	}
	if err == nil && p.Cut >= 0 {
		return false, fmt.Errorf("a server is at record %d, where %d is pushed", p.Cut, from)
	}
	return p.Accepted, err
}

// run runs the schedule.
func (s *schedule) run(sync bool) {
	s.t.Helper()
	s.inform()
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
			s.change(func() { s.modelGeneration++ })
			s.start(i)
			s.inform()
		}
		s.change(func() { s.calm = true })
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

// after holds the values of a span after some updates from 1000: gradients and observations are
// ones, the last element is the state.
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

// settled checks that every server has each gradient once, whatever befell the job.
func (s *schedule) settled(wait int) {
	s.t.Helper()
	values, v := s.end()
	n := int64(s.workers * s.rounds)
	for i, p := range s.client(100, dense(s.size, 1)).servers {
		want(s.t, p.part(values), s.after(p.span, v[i]))
		if v[i] > n || v[i]*int64(wait) < n {
			s.t.Fatalf("%d updates of %d gradients, %d at once", v[i], n, wait)
		}
	}
}

// schedules is by default one of each combination of --grads_to_wait and --sync_version_tolerance.
// `make simulation` runs more.
var schedules = flag.Uint64("schedules", 15, "number of seeds of TestSchedules")

// TestSchedules runs three jobs of each seed. All gradients are ones and the learning rate is 1, so
// a value tells the number of updates in it.
func TestSchedules(t *testing.T) {
	for seed := range *schedules {
		wait, tolerance := 1+int(seed%5), int(seed/5%3)
		gather := ServerConfig{GradsToWait: wait, SyncVersionTolerance: &tolerance}
		t.Run(fmt.Sprint("async ", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newSchedule(t, seed, ServerConfig{})
				s.run(false)
				s.settled(1)
			})
		})
		t.Run(fmt.Sprint("sync ", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newSchedule(t, seed, gather)
				s.run(true)
				s.settled(wait)
			})
		})
		// The servers that are killed lose their values, so all begin a new generation: in the last
		// one, too, each gradient is in every server's values once, and nobody waits for ever.
		t.Run(fmt.Sprint("kill ", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				config, most := ServerConfig{}, 1
				if seed%2 == 1 {
					config, most = gather, wait
				}
				s := newSchedule(t, seed, config)
				s.kills = 1 + s.draw(4)
				s.run(seed%2 == 1)
				s.settled(most)
			})
		})
	}
}
