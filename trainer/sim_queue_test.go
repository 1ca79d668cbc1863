package trainer_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/master"
)

// queue is the queue of a job, as Kueue has it: it admits pods one by one, the core first, and
// preempts elastic workers first. The master, which has nothing to wait for here, needs no quota.
// The mutex of pods guards it.
type queue struct {
	// number of pods that may have quota, and of those that may if nobody else needs any
	limit, most int
	// of pods, in the order of their creation
	created int
	// until then nobody changes the limit, which is too low for the core; only the goroutine that
	// injects faults looks at it
	starved time.Time
	// when the first limit is raised
	after time.Duration
	// number of the last change of the limit from outside
	turn               int
	preempted, yielded int
}

// drawQueue draws whether a job is in a queue, and with how much quota it begins.
func (s *simulation) drawQueue(seed uint64) {
	r := rand.New(rand.NewPCG(seed, 11))
	if s.calm || s.gentle || r.IntN(4) > 0 {
		return
	}
	s.enqueue(r)
}

func (s *simulation) enqueue(r *rand.Rand) {
	s.job.Queue = "team-a"
	s.job.QueueTimeout.Duration = time.Duration(5+r.IntN(25)) * time.Second
	s.queue = &queue{limit: r.IntN(s.job.NumPS + s.job.Core() + 1), most: 32,
		after: time.Duration(r.IntN(120)) * time.Second}
	s.faults = append(s.faults, fault{name: "others take quota", do: (*simulation).takeQuota})
}

// takeQuota has others take quota, and give it back after a while, pod by pod.
func (s *simulation) takeQuota() string {
	if time.Now().Before(s.queue.starved) {
		return ""
	}
	limit, after := s.random.IntN(s.job.NumPS+s.most()+1), s.any(time.Second, 90*time.Second)
	if core := s.job.NumPS + s.job.Core(); s.random.IntN(3) == 0 {
		limit, after = s.random.IntN(core), s.between(0, 4*s.job.AdmissionTime())
		s.queue.starved = time.Now().Add(after)
	}
	each := s.any(10*time.Millisecond, 5*time.Second)
	grace := s.between(50*time.Millisecond, 25*time.Second)
	victims := s.pods.squeeze(limit)
	for _, it := range victims {
		s.strike(it.ID.String())
		why := pod.Exit{Preempted: true, Code: 137, Signal: 9, Deleted: true}
		if !s.pods.ask(it.ID, why, grace, true) {
			s.pods.end(it.ID, it, why)
		}
	}
	s.pods.widen(after, each)
	return fmt.Sprintf("others leave a quota of %d pods, and give some back after %v, one each %v", limit, after, each)
}

// squeeze lowers the limit, and returns the pods that are beyond it, to be preempted.
func (p *pods) squeeze(limit int) []*process {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue.limit = limit
	p.queue.turn++
	var admitted []*process
	for _, it := range p.live {
		if !it.queued && !it.asked {
			admitted = append(admitted, it)
		}
	}
	p.admit()
	slices.SortFunc(admitted, compareQueued)
	victims := admitted[min(limit, len(admitted)):]
	p.queue.preempted += len(victims)
	return victims
}

// widen gives quota after a while, for a pod each time, until there is the most again or others
// take some.
func (p *pods) widen(after, each time.Duration) {
	p.mu.Lock()
	turn := p.queue.turn
	p.mu.Unlock()
	var give func()
	give = func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if q := p.queue; q.turn == turn && q.limit < q.most {
			q.limit++
			p.admit()
			time.AfterFunc(each, give)
		}
	}
	time.AfterFunc(after, give)
}

// compareQueued sorts pods in the order in which they are admitted.
func compareQueued(a, b *process) int {
	rank := func(it *process) int {
		if it.ID.Role == pod.PS || it.Core {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.order, b.order))
}

// stand has a pod wait in the queue, if there is one. The mutex is held.
func (p *pods) stand(it *process) {
	if p.queue == nil {
		close(it.admitted)
		return
	}
	p.queue.created++
	it.queued, it.order = true, p.queue.created
	p.events <- it.event(pod.Pending)
}

// admit gives quota to pods that wait. The mutex is held.
func (p *pods) admit() {
	if p.queue == nil {
		return
	}
	var waiting []*process
	for _, it := range p.live {
		if it.queued {
			waiting = append(waiting, it)
		}
	}
	slices.SortFunc(waiting, compareQueued)
	free := max(0, p.queue.limit-(len(p.live)-len(waiting)))
	for _, it := range waiting[:min(free, len(waiting))] {
		it.queued = false
		close(it.admitted)
		p.events <- it.event(pod.Pending)
	}
}

// event returns what the cluster says of a pod.
func (it *process) event(phase pod.Phase) pod.Event {
	return pod.Event{ID: it.ID, Incarnation: it.Incarnation, Phase: phase, Core: it.Core,
		Queued: phase == pod.Pending && it.queued}
}

// yields does what a launcher does when a master has given the quota of its job back: it ends all
// pods, and begins the next master after a pause.
func (s *simulation) yields(ctx context.Context, y *master.Yielded) {
	s.pods.adopt(make(chan pod.Event, 4096)) // nobody hears
	s.pods.sweep()
	s.note(func() { s.reign = nil })
	s.pods.mu.Lock()
	s.queue.yielded++
	s.pods.mu.Unlock()
	s.say(fmt.Sprintf("%v; the next master begins after %v", y, y.Pause))
	sleep(ctx, y.Pause)
}

// sweep kills all pods.
func (p *pods) sweep() {
	p.mu.Lock()
	var all []*process
	for _, it := range p.live {
		all = append(all, it)
	}
	p.mu.Unlock()
	slices.SortFunc(all, func(a, b *process) int {
		return a.ID.Compare(b.ID)
	})
	for _, it := range all {
		p.end(it.ID, it, pod.Exit{Code: 137})
	}
}

// TestQueuedJobs runs jobs of each kind to which nothing happens but that others take the quota of
// their queue, of any number of pods.
func TestQueuedJobs(t *testing.T) {
	for name, newJob := range map[string]func(uint64, string) *simulation{
		"servers": newSimulation, "ring": newRingSimulation, "program": newProgramSimulation,
	} {
		t.Run(name, func(t *testing.T) {
			preempted, yielded := 0, 0
			for seed := uint64(1); seed <= 20; seed++ {
				t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
					s := newJob(seed, t.TempDir())
					s.calm, s.gentle, s.stopped, s.measure, s.export = false, false, 0, 0, 0
					s.faults, s.refuse, s.delay, s.pause = nil, 0, 0, 8*time.Second
					s.step = time.Second
					s.enqueue(rand.New(rand.NewPCG(seed, 12)))
					simulate(t, seed, s)
					preempted, yielded = preempted+s.queue.preempted, yielded+s.queue.yielded
				})
			}
			t.Logf("%d pods were preempted, and %d times a job gave its quota back", preempted, yielded)
			if preempted < 20 || yielded < 5 {
				t.Error("want more")
			}
		})
	}
}
