//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// Ten jobs with a core of three pods each share a quota of five: for one of them and a half. All
// succeed, because a job whose core is incomplete returns its quota after --queue_timeout.
func TestQueueOfTenJobs(t *testing.T) {
	t.Parallel()
	const n = 10
	ns := newNamespace(t)
	ns.teams(map[string]int{"team-a": 5})
	check := ns.limitsQuota(5)
	var all []*submitted
	for i := range n {
		all = append(all, ns.train(fmt.Sprint("job-", i), slices.Concat(small, inQueue("team-a", 1),
			[]string{mlp, "--num_epochs=1", "--num_ps_pods=1", "--num_workers=2", "--minibatch_size=64",
				"--queue_timeout=10s"})...))
	}
	began := time.Now()
	for ended := range n {
		ns.until(t, fmt.Sprintf("end of job %d of %d", ended+1, n), wholeJob, func() bool {
			return ns.complete() > ended
		})
		took(t, fmt.Sprintf("submitted to the end of job %d of %d", ended+1, n), began)
	}
	for _, j := range all {
		j.ends(1)
	}
	check()
}

// complete returns the number of jobs that have succeeded.
func (ns *namespace) complete() (n int) {
	for _, o := range ns.now[jobs] {
		if o.is("Complete", "True") {
			n++
		}
	}
	return n
}

// A job of a queue that does not exist is refused. One whose queue is deleted before the job starts
// waits for the queue, and runs when the queue exists again.
func TestQueueIsAbsent(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	ns.teams(map[string]int{"team-a": 3})
	flags := []string{mlp, "--num_epochs=1", "--num_ps_pods=1", "--num_workers=1", "--minibatch_size=64"}
	out, err := ns.try(*elasticdl, slices.Concat([]string{"train", "--job_name=refused", "--image_name=" + image,
		"--training_data=/data"}, small, inQueue("team-x", 1), flags)...)
	if err == nil || len(grep(out, `no such LocalQueue; it has team-a`)) == 0 {
		t.Errorf("a job of an absent queue: %v\n%s", err, out)
	}
	j := ns.train("early", slices.Concat(small, inQueue("team-a", 1), flags, []string{"--suspend"})...)
	ns.kubectl("delete", "localqueue", "team-a")
	ns.elasticdl("resume", "early")
	ns.until(t, "word of Kueue about the absent queue", patience, func() bool {
		return strings.Contains(ns.queueState(), "LocalQueue team-a doesn't exist")
	})
	j.logQueues("no queue of that name")
	j.says(`LocalQueue team-a doesn't exist`)
	ns.quota("team-a", 3)
	j.ends(1)
}

// The quota of a running job is lowered: no pod is preempted, because Kueue keeps what it has
// admitted. A deleted worker waits then, and gets its quota when the quota is raised again.
func TestQueueShrinks(t *testing.T) {
	t.Parallel()
	const epochs = 30
	ns := newNamespace(t)
	ns.teams(map[string]int{"team-a": 5})
	j := ns.train("shrunk", slices.Concat(small, inQueue("team-a", 1), []string{mlp, "--num_epochs=30",
		"--num_ps_pods=1", "--num_workers=3", "--minibatch_size=64"})...)
	j.trains(0.02)
	j.awaits("3 workers", patience, func() bool { return len(j.workers((*object).running)) == 3 })
	before := j.uids("master", "ps-0", "worker-0", "worker-1", "worker-2")
	ns.quota("team-a", 4)
	j.goesOn(trainingDigits / 2)
	if now := j.uids("master", "ps-0", "worker-0", "worker-1", "worker-2"); !slices.Equal(now, before) {
		t.Errorf("pods were disturbed: %v, before %v", now, before)
	}
	j.logQueues("quota lowered from 5 to 4")
	var elastic string
	j.awaits("an elastic worker", patience, func() bool {
		all := j.shares()["elastic"]
		if len(all) > 0 {
			elastic = all[0]
		}
		return elastic != ""
	})
	ns.kubectl("delete", "pod", "elasticdl-shrunk-"+elastic, "--wait=false")
	j.awaits("2 workers and a pending one", patience, func() bool {
		return len(j.workers((*object).running)) == 2 && len(j.workers(pending)) == 1
	})
	j.logQueues("an elastic worker deleted")
	j.says(`worker-\d+.*waits for quota`)
	ns.quota("team-a", 5)
	j.awaits("3 workers again", patience, func() bool { return len(j.workers((*object).running)) == 3 })
	j.ends(epochs)
}

// Kueue's manager ends. The job continues, and a deleted worker is counted as ended although Kueue
// does not remove its finalizer. Its replacement is created when Kueue is back.
func TestKueueAway(t *testing.T) {
	const epochs = 24
	ns := newNamespace(t)
	ns.teams(map[string]int{"team-a": 5})
	j := ns.train("alone", slices.Concat(small, inQueue("team-a", 1), []string{mlp, "--num_epochs=24",
		"--num_ps_pods=1", "--num_workers=3", "--minibatch_size=64"})...)
	j.trains(0.02)
	j.awaits("3 workers", patience, func() bool { return len(j.workers((*object).running)) == 3 })
	start := killed(t, "kueue")
	j.goesOn(trainingDigits / 2)
	ns.kubectl("delete", "pod", "elasticdl-alone-worker-2", "--wait=false")
	j.awaits("2 workers", patience, func() bool { return len(j.workers((*object).running)) == 2 })
	j.goesOn(trainingDigits / 2)
	j.logQueues("without Kueue")
	j.says(`worker-\d+ .*(webhook|Kueue)`)
	start()
	j.awaits("3 workers again", patience, func() bool { return len(j.workers((*object).running)) == 3 })
	j.ends(epochs)
}

// says waits until elasticdl status has a line that matches.
func (j *submitted) says(pattern string) {
	j.t.Helper()
	out := ""
	eventually(j.t, "word of "+pattern+" in elasticdl status", time.Minute, func() bool {
		out = j.elasticdl("status", j.job)
		return len(grep(out, pattern)) > 0
	})
	j.t.Log(out)
}
