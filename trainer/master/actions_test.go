package master

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Pods are created concurrently: a slow creation does not delay the others.
func TestPodsAreMadeAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) { c.Job.NumWorkers = 30 })
		w.join()
		w.pods.mu.Lock()
		w.pods.before = func(context.Context, Pod) error { time.Sleep(time.Second); return nil }
		w.pods.mu.Unlock()
		for i := range 30 {
			w.pods.end(pod.ID{Role: pod.Worker, Index: i}, pod.Exit{Deleted: true})
		}
		time.Sleep(1100 * time.Millisecond)
		for i := range 30 {
			if !w.pods.isRunning(pod.ID{Role: pod.Worker, Index: 30 + i}) {
				t.Errorf("worker-%d does not run a second after its predecessor was lost", 30+i)
			}
		}
	})
}

// The number of concurrent creations is bounded, for a thousand pods, too.
func TestPodsAreNotMadeAllAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		at, most := 0, 0
		w := start(t, func(c *Config) {
			c.Job.NumWorkers = 1000
			pods := c.Pods.(*fakePods)
			pods.events = make(chan pod.Event, 2000)
			pods.before = func(context.Context, Pod) error {
				pods.mu.Lock()
				at++
				most = max(most, at)
				pods.mu.Unlock()
				time.Sleep(time.Second)
				pods.mu.Lock()
				at--
				pods.mu.Unlock()
				return nil
			}
		})
		if n := len(w.pods.running()); n != 1001 || most != creating {
			t.Errorf("%d pods run, of which %d were made at once", n, most)
		}
	})
}

// A creation that is not answered holds up neither the others nor the end of the job.
func TestCreationThatIsNotAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ended := make(chan struct{})
		w := start(t, func(c *Config) {
			c.Pods.(*fakePods).before = func(ctx context.Context, p Pod) error {
				if p.ID.Index == 1 {
					<-ctx.Done()
					close(ended)
					return ctx.Err()
				}
				return nil
			}
		})
		w.join()
		if !w.pods.isRunning(pod.ID{Role: pod.Worker, Index: 0}) {
			t.Error("worker-0 waits for worker-1")
		}
		if _, err := w.Stop(w.Context(), &wire.StopRequest{}); err != nil {
			t.Fatal(err)
		}
		asked := time.Now()
		<-w.ended
		<-ended
		if took := time.Since(asked); took > time.Second {
			t.Errorf("the job ended after %v", took)
		}
	})
}

// A pod that can never be created fails the job, with the reason.
func TestHopelessCreation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) {
			c.Pods.(*fakePods).before = func(_ context.Context, p Pod) error {
				if p.ID.Role == pod.Worker {
					return fmt.Errorf("%w: no such field", ErrHopeless)
				}
				return nil
			}
		})
		<-w.ended
		if w.err == nil || !strings.Contains(w.status.Reason, "impossible: no such field") ||
			w.status.State != "Failed" {
			t.Errorf("%v; %v", w.err, w.status)
		}
	})
}

// A job whose pods have run continues while the creation of a replacement is denied, and reports
// why. It waits for its servers as well.
func TestDeniedReplacementEndsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var denied atomic.Bool
		var asked atomic.Int32
		w := start(t, func(c *Config) {
			c.Pods.(*fakePods).before = func(context.Context, Pod) error {
				if !denied.Load() {
					return nil
				}
				asked.Add(1)
				return fmt.Errorf("%w: admission webhook denied the request", ErrHopeless)
			}
		})
		w.join()
		w.task(1)
		denied.Store(true)
		w.pods.end(worker(0), pod.Exit{NodeLost: true})
		if _, err := w.Scale(t.Context(), &wire.ScaleRequest{Workers: 3}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		select {
		case <-w.ended:
			t.Fatalf("a healthy job has ended: %v", w.err)
		default:
		}
		for _, p := range w.look().Pods[2:] {
			want := "cannot be created: impossible: admission webhook denied the request"
			if p.EndedUnixMs == 0 && p.Index != 1 && (p.State != "Pending" || p.Reason != want) {
				t.Errorf("%v", p)
			}
		}
		// of two pods, after 1, 2, 4, 8 and 16 seconds, then every 30 seconds
		if n := asked.Load(); n < 20 || n > 40 {
			t.Errorf("asked %d times", n)
		}
		denied.Store(false)
		time.Sleep(time.Minute)
		if got := w.pods.running(); len(got) != 4 {
			t.Errorf("%v running", got)
		}
		denied.Store(true)
		w.pods.end(ps(0), pod.Exit{NodeLost: true})
		time.Sleep(5 * time.Minute)
		denied.Store(false)
		time.Sleep(time.Minute)
		if !w.pods.isRunning(ps(0)) {
			t.Error("the server does not run")
		}
	})
}

// With capacity for two pods, a job of three trains: the server is created first, and gets capacity
// even if other jobs take that of a lost server.
func TestServersHaveRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var room atomic.Int32
		room.Store(2)
		pods := newFakePods()
		pods.before = func(_ context.Context, p Pod) error {
			if p.ID.Role == pod.PS {
				time.Sleep(time.Second) // as slow as an API server can be
			}
			if len(pods.running()) >= int(room.Load()) {
				return ErrFull
			}
			return nil
		}
		w := start(t, func(c *Config) { c.Pods = pods })
		time.Sleep(2 * time.Second)
		w.join()
		if got := pods.running(); !slices.Equal(got, []pod.ID{ps(0), worker(0)}) &&
			!slices.Equal(got, []pod.ID{ps(0), worker(1)}) {
			t.Fatalf("%v running", got)
		}
		room.Store(1)
		pods.end(ps(0), pod.Exit{NodeLost: true})
		time.Sleep(20 * time.Second)
		if got := pods.running(); !slices.Equal(got, []pod.ID{ps(0)}) {
			t.Fatalf("%v running", got)
		}
		w.join()
		room.Store(3)
		time.Sleep(time.Minute)
		if n := len(pods.running()); n != 3 {
			t.Errorf("%d pods running", n)
		}
	})
}

// A deletion that was refused is not repeated on the next incarnation of the pod.
func TestDeletionIsOfOneIncarnation(t *testing.T) {
	m := &master{shared: shared{mu: make(turn, 1)}, fleet: &fleet{table: pod.New(pod.Policy{Servers: 1})}}
	id, now := pod.ID{Role: pod.PS, Index: 0}, time.Now()
	m.fleet.table.Start(now)
	m.fleet.table.Observe(pod.Event{ID: id, Phase: pod.Running}, now)
	if m.hasEnded(pod.Action{ID: id, Incarnation: 1}) {
		t.Error("a running pod has ended")
	}
	m.fleet.table.Observe(pod.Event{ID: id, Phase: pod.Deleted}, now)
	if !m.hasEnded(pod.Action{ID: id, Incarnation: 1}) {
		t.Error("a deleted pod has not ended")
	}
}

// refusing has fake pods whose first deletion is refused.
type refusing struct {
	*fakePods
	refused chan pod.ID
}

func (p refusing) Adopt(context.Context) ([]pod.Event, error) { return nil, nil }

func (p refusing) Delete(ctx context.Context, id pod.ID) error {
	select {
	case p.refused <- id:
		return errors.New("not now")
	default:
		return p.fakePods.Delete(ctx, id)
	}
}

// If a server ends before its refused deletion is repeated, its successor is not deleted.
func TestDeletionSparesTheNextIncarnation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, err := newMaster(Config{Job: job.Default(), Self: firstMaster(),
			Training: []task.Shard{{Name: "shard-0", Count: 8}}, Pods: refusing{newFakePods(), make(chan pod.ID, 1)}})
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		m.fleet.table.Start(now)
		m.fleet.table.Observe(pod.Event{ID: ps(0), Incarnation: 1, Phase: pod.Running}, now)
		go m.delete(t.Context(), pod.Action{Verb: pod.Delete, ID: ps(0), Incarnation: 1})
		synctest.Wait() // now the deletion has been refused
		m.mu.Lock()
		m.fleet.table.Observe(pod.Event{ID: ps(0), Incarnation: 1, Phase: pod.Deleted}, now.Add(time.Minute))
		m.mu.Unlock()
		time.Sleep(2 * deleteAgain)
		if deleted := m.Pods.(refusing).ended(); len(deleted) > 0 {
			t.Errorf("%v was deleted", deleted)
		}
	})
}

// The executor takes all orders at once, in their order, after one signal.
func TestOrders(t *testing.T) {
	o := newOrders()
	o.put(pod.Action{Verb: pod.Create, ID: worker(0)})
	o.put(pod.Action{Verb: pod.Create, ID: worker(1)})
	if taken := o.take(); len(o.ready) != 1 || len(taken) != 2 || taken[0].ID != worker(0) || taken[1].ID != worker(1) {
		t.Errorf("%d signals, took %v", len(o.ready), taken)
	}
	if taken := o.take(); len(taken) != 0 {
		t.Errorf("took %v again", taken)
	}
}
