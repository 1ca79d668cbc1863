//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// inQueue returns the flags of a job whose pods wait in the queue of a team.
func inQueue(team string, minWorkers int) []string {
	return []string{"--queue=" + team, fmt.Sprint("--min_workers=", minWorkers)}
}

// Two teams form a cohort. A job of the first has a core of a master and two workers, and two more
// workers on quota that the second does not use. The second team reclaims its quota with two pods
// that are no part of a job, one after the other. Each has its quota at once, and runs when the
// worker has ended. The other workers keep their processes, and the core is not preempted. When the
// pods have ended, the job has four workers again. Each record is in the model as often as it
// should be.
func TestQueueReclaims(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	ns.teams(map[string]int{"team-a": 3, "team-b": 2})
	began := time.Now()
	r := ns.program("lent", slices.Concat(inQueue("team-a", 2), []string{"--num_workers=4"}), "counts.py",
		strconv.Itoa(counted), "0.3")
	before := r.after("elasticdl run to four workers stepping", 4, began)
	ns.checkPods(t)
	r.logQueues("four workers")
	check := ns.limitsQuota(5)
	core := r.core(t, "master", 2)
	kept := r.uids(core...)

	r.goesOn(200)
	figure(t, "median time between two steps", rounded(median(r.pauses(core[1:], began))), "")
	for i, left := range []int{3, 2} {
		r.reclaims(t, fmt.Sprintf("rival-%d", i), left, before, core[1:])
	}
	r.logQueues("two workers preempted")
	if now := r.uids(core...); !slices.Equal(now, kept) {
		t.Errorf("the core was disturbed: %v, before %v", now, kept)
	}

	ns.kubectl("delete", "pod", "rival-0", "rival-1", "--wait=false")
	ns.until(t, "free quota", patience, func() bool { return len(ns.reserved("team-b")) == 0 })
	began = time.Now()
	r.awaits("4 workers again", patience, func() bool { return len(r.workers((*object).running)) == 4 })
	took(t, "quota free to four workers running", began)
	r.same(r.after("quota free to four workers stepping", 4, began), before, core[1:])
	check()
	r.leave("enough")
	r.countedRight(t, 4)
}

// reclaims creates a pod of the other team, for which Kueue preempts a worker. The workers that are
// left, among them those of the core, continue with the processes that they had before.
func (r *running) reclaims(t *testing.T, rival string, left int, before steppers, core []string) {
	t.Helper()
	began := time.Now()
	r.rival(rival, "team-b")
	applied := time.Now()
	r.until(t, "quota of "+rival, patience, func() bool {
		o := r.workload(rival)
		return o != nil && o.reserves()
	})
	took(t, "pod of the other team created to its quota", applied)
	r.awaits("running "+rival, patience, func() bool { return r.now[pods][rival].running() })
	within(t, "pod of the other team created to running", time.Since(applied), time.Minute)
	r.preempted(t, len(before.pid)-left)
	after := r.after(fmt.Sprintf("pod of the other team applied to %d workers stepping", left), left, began)
	r.same(after, before, core)
	figure(t, "longest time between two steps of the core around it",
		rounded(slices.Max(r.pauses(core, began.Add(-5*time.Second)))), "")
	again := r.repeated(core, began)
	figure(t, "steps that the core has repeated", strconv.Itoa(again), "<= 1")
	if again > 1 {
		t.Errorf("workers of the core have repeated %d steps, want 1 at most", again)
	}
}

// core waits for the pods of the job's core, and returns them: the other pods that are named, and
// that number of workers. All other workers are elastic.
func (j *submitted) core(t *testing.T, others string, workers int) (core []string) {
	t.Helper()
	j.awaits("core", patience, func() bool {
		core = j.shares()["core"]
		return len(core) == len(strings.Fields(others))+workers
	})
	for _, name := range strings.Fields(others) {
		if !slices.Contains(core, name) {
			t.Errorf("%s is not of the core, which is %q", name, core)
		}
	}
	return core
}

// preempted checks that the master's log reports how many workers were preempted, and by whom, and
// that the status reports the last of them.
func (r *running) preempted(t *testing.T, n int) {
	t.Helper()
	const why = `worker-\d+.*preempted.*Preempted to accommodate a workload`
	eventually(t, fmt.Sprintf("word of %d preempted workers in the master's log", n), time.Minute, func() bool {
		return len(grep(r.log("master"), why)) >= n
	})
	r.says(why)
}

// pauses returns the times between the steps of the workers since a time.
func (r *running) pauses(workers []string, since time.Time) (all []time.Duration) {
	last := map[string]time.Time{}
	for _, s := range r.since(workers, since) {
		if before, ok := last[s.worker]; ok {
			all = append(all, s.at.Sub(before))
		}
		last[s.worker] = s.at
	}
	return all
}

// repeated returns the most steps that one of the workers has done more than once since a time.
func (r *running) repeated(workers []string, since time.Time) int {
	type done struct {
		worker string
		step   int
	}
	times, repeats := map[done]int{}, map[string]int{}
	for _, s := range r.since(workers, since) {
		if at := (done{s.worker, s.step}); times[at] > 0 {
			repeats[s.worker]++
		} else {
			times[at]++
		}
	}
	return slices.Max(append(slices.Collect(maps.Values(repeats)), 0))
}

// since returns the steps of the workers since a time, in their order.
func (r *running) since(workers []string, since time.Time) []stepped {
	all := slices.DeleteFunc(r.steps(), func(s stepped) bool {
		return !slices.Contains(workers, s.worker) || s.at.Before(since)
	})
	slices.SortFunc(all, func(a, b stepped) int { return a.at.Compare(b.at) })
	return all
}

// median returns the median, of at least one value.
func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// A suspended job holds no quota, and continues when it is resumed.
func TestQueueSuspended(t *testing.T) {
	t.Parallel()
	const epochs = 40
	ns := newNamespace(t)
	ns.teams(map[string]int{"team-a": 4})
	j := ns.train("paused", slices.Concat(small, inQueue("team-a", 1), ns.checkpoints(), []string{mlp,
		"--num_epochs=40", "--num_ps_pods=1", "--num_workers=2", "--minibatch_size=64"})...)
	j.trains(0.05)
	j.awaits("quota of four pods", patience, func() bool { return len(ns.reserved("team-a")) == 4 })
	ns.checkPods(t)
	began := time.Now()
	ns.elasticdl("suspend", "paused")
	ns.until(t, "free quota", patience, func() bool { return len(ns.reserved("")) == 0 })
	took(t, "elasticdl suspend to no workload with quota", began)
	j.logQueues("suspended")
	began = time.Now()
	ns.elasticdl("resume", "paused")
	j.awaits("quota of four pods", patience, func() bool { return len(ns.reserved("team-a")) == 4 })
	took(t, "elasticdl resume to quota of four pods", began)
	j.goesOn(trainingDigits)
	j.ends(epochs)
	ns.until(t, "free quota", patience, func() bool { return len(ns.reserved("")) == 0 })
}
