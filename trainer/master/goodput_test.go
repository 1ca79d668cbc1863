package master

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/elasticdl/elasticdl/trainer/elastic/goodput"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// clocked is a worker whose heartbeats report where its time goes.
type clocked struct {
	w      *world
	mu     sync.Mutex
	client wire.MasterClient
	beat   *wire.HeartbeatRequest
	use    func(*wire.Spent) *int64
}

// computes is the use of a worker that trains: it makes ten steps a second.
func computes(s *wire.Spent) *int64 { return &s.ComputeMs }

// clocked starts a worker, which trains.
func (w *world) clocked(index int) *clocked {
	w.Helper()
	if _, err := w.Join(w.Context(), &wire.JoinRequest{Role: wire.Role_WORKER, Index: int32(index)}); err != nil {
		w.Fatal(err)
	}
	c := &clocked{w: w, client: w.MasterClient, use: computes, beat: &wire.HeartbeatRequest{
		Role: wire.Role_WORKER, Index: int32(index), Spent: new(wire.Spent)}}
	go c.live()
	synctest.Wait()
	return c
}

// finds makes the worker send its heartbeats to another master.
func (c *clocked) finds(client wire.MasterClient) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.client = client
}

// live passes the time of the worker, and sends heartbeats.
func (c *clocked) live() {
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-c.w.Context().Done():
			return
		}
		c.mu.Lock()
		used := c.use(c.beat.Spent)
		*used += 500
		if used == &c.beat.Spent.ComputeMs {
			c.beat.Steps += 5
		}
		beat, client := proto.Clone(c.beat).(*wire.HeartbeatRequest), c.client
		c.mu.Unlock()
		client.Heartbeat(c.w.Context(), beat)
	}
}

func (c *clocked) uses(u func(*wire.Spent) *int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.use = u
}

// adds runs something, and checks that it adds time to a cause, in seconds of all workers, and less
// than a second to any other.
func (w *world) adds(cause goodput.Cause, seconds int64, run func()) {
	w.Helper()
	before := w.look().Accounting
	run()
	after := w.look().Accounting
	sum := after.TrainingMs
	was := map[string]int64{}
	for _, l := range before.Lost {
		was[l.Cause] = l.Ms
	}
	found := cause == goodput.Training || seconds == 0
	for _, l := range after.Lost {
		sum += l.Ms
		want := int64(0)
		if l.Cause == cause.String() {
			want, found = 1000*seconds, true
		}
		if off := l.Ms - was[l.Cause] - want; off < -1000 || off > 1000 {
			w.Errorf("%v for %d s: %s has %d ms more", cause, seconds, l.Cause, l.Ms-was[l.Cause])
		}
	}
	off := after.TrainingMs - before.TrainingMs - 1000*seconds
	if cause == goodput.Training && (off < -1000 || off > 1000) {
		w.Errorf("training for %d s: %d ms more", seconds, after.TrainingMs-before.TrainingMs)
	}
	if !found || sum != after.WantedMs {
		w.Errorf("%v: %v", cause, after)
	}
}

// rests passes ten seconds.
func rests() { time.Sleep(10 * time.Second) }

// Waits of ten seconds each, from the queue to a rollback, are attributed within a second.
func TestAccountOfServers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) { c.Pods.(*fakePods).silent = true })
		is := func(e pod.Event) func() {
			return func() {
				for i := range 2 {
					e.ID, e.Incarnation = worker(i), 1
					w.pods.events <- e
				}
				rests()
			}
		}
		w.adds(goodput.Pending, 20, rests)
		w.pods.events <- pod.Event{ID: ps(0), Incarnation: 1, Phase: pod.Running}
		w.adds(goodput.Pending, 20, rests)
		w.adds(goodput.Queue, 20, is(pod.Event{Phase: pod.Pending, Queued: true}))
		w.adds(goodput.Pending, 20, is(pod.Event{Phase: pod.Pending}))
		w.adds(goodput.Image, 20, is(pod.Event{Phase: pod.Pending, Image: true}))
		w.adds(goodput.Start, 20, is(pod.Event{Phase: pod.Running}))
		w.join()
		a, b := w.clocked(0), w.clocked(1)
		time.Sleep(time.Second)
		w.adds(goodput.Training, 20, rests)
		waits := func(u func(*wire.Spent) *int64) func() {
			return func() {
				a.uses(u)
				rests()
				a.uses(computes)
				time.Sleep(time.Second)
			}
		}
		w.adds(goodput.Data, 10, waits(func(s *wire.Spent) *int64 { return &s.DataMs }))
		w.adds(goodput.Servers, 10, waits(func(s *wire.Spent) *int64 { return &s.ServersMs }))
		w.adds(goodput.Checkpoint, 10, waits(func(s *wire.Spent) *int64 { return &s.CheckpointMs }))
		w.adds(goodput.Forming, 10, waits(func(s *wire.Spent) *int64 { return &s.FormingMs }))
		w.adds(goodput.SlowestRank, 10, waits(func(s *wire.Spent) *int64 { return &s.PeersMs }))

		lease := w.task(0)
		w.done(0, lease)
		trained := w.look().Accounting.TrainingMs
		w.adds(goodput.Rollback, trained/1000, func() { w.kill(ps(0)) })
		w.adds(goodput.Servers, 20, rests)
		w.pods.events <- pod.Event{ID: ps(0), Incarnation: 2, Phase: pod.Running}
		w.join()
		time.Sleep(time.Second)
		w.adds(goodput.Training, 20, rests)
		a.uses(func(s *wire.Spent) *int64 { return &s.DataMs })
		b.uses(func(s *wire.Spent) *int64 { return &s.DataMs })
		w.adds(goodput.Data, 20, rests)
	})
}

// A ring of which a member is lost forms for ten seconds, and its slow worker is named.
func TestAccountOfRing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, peers := startRing(t, nil)
		tick := func(seconds int, own ...int64) {
			for range 2 * seconds {
				for i, p := range peers {
					p.mu.Lock()
					if p.beat.Spent == nil {
						p.beat.Spent = new(wire.Spent)
					}
					p.beat.Steps += 5
					p.beat.Spent.ComputeMs += own[i]
					p.beat.Spent.PeersMs += 500 - own[i]
					p.mu.Unlock()
				}
				time.Sleep(500 * time.Millisecond)
			}
		}
		tick(10, 500, 500)
		w.adds(goodput.SlowestRank, 8, func() { tick(10, 100, 500) })
		slow := w.look().Accounting.Slow
		if len(slow) != 1 || slow[0].Worker != 1 {
			t.Errorf("slow are %v", slow)
		}
		if got := w.look().Problems; len(got) != 1 ||
			!strings.HasPrefix(got[0], "worker-1 takes ") ||
			!strings.Contains(got[0], " times the median step: 100 ms, the others ") {
			t.Errorf("problems: %q", got)
		}
		tick(2, 500, 500)
		before := w.look().Accounting
		w.kill(worker(1))
		rests()
		after := w.look().Accounting
		lost := map[string]int64{}
		for _, l := range after.Lost {
			lost[l.Cause] = l.Ms
		}
		for _, l := range before.Lost {
			lost[l.Cause] -= l.Ms
		}
		for _, cause := range []goodput.Cause{goodput.Forming, goodput.Start} {
			if ms := lost[cause.String()]; ms < 9000 || ms > 11_000 {
				t.Errorf("%v: %d ms: %v", cause, ms, after)
			}
		}
	})
}

// A master is away for ten seconds. A worker that makes steps meanwhile has trained; one that waits
// for records waits for the master.
func TestAccountOverMasters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := reign(t, nil)
		r.join()
		a, b := r.clocked(0), r.clocked(1)
		time.Sleep(time.Minute)
		before := r.look().Accounting
		r.end(ErrSuperseded)
		<-r.ended
		b.uses(func(s *wire.Spent) *int64 { return &s.DataMs })
		rests()
		r.follow()
		a.finds(r.MasterClient)
		b.finds(r.MasterClient)
		r.rejoin(1)
		time.Sleep(time.Second)
		b.uses(computes)
		time.Sleep(10 * time.Second)
		after := r.look().Accounting
		away := int64(0)
		for _, l := range after.Lost {
			if l.Cause == goodput.MasterAway.String() {
				away = l.Ms
			}
		}
		wanted := after.WantedMs - before.WantedMs
		if wanted < 40_000 || wanted > 44_000 || away < 10_000 || away > 12_000 {
			t.Errorf("%d ms wanted, %d ms for the master: %v\nbefore: %v", wanted, away, after, before)
		}
	})
}

// The account is in the record, without its workers if the record would be too large, and the time
// after the end of a job does not count.
func TestAccountAtTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := reign(t, nil)
		r.join()
		r.clocked(0)
		rests()
		r.cancel()
		<-r.ended
		s, err := ReadJournal(r.memory.read())
		if err != nil {
			t.Fatal(err)
		}
		if s.Goodput.At != 0 || len(s.Goodput.Workers) > 0 || s.Goodput.Wanted != r.status.Accounting.WantedMs ||
			s.Goodput.Wanted < 140_000 {
			text, _ := json.Marshal(s.Goodput)
			t.Errorf("the record has %s, the status %v", text, r.status.Accounting)
		}
	})
}

// BenchmarkAccount measures one observation of a thousand workers, with their reports.
func BenchmarkAccount(b *testing.B) {
	a := new(account)
	v := goodput.View{Asked: thousand}
	for i := range thousand {
		v.Workers = append(v.Workers, goodput.Worker{Number: i})
	}
	now := time.UnixMilli(1)
	before := processorTime(b)
	for b.Loop() {
		now = now.Add(time.Second)
		for i := range v.Workers {
			c := &contact{heartbeats: now.UnixMilli(), steps: now.UnixMilli() / 100,
				spent: &wire.Spent{ComputeMs: now.UnixMilli() / 2, PeersMs: now.UnixMilli() / 3}}
			v.Workers[i].Spent = spentOf(c)
		}
		a.Observe(v, now)
		a.accounting()
	}
	b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N), "cpu-us/op")
}
