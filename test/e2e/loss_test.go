//go:build e2e

package e2e

import (
	"context"
	"slices"
	"testing"
	"time"
)

// component has the cluster's program do something to a part of the cluster: "kill", "start", "pause", "resume".
func component(t *testing.T, verb, name string) {
	t.Helper()
	if err := command(*program, verb, name, "--dir="+*cluster); err != nil {
		t.Fatal(err)
	}
}

// killed kills parts of the cluster. They are started again by what it returns, or at the end of the test.
func killed(t *testing.T, parts ...string) (start func()) {
	t.Helper()
	for _, part := range parts {
		component(t, "kill", part)
	}
	dead := true
	start = func() {
		if !dead {
			return
		}
		dead = false
		for _, part := range parts {
			component(t, "start", part)
		}
	}
	t.Cleanup(start)
	return start
}

// spread submits a job of four workers, two on each node, with the master and the servers on node-0.
func (ns *namespace) spread(job, epochs string, more ...string) *submitted {
	ns.t.Helper()
	slots(ns.t, map[string]int{"node-0": 2, "node-1": 2})
	ns.kubectl("cordon", "node-1")
	ns.t.Cleanup(func() { command("kubectl", "uncordon", "node-1") })
	j := ns.train(job, slices.Concat(slotted, []string{mlp, "--num_epochs=" + epochs, "--num_ps_pods=2", "--num_workers=4",
		"--minibatch_size=64", "--num_minibatches_per_task=4"}, more)...)
	j.runs("master", "ps-0", "ps-1")
	j.awaits("2 workers on node-0", patience, func() bool { return len(j.workers((*object).running)) == 2 })
	ns.kubectl("uncordon", "node-1")
	j.awaits("4 workers", patience, func() bool { return len(j.workers((*object).running)) == 4 })
	j.trains(0.02)
	return j
}

// on are the workers on a node that are as wanted.
func (j *submitted) on(node string, is func(*object) bool) []string {
	return j.workers(func(o *object) bool { return o.Spec.NodeName == node && is(o) })
}

// A node's kubelet dies, and with it whatever it knew of two workers. The job goes on with the other two, and with
// four when the node is back.
func TestNodeLoss(t *testing.T) {
	const epochs = 100
	ns := newNamespace(t)
	j := ns.spread("survivor", "100")
	kept := j.uids("master", "ps-0", "ps-1")

	back := killed(t, "node-1")
	began := time.Now()
	j.awaits("replacements of the workers of node-1", patience, func() bool {
		return len(j.workers(pending)) == 2 && len(j.on("node-1", (*object).running)) == 0
	})
	took(t, "node killed to its workers given up and replaced", began)
	j.goesOn(trainingDigits / 5)
	back()
	began = time.Now()
	j.awaits("4 workers again", patience, func() bool { return len(j.workers((*object).running)) == 4 })
	took(t, "node back to 4 workers running", began)
	if now := j.uids("master", "ps-0", "ps-1"); !slices.Equal(now, kept) {
		t.Errorf("master or servers were disturbed: %v, before %v", now, kept)
	}
	j.ends(epochs)
}

// Only the kubelet dies: its containers go on, unseen. What the cluster takes for lost still trains, and no record is done twice.
func TestKubeletLoss(t *testing.T) {
	const epochs = 300
	ns := newNamespace(t)
	j := ns.spread("unseen", "300")
	back := killed(t, "kubelet-1")
	began := time.Now()
	j.awaits("replacements of the workers of node-1", patience, func() bool { return len(j.workers(pending)) == 2 })
	took(t, "kubelet killed to its workers replaced", began)
	back()
	began = time.Now()
	j.awaits("4 workers again", patience, func() bool { return len(j.workers((*object).running)) == 4 })
	took(t, "kubelet back to 4 workers running", began)
	j.ends(epochs)
}

// A drained node's workers are evicted, wait for another place, and get one when the node is open again.
func TestDrain(t *testing.T) {
	const epochs = 100
	ns := newNamespace(t)
	j := ns.spread("drained", "100")
	began := time.Now()
	if err := command("kubectl", "drain", "node-1", "--force", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=90s"); err != nil {
		t.Fatal(err)
	}
	took(t, "kubectl drain", began)
	j.awaits("2 workers pending", patience, func() bool { return len(j.workers(pending)) == 2 && len(j.workers((*object).running)) == 2 })
	j.goesOn(trainingDigits / 10)
	ns.kubectl("uncordon", "node-1")
	j.awaits("4 workers again", patience, func() bool { return len(j.workers((*object).running)) == 4 })
	s := j.ends(epochs)
	if s.Relaunched != 2 {
		t.Errorf("%d pods replaced, want 2", s.Relaunched)
	}
}

// The API server is away for half a minute, and what depends on it starts anew as in clusters where that is elected: training
// goes on, and what happens to pods afterwards is seen.
func TestAPIServerAway(t *testing.T) {
	const epochs = 200
	ns := newNamespace(t)
	j := ns.train("patient", slices.Concat(small, []string{mlp, "--num_epochs=200", "--num_ps_pods=2", "--num_workers=3",
		"--minibatch_size=64", "--num_minibatches_per_task=4"})...)
	j.runs("worker-0", "worker-1", "worker-2")
	j.trains(0.02)
	before := j.done()
	kept := j.uids("master", "ps-0", "ps-1", "worker-1", "worker-2")

	back := killed(t, "apiserver", "controllers", "scheduler")
	began := time.Now()
	away, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	<-away.Done()
	back()
	took(t, "API server away", began)

	ns.kubectl("delete", "pod", "elasticdl-patient-worker-0", "--wait=false")
	asked := time.Now()
	j.awaits("worker-3", patience, func() bool { return j.pod("worker-3") != nil })
	took(t, "worker-0 deleted just after that to worker-3 created", asked)
	if after := j.done(); after < before+trainingDigits {
		t.Errorf("%d records done before the API server was away, %d afterwards: training stood still", before, after)
	}
	if now := j.uids("master", "ps-0", "ps-1", "worker-1", "worker-2"); !slices.Equal(now, kept) {
		t.Errorf("pods were disturbed: %v, before %v", now, kept)
	}
	j.ends(epochs)
}

// All workers are deleted at once.
func TestAllWorkersDeleted(t *testing.T) {
	const epochs = 40
	ns := newNamespace(t)
	j := ns.train("bereft", slices.Concat(small, []string{mlp, "--num_epochs=40", "--num_ps_pods=2", "--num_workers=4",
		"--minibatch_size=64", "--num_minibatches_per_task=4"})...)
	j.runs("worker-0", "worker-1", "worker-2", "worker-3")
	j.trains(0.05)
	kept := j.uids("master", "ps-0", "ps-1")
	began := time.Now()
	ns.kubectl("delete", "pods", "-l", "elasticdl-job-name=bereft,elasticdl-replica-type=worker", "--wait=false")
	j.runs("worker-4", "worker-5", "worker-6", "worker-7")
	took(t, "4 workers deleted to 4 others running", began)
	s := j.ends(epochs)
	if s.Relaunched != 4 {
		t.Errorf("%d pods replaced, want 4", s.Relaunched)
	}
	if now := j.uids("master", "ps-0", "ps-1"); now[0] != kept[0] {
		t.Errorf("the master was disturbed: %v, before %v", now, kept)
	}
}

// done is how many records are.
func (j *submitted) done() (n int64) {
	j.t.Helper()
	j.awaits("status", patience, func() bool {
		if s := j.status(); s != nil {
			n = s.RecordsDone
			return true
		}
		return false
	})
	return n
}
