//go:build e2e

package e2e

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// components is held while the cluster's program is at work, which refuses to be at work twice.
var components sync.Mutex

// component makes the cluster's program act on a part of the cluster: "kill", "start", "pause",
// "resume".
func component(t *testing.T, verb, name string) {
	t.Helper()
	if err := clusterCommand(verb, name); err != nil {
		t.Fatal(err)
	}
}

// clusterCommand runs the cluster's program.
func clusterCommand(args ...string) error {
	components.Lock()
	defer components.Unlock()
	return command(*program, append(args, "--dir="+*cluster)...)
}

// kubelet returns the name of a node's kubelet among the cluster's components.
func kubelet(node string) string { return strings.Replace(node, "node", "kubelet", 1) }

// killed kills parts of the cluster. The returned function starts them again; otherwise the end of
// the test does.
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

// spread submits a job of four workers, two on each node, with the master and the servers on the
// first.
func (ns *namespace) spread(job, epochs string, more ...string) *submitted {
	ns.t.Helper()
	j := ns.halves(func() *submitted {
		return ns.train(job, slices.Concat(slotted,
			[]string{mlp, "--num_epochs=" + epochs, "--num_ps_pods=2", "--num_workers=4",
				"--minibatch_size=64", "--num_minibatches_per_task=4"}, more)...)
	}, "master", "ps-0", "ps-1")
	j.trains(0.02)
	return j
}

// halves submits a job of four workers that take a slot each: two on each node, with its other pods
// on the first.
func (ns *namespace) halves(submit func() *submitted, others ...string) *submitted {
	ns.t.Helper()
	ns.slots(2, 2)
	ns.cordon(ns.nodes[1])
	j := submit()
	j.slotted = true
	j.runs(others...)
	j.awaits("2 workers on the first node", patience, func() bool { return len(j.workers((*object).running)) == 2 })
	ns.kubectl("uncordon", ns.nodes[1])
	j.awaits("4 workers", patience, func() bool { return len(j.workers((*object).running)) == 4 })
	return j
}

// on returns the workers on a node for which is returns true.
func (j *submitted) on(node string, is func(*object) bool) []string {
	return j.workers(func(o *object) bool { return o.Spec.NodeName == node && is(o) })
}

// runningOn returns the workers that run on a node at present.
func (j *submitted) runningOn(node string) (found []string) {
	j.ask(func() bool {
		found = j.on(node, (*object).running)
		return true
	})
	return found
}

// A node's kubelet is killed, together with the containers of two workers. The job continues with
// the other two workers, and with four when the node is back.
func TestNodeLoss(t *testing.T) {
	t.Parallel()
	const epochs = 40
	ns := newNamespaceApart(t)
	j := ns.spread("survivor", "40")
	kept := j.uids("master", "ps-0", "ps-1")

	back := killed(t, ns.nodes[1])
	began := time.Now()
	j.awaits("replacements of the workers of the lost node", patience, func() bool {
		return len(j.workers(pending)) == 2 && len(j.on(ns.nodes[1], (*object).running)) == 0
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
	j.hurries()
	j.ends(epochs)
}

// Only the kubelet is killed: its containers keep running, unobserved. Workers that the cluster
// considers lost still train, and no record is trained on twice.
func TestKubeletLoss(t *testing.T) {
	t.Parallel()
	const epochs = 70
	ns := newNamespaceApart(t)
	j := ns.spread("unseen", "70")
	back := killed(t, kubelet(ns.nodes[1]))
	began := time.Now()
	j.awaits("replacements of the workers of the lost node", patience, func() bool {
		return len(j.workers(pending)) == 2
	})
	took(t, "kubelet killed to its workers replaced", began)
	back()
	began = time.Now()
	j.awaits("4 workers again", patience, func() bool { return len(j.workers((*object).running)) == 4 })
	took(t, "kubelet back to 4 workers running", began)
	j.hurries()
	s := j.ends(epochs)
	const minibatches = (trainingDigits + 63) / 64
	// Two workers were replaced while they trained; each may have held a task of four minibatches,
	// and the model must not contain those twice.
	if most := int64(epochs*minibatches + 2*4); s.Version > most {
		t.Errorf("%d minibatches were applied, want %d, and no more than the two tasks that were "+
			"lost in smaller ones", s.Version, epochs*minibatches)
	}
}

// Both nodes are drained, one after the other, as in an upgrade. The workers of the first are
// evicted, wait for another node, and get one when the node is open again. On the second node all
// pods of the job are evicted, the master and the servers one at a time, and nothing is lost.
func TestDrain(t *testing.T) {
	t.Parallel()
	const epochs = 40
	ns := newNamespaceApart(t)
	j := ns.spread("drained", "40", ns.checkpoints()...)
	all := []string{"master", "ps-0", "ps-1", "worker-0", "worker-1", "worker-2", "worker-3"}
	before := j.uids(all...)
	drain(t, ns.nodes[1])
	j.awaits("2 workers pending", patience, func() bool {
		return len(j.workers(pending)) == 2 && len(j.workers((*object).running)) == 2
	})
	j.goesOn(trainingDigits / 10)
	ns.kubectl("uncordon", ns.nodes[1])
	j.awaits("4 workers again", patience, func() bool { return len(j.workers((*object).running)) == 4 })
	if s := j.tells(); s.Relaunched != 2 {
		t.Errorf("%d pods replaced, want 2", s.Relaunched)
	}

	together := j.together()
	drain(t, ns.nodes[0])
	ns.kubectl("uncordon", ns.nodes[0])
	began := time.Now()
	j.runs("master", "ps-0", "ps-1")
	j.awaits("4 workers again", patience, func() bool { return len(j.workers((*object).running)) == 4 })
	j.goesOn(trainingDigits / 10)
	took(t, "everything drained to further training", began)
	if most := together(); most != 1 {
		t.Errorf("%d of master and servers left at once, want one at a time: their PodDisruptionBudget", most)
	}
	for i, now := range j.uids(all...) {
		if now == before[i] {
			t.Errorf("%s was not evicted", all[i])
		}
	}
	j.hurries()
	j.rolledBack(epochs)
}

// drain evicts all pods of a node, and waits for that.
func drain(t *testing.T, node string) {
	t.Helper()
	t.Cleanup(func() { command("kubectl", "uncordon", node) })
	began := time.Now()
	if err := command("kubectl", "drain", node, "--force", "--ignore-daemonsets",
		"--delete-emptydir-data", "--timeout=4m"); err != nil {
		t.Fatal(err)
	}
	took(t, "kubectl drain "+node, began)
}

// together counts how many of the master and the servers of a job are being deleted at a time, and
// returns a function that returns the maximum.
func (j *submitted) together() (most func() int) {
	return j.maximum(j.t.Context(), func() int {
		n := 0
		for name, o := range j.now[pods] {
			if strings.HasPrefix(name, "elasticdl-"+j.job+"-") && (o.role() == "master" ||
				o.role() == "ps") && o.leaving() {
				n++
			}
		}
		return n
	})
}

// The API server is down for half a minute, and components that depend on it restart, as in
// clusters with leader election: training continues, and changes of pods afterwards are noticed.
func TestAPIServerAway(t *testing.T) {
	const epochs = 120
	ns := newNamespace(t)
	j := ns.train("patient",
		slices.Concat(small, []string{mlp, "--num_epochs=120", "--num_ps_pods=2", "--num_workers=3",
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
	j.runs("worker-3")
	took(t, "the same to worker-3 running, of which its node hears late", asked)
	if after := j.done(); after < before+trainingDigits {
		t.Errorf("%d records done before the API server was away, %d afterwards: training stood still", before, after)
	}
	if now := j.uids("master", "ps-0", "ps-1", "worker-1", "worker-2"); !slices.Equal(now, kept) {
		t.Errorf("pods were disturbed: %v, before %v", now, kept)
	}
	j.hurries()
	j.ends(epochs)
}

// All workers are deleted at once.
func TestAllWorkersDeleted(t *testing.T) {
	t.Parallel()
	const epochs = 24
	ns := newNamespace(t)
	j := ns.train("bereft", slices.Concat(small, []string{mlp, "--num_epochs=24", "--num_ps_pods=2", "--num_workers=4",
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

// done returns the number of records that are done.
func (j *submitted) done() int64 {
	j.t.Helper()
	return j.tells().RecordsDone
}
