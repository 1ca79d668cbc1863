//go:build e2e

package scale

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

var (
	churnTime = flag.Duration("churn", 10*time.Minute,
		"of TestQueueChurn: time for which the elastic jobs work, about; the others take longer")
	churnWorkers = flag.Int("churn-workers", 100, "of TestQueueChurn: workers of each job, a multiple of 4")
)

// fairly is the least share of the CPUs that they want that the others must have held: a job must
// not gain from their wait.
const fairly = 0.85

// churned is the result of two jobs under churn.
type churned struct {
	panel Panel
	ends  []time.Duration
	// CPUs that all queues have
	total float64
	// CPU seconds until the last end: that others wanted and held, of running workers, of
	// minibatches that are in the models, and of minibatches that were done again
	wanted, others, ran, useful, again float64
	// number of pods that were replaced, and of times that a job was suspended
	relaunched int64
	suspended  int
	// longest time in which a job pushed nothing, since half of its workers ran
	still []time.Duration
	// of each workload of the others, until it ran; sorted
	waits []time.Duration
	// most CPUs that were reserved at once, and number of states that were seen
	most   int64
	states int
}

// makespan returns when both jobs were done, or 0.
func (c *churned) makespan() time.Duration { return slices.Max(append(c.ends, 0)) }

// left returns the CPU seconds that the others left to the jobs.
func (c *churned) left() float64 { return c.total*c.makespan().Seconds() - c.others }

// TestQueueChurn measures two jobs in queues while other teams take quota and give it back. The API
// server, Kueue and the masters are real.
//
// Three ClusterQueues form a cohort of 204 CPUs: 52 for each of the jobs' teams, and 100 for the
// others. Each job wants 102: a master, a server and 100 workers. It borrows what nobody uses. By a
// seeded schedule up to 25 workloads of the others arrive at once, of 4 CPUs each, and reclaim
// their quota (reclaimWithinCohort: Any). Each of them runs for a fixed time once it is admitted,
// and the amount of work of a job is fixed, too: the elastic jobs need about -churn for it.
//
// The jobs run twice, by the same schedule on the same control plane, one way after the other:
//
//   - worker by worker: with --queue and --min_workers=4, each pod is a workload of its own.
//   - whole: the baseline. A plain Job stands for all pods of a job. Its Workload has one pod set,
//     which requests 102 CPUs at once; its only pod is never scheduled. Kueue admits, suspends and
//     resumes this Job. The test does the same to the job within 100 ms, as `elasticdl suspend` and
//     `elasticdl resume` do: the master makes a checkpoint, all pods end, and the pods of the next
//     master continue from it. The pods themselves are not in the queue.
//
// Two things favor the baseline. Kueue counts the quota of a suspended Job as free before the job's
// pods have ended. And a checkpoint takes no time to write and read.
//
// Both ways, no more quota is reserved at any time than there is, and each record is credited once
// and is in the model once. Worker by worker, no core is lost, and the other workers continue.
func TestQueueChurn(t *testing.T) {
	var elastic, whole churned
	t.Run("by worker", func(t *testing.T) { elastic = churnJobs(open(t), false) })
	t.Run("whole", func(t *testing.T) { whole = churnJobs(open(t), true) })
	if elastic.makespan() == 0 || whole.makespan() == 0 { // one failed, or -run has left it out
		return
	}
	t.Logf("%d workers in each of two jobs, seed %d\n%s", *churnWorkers, *seed, churnTable(&elastic, &whole))
	draw(t, "queue-churn.svg", Chart(1, whole.panel, elastic.panel))
	if whole.suspended == 0 || elastic.relaunched == 0 {
		t.Errorf("%d pods were replaced, and jobs suspended %d times: the others took no quota", elastic.relaunched,
			whole.suspended)
	}
	if e, w := elastic.makespan(), whole.makespan(); e >= w {
		t.Errorf("the jobs take %v worker by worker, and %v whole: want less", e, w)
	}
}

func churnTable(elastic, whole *churned) string {
	var b strings.Builder
	row := func(what string, value func(c *churned) string) {
		fmt.Fprintf(&b, "%-52s %14s %14s\n", what, value(elastic), value(whole))
	}
	fmt.Fprintf(&b, "%-52s %14s %14s\n", "", "by worker", "whole")
	sec := func(d time.Duration) string { return format("%.1f s", d.Seconds()) }
	share := func(of, all float64) string { return format("%.1f %%", 100*of/all) }
	for i := range 2 {
		row(format("job %d ends", i+1), func(c *churned) string { return sec(c.ends[i]) })
	}
	row("makespan", func(c *churned) string { return sec(c.makespan()) })
	row("CPUs that the others wanted, mean", func(c *churned) string {
		return format("%.1f", c.wanted/c.makespan().Seconds())
	})
	row("CPUs that the others held, mean", func(c *churned) string {
		return format("%.1f", c.others/c.makespan().Seconds())
	})
	row("wait of their workloads: median, longest", func(c *churned) string {
		return format("%.1f, %.1f s", c.waits[len(c.waits)/2].Seconds(), c.waits[len(c.waits)-1].Seconds())
	})
	row("of the quota left: used by running workers", func(c *churned) string { return share(c.ran, c.left()) })
	row("of the quota left: used by minibatches in the model", func(c *churned) string {
		return share(c.useful, c.left())
	})
	row("minibatches done again", func(c *churned) string { return share(c.again, c.useful) })
	row("pods replaced", func(c *churned) string { return fmt.Sprint(c.relaunched) })
	row("suspended", func(c *churned) string { return fmt.Sprint(c.suspended) })
	row("longest standstill of a job", func(c *churned) string { return sec(slices.Max(c.still)) })
	row("most CPUs reserved at once", func(c *churned) string { return fmt.Sprintf("%d of %.0f", c.most, c.total) })
	row("states of the workloads that were seen", func(c *churned) string { return fmt.Sprint(c.states) })
	fmt.Fprintf(&b, "makespan, by worker / whole: %.3f\n", elastic.makespan().Seconds()/whole.makespan().Seconds())
	return b.String()
}

// churnJobs runs two jobs under churn until both are done.
func churnJobs(s *theatre, whole bool) churned {
	const each, batch = time.Second, 2
	n := *churnWorkers
	wants := int64(n + 2) // with a master and a server
	q := s.queue(map[string]int64{"team-1": int64(n/2 + 2), "team-2": int64(n/2 + 2), others: int64(n)})
	arrivals := schedule(*seed, n/portion, 10**churnTime)
	// what is left to the workers of a job, on average
	mean := float64(n) - offered(arrivals, *churnTime)/(*churnTime).Seconds()/2
	minibatches := int(0.95 * mean * (*churnTime).Seconds() / each.Seconds())

	meter, stop := s.measure(ownerInQueue)
	c := churned{total: float64(q.total()), ends: make([]time.Duration, 2), still: make([]time.Duration, 2)}
	var jobs []*play
	began := time.Now()
	for i := range 2 {
		job := &play{name: format("job-%d", i+1), minibatches: minibatches, batch: batch, perTask: 4, each: each,
			checkpoints: filepath.Join(s.dir, format("checkpoints-%d", i+1))}
		jobs = append(jobs, job)
		flags := []string{format("--num_workers=%d", n), "--suspend"}
		team := format("team-%d", i+1)
		if !whole {
			flags = []string{format("--num_workers=%d", n), "--min_workers=4", "--queue=" + team,
				"--queue_priorities=workload"}
		}
		s.submit(job, flags...)
		if whole {
			q.stand(job, team, wants)
		}
	}
	churning, calm := context.WithCancel(s.Context())
	var churn sync.WaitGroup
	churn.Go(func() { q.churn(churning, arrivals) })
	defer churn.Wait()
	defer calm()

	moved, versions := []time.Time{{}, {}}, []int64{0, 0}
	s.until("end of both jobs", 6**churnTime+5*time.Minute, func() bool {
		for i, job := range jobs {
			if c.ends[i] > 0 {
				continue
			}
			if v := job.ledger.work(); v > versions[i] {
				if !moved[i].IsZero() {
					c.still[i] = max(c.still[i], time.Since(moved[i]))
				}
				versions[i] = v
				if !moved[i].IsZero() || s.count(job.name, pod.Worker, running) >= n/2 {
					moved[i] = time.Now()
				}
			}
			if whole {
				c.suspended += q.follow(job)
			}
			if s.done(job) {
				c.ends[i] = time.Since(began)
				if whole {
					q.release(job)
				}
			}
		}
		return slices.Min(c.ends) > 0
	})
	calm()
	churn.Wait()
	stop()
	for i, job := range jobs {
		status := s.audit(job)
		c.relaunched += status.Relaunched
		useful := float64(job.minibatches) * each.Seconds()
		c.useful += useful
		c.again += float64(job.ledger.work())/batch*each.Seconds() - useful
		if whole {
			continue
		}
		if status.ModelGeneration != 1 {
			s.Errorf("%s is in model generation %d: a server was lost", job.name, status.ModelGeneration)
		}
		if c.still[i] > 10*time.Second {
			s.Errorf("%s pushed nothing for %v, want 10s at most", job.name, c.still[i])
		}
	}
	end := c.makespan()
	c.wanted = offered(arrivals, end)
	c.others = area(meter.samples, end, others)
	if c.others < fairly*c.wanted {
		s.Errorf("the others held %.0f CPU seconds of %.0f that they wanted: the makespans are not comparable",
			c.others, c.wanted)
	}
	c.ran = area(meter.samples, end, "job 1", "job 2")
	q.mu.Lock()
	c.most, c.states, c.waits = q.most, q.states, slices.Sorted(slices.Values(q.waits))
	q.mu.Unlock()
	if c.most == 0 || c.most > q.total() {
		s.Errorf("%d CPUs were reserved at once, want %d at most", c.most, q.total())
	}
	how := "worker by worker"
	if whole {
		how = "evicted whole"
	}
	c.panel = Panel{
		Title: format("%s: both jobs are done after %.0f s; their workers use %.0f %% of the quota left by others",
			how, end.Seconds(), 100*c.ran/c.left()),
		Owners: []string{others, "job 1", "job 2", "masters, servers"}, Capacity: c.total, Samples: meter.samples,
		End:   end,
		Marks: []Mark{{c.ends[0], "job 1 done"}, {c.ends[1], "job 2 done"}},
	}
	return c
}

// area returns the CPU seconds of some owners until a time.
func area(samples []Sample, end time.Duration, owners ...string) float64 {
	var only []Sample
	for _, s := range samples {
		cpus := make(map[string]float64)
		for _, name := range owners {
			cpus[name] = s.CPUs[name]
		}
		only = append(only, Sample{s.At, cpus})
	}
	return mean(only, 0, end) * end.Seconds()
}
