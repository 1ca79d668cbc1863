package admission

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var (
	firstSeed = flag.Uint64("seed", 1, "first seed of TestContest")
	seeds     = flag.Uint64("seeds", 200, "number of seeds")
)

// workload is a pod in the model of a queue.
type workload struct {
	of       *contestant
	cost     int
	core     bool
	role     string
	queued   time.Time
	admitted bool
	// it was deleted, and its quota is free at that time
	leaves time.Time
}

// contestant is a job of the model.
type contestant struct {
	name                   string
	submitted              time.Time
	master, pod            int // what each costs
	servers, workers, more int // of the core; beyond it
	lasts                  time.Duration
	machine                *Admission
	begins                 time.Time // the master is created
	runs                   time.Time // the master works
	attempts, yields       int
	done                   time.Duration
	ended                  time.Time
}

// contest is a model of Kueue: a queue by priority and time, from which everything that fits is
// admitted (BestEffortFIFO), and jobs in it.
type contest struct {
	now      time.Time
	quota    int
	preempts bool
	random   *rand.Rand
	jobs     []*contestant
	queue    []*workload
	// what is admitted now, and the most that ever was
	used, most int
}

const tick = time.Second

func newContest(seed uint64) *contest {
	r := rand.New(rand.NewPCG(seed, 7))
	c := &contest{now: time.Unix(1e9, 0), random: r, preempts: r.IntN(2) == 0}
	n := []int{2, 3, 10}[seed%3]
	largest := 0
	for i := range n {
		j := &contestant{name: fmt.Sprint(i), master: r.IntN(3), pod: 1 + r.IntN(3), servers: r.IntN(3),
			workers: 1 + r.IntN(4), more: r.IntN(4), lasts: time.Duration(20+r.IntN(600)) * time.Second,
			submitted: c.now.Add(time.Duration(r.IntN(1+int(seed%4)*10000)) * time.Millisecond)}
		j.begins = j.submitted
		largest = max(largest, j.cost())
		c.jobs = append(c.jobs, j)
	}
	c.quota = largest + r.IntN(1+largest/2)
	return c
}

// cost returns the quota of the core.
func (j *contestant) cost() int { return j.master + j.pod*(j.servers+j.workers) }

// step lets a second pass.
func (c *contest) step(t *testing.T) {
	c.now = c.now.Add(tick)
	c.queue = slices.DeleteFunc(c.queue, func(w *workload) bool {
		gone := !w.leaves.IsZero() && !c.now.Before(w.leaves)
		if gone && w.admitted {
			c.used -= w.cost
		}
		return gone
	})
	for _, i := range c.random.Perm(len(c.jobs)) {
		c.play(c.jobs[i])
	}
	c.admit()
	if c.most = max(c.most, c.used); c.used > c.quota || c.used < 0 {
		t.Fatalf("%d of %d is used", c.used, c.quota)
	}
}

// play does the work of launcher and master of a job.
func (c *contest) play(j *contestant) {
	switch {
	case !j.ended.IsZero():
		return
	case !j.begins.IsZero() && !c.now.Before(j.begins):
		j.begins = time.Time{}
		c.add(j, j.master, true, "master")
		return
	}
	pods := c.of(j)
	if len(pods) == 0 || !pods[0].admitted {
		return // the launcher waits
	}
	if j.runs.IsZero() {
		j.runs = c.now.Add(time.Duration(1+c.random.IntN(4)) * time.Second)
	}
	if c.now.Before(j.runs) {
		return
	}
	if j.machine == nil {
		j.machine = New(Policy{Timeout: time.Minute, Random: c.random.Float64}, j.attempts)
	}
	c.replace(j, pods)
	f := c.facts(j)
	if f.Admitted == f.Core {
		j.done += tick
	}
	if j.done >= j.lasts {
		j.ended = c.now
		c.drop(c.of(j))
		return
	}
	switch a := j.machine.Step(f, c.now); {
	case a == nil:
	case a.Verb == Shed:
		elastic := slices.DeleteFunc(c.of(j), func(w *workload) bool { return w.core || !w.admitted })
		c.drop(elastic[:a.Workers])
	default:
		j.attempts, j.machine, j.runs = j.machine.Attempts(), nil, time.Time{}
		j.yields++
		j.begins = c.now.Add(a.Pause)
		c.drop(c.of(j))
	}
}

// replace creates the pods that are missing.
func (c *contest) replace(j *contestant, pods []*workload) {
	servers, workers, elastic := 0, 0, 0
	for _, w := range pods {
		switch {
		case w.role == "server":
			servers++
		case w.role == "worker" && w.core:
			workers++
		case w.role == "worker":
			elastic++
		}
	}
	for range j.servers - servers {
		c.add(j, j.pod, true, "server")
	}
	for range j.workers - workers {
		c.add(j, j.pod, true, "worker")
	}
	for range j.more - elastic {
		c.add(j, j.pod, false, "worker")
	}
}

// facts counts as the table of pods does: any workers are those of the core.
func (c *contest) facts(j *contestant) Facts {
	f := Facts{Core: 1 + j.servers + j.workers}
	workers, queued := 0, 0
	for _, w := range c.of(j) {
		switch {
		case w.role != "worker" && w.admitted:
			f.Admitted++
		case w.role != "worker":
			f.Waiting++
		case w.admitted:
			workers++
		default:
			queued++
		}
	}
	f.Admitted += min(workers, j.workers)
	f.Waiting += min(queued, max(0, j.workers-workers))
	f.Elastic = max(0, workers-j.workers)
	return f
}

func (c *contest) add(j *contestant, cost int, core bool, role string) {
	c.queue = append(c.queue, &workload{of: j, cost: cost, core: core, role: role, queued: c.now})
}

// of returns the pods of a job that are not deleted, its master's first.
func (c *contest) of(j *contestant) (pods []*workload) {
	for _, w := range c.queue {
		if w.of == j && w.leaves.IsZero() {
			pods = append(pods, w)
		}
	}
	rank := func(w *workload) int {
		if w.role == "master" {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(pods, func(a, b *workload) int {
		return cmp.Compare(rank(a), rank(b))
	})
	return pods
}

// drop deletes pods. Those that run need a moment.
func (c *contest) drop(pods []*workload) {
	for _, w := range pods {
		w.leaves = c.now
		if w.admitted {
			w.leaves = c.now.Add(time.Duration(c.random.IntN(5000)) * time.Millisecond)
		}
	}
}

// admit gives quota to those that wait: the core first, then in the order of their creation.
func (c *contest) admit() {
	rank := func(w *workload) int {
		if w.core {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(c.queue, func(a, b *workload) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.queued.Compare(b.queued))
	})
	for _, w := range c.queue {
		switch {
		case w.admitted || !w.leaves.IsZero():
		case c.used+w.cost <= c.quota:
			w.admitted = true
			c.used += w.cost
		case c.preempts && w.core:
			c.preempt(w)
		}
	}
}

// preempt deletes elastic workers if their quota suffices for a pod of a core.
func (c *contest) preempt(w *workload) {
	need := c.used + w.cost - c.quota
	var victims []*workload
	for _, v := range slices.Backward(c.queue) {
		if v.core || !v.admitted || need <= 0 {
			continue
		}
		need -= v.cost
		if v.leaves.IsZero() {
			victims = append(victims, v)
		}
	}
	if need <= 0 {
		c.drop(victims)
	}
}

// TestContest: any number of jobs on a quota for one to one and a half of them get through (law 4).
// -seed and -seeds repeat one, or play more.
func TestContest(t *testing.T) {
	const patience = 24 * time.Hour
	var makespans []float64
	yields, jobs := 0, 0
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		c := newContest(seed)
		began := c.now
		var alone time.Duration
		for _, j := range c.jobs {
			alone += j.lasts
		}
		for slices.ContainsFunc(c.jobs, func(j *contestant) bool { return j.ended.IsZero() }) {
			if c.step(t); c.now.Sub(began) > patience {
				for _, j := range c.jobs {
					t.Logf("%+v", *j)
				}
				t.Fatalf("seed %d: jobs do not get through on a quota of %d", seed, c.quota)
			}
		}
		for _, j := range c.jobs {
			yields += j.yields
		}
		jobs += len(c.jobs)
		makespans = append(makespans, c.now.Sub(began).Seconds()/alone.Seconds())
	}
	slices.Sort(makespans)
	t.Logf("%d contests: makespan to the time of one job after the other: median %.2f, p90 %.2f, most %.2f; %.2f "+
		"yields a job", len(makespans), makespans[len(makespans)/2], makespans[len(makespans)*9/10],
		makespans[len(makespans)-1], float64(yields)/float64(jobs))
}
