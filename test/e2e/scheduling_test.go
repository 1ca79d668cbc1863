//go:build e2e

package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// slotted has the resources of pods on nodes with slots, of which each worker takes one.
var slotted = []string{
	"--master_resource_request=cpu=20m,memory=64Mi", "--master_resource_limit=cpu=1,memory=512Mi",
	"--ps_resource_request=cpu=20m,memory=64Mi", "--ps_resource_limit=cpu=1,memory=512Mi",
	"--worker_resource_request=cpu=20m,memory=64Mi,elastic.dev/slot=1",
	"--worker_resource_limit=cpu=0.2,memory=512Mi,elastic.dev/slot=1",
	"--master_pod_priority=high", "--worker_pod_priority=low", "--ps_pod_priority=high",
}

// The second half of the GKE tutorial: a web server of five replicas with high priority takes the
// room of three of the four workers, the job continues with one, and has four again when the web
// server is scaled down.
func TestElasticScheduling(t *testing.T) {
	t.Parallel()
	const epochs = 70
	ns := newNamespaceApart(t)
	ns.slots(3, 3)
	j := ns.train("test-mnist",
		slices.Concat(slotted, []string{mlp, "--num_epochs=70", "--num_ps_pods=2", "--num_workers=4",
			"--minibatch_size=64", "--num_minibatches_per_task=4", "--evaluation_steps=500",
			"--metrics_port=9108"})...)
	j.runs("master", "ps-0", "ps-1", "worker-0", "worker-1", "worker-2", "worker-3")
	j.trains(0.02)
	important := j.uids("master", "ps-0", "ps-1")

	ns.apply("testdata/nginx.yaml", "$IMAGE", registry+"/pause:1")
	began := time.Now()
	j.awaits("web server of 5", patience, func() bool { return ns.now[deployments]["test-nginx"].ready(5) })
	took(t, "5 replicas of high priority ready, 3 workers preempted for them", began)
	j.awaits("job of 1 worker and 3 pending", patience, func() bool {
		return len(j.workers((*object).running)) == 1 && len(j.workers(pending)) == 3
	})
	j.showsPreempted()
	j.goesOn(trainingDigits / 10)
	out := ns.elasticdl("status", "test-mnist")
	if n := len(grep(out, `worker-\d.*Pending.*[Ii]nsufficient elastic.dev/slot`)); n != 3 {
		t.Errorf("elasticdl status does not say of 3 workers why they are pending, but of %d:\n%s", n, out)
	}

	ns.kubectl("scale", "deployment.v1.apps/test-nginx", "--replicas=1")
	began = time.Now()
	j.awaits("job of 4 workers again", patience, func() bool { return len(j.workers((*object).running)) == 4 })
	took(t, "scaled to 1 replica, to 4 workers running", began)
	j.goesOn(trainingDigits / 10)
	if now := j.uids("master", "ps-0", "ps-1"); !slices.Equal(now, important) {
		t.Errorf("master or servers were disturbed: %v, before %v", now, important)
	}
	s := j.ends(epochs)
	if s.Relaunched != 3 {
		t.Errorf("%d pods replaced, want 3", s.Relaunched)
	}
	if n := len(grep(j.log("master"), `worker-\d.*preempted`)); n < 3 {
		t.Errorf("%d lines of the master's log say that a worker was preempted, want 3", n)
	}
}

// showsPreempted checks that all views of a job show that workers were preempted, within 10 s.
func (j *submitted) showsPreempted() {
	j.t.Helper()
	began := time.Now()
	page := j.dashboard(*elasticdl, "dashboard", j.job, "--namespace="+j.name)
	page.shows("preempted workers on the page", 10*time.Second, "PodLost", "preempted")
	took(j.t, "preempted workers are on the page", began)
	for _, view := range []struct {
		name, pattern string
		command       []string
	}{
		{"status", `worker-\d.*preempted`, []string{*elasticdl, "status", j.job}},
		{"events", `PodLost +worker-\d.*preempted`, []string{*elasticdl, "events", j.job}},
		{"account", `pending .*have no node`, []string{*elasticdl, "why", j.job}},
		{"condition", `WorkersMissing`, []string{"kubectl", "get", "job", "elasticdl-" + j.job + "-master", "-o",
			"yaml"}},
		{"metrics", `elasticdl_job_pods_lost_total\{cause="preempted",.*role="worker"\} [1-9]`,
			[]string{"kubectl", "get", "--raw",
				"/api/v1/namespaces/" + j.name + "/pods/elasticdl-" + j.job + "-master:9108/proxy/metrics"}},
	} {
		eventually(j.t, "preempted workers in "+view.name, 10*time.Second, func() bool {
			out, err := j.try(view.command[0], view.command[1:]...)
			return err == nil && len(grep(out, view.pattern)) > 0
		})
	}
}

// Two jobs: a master and two workers of low priority take three slots when a job of high priority
// is submitted, which needs one. Both jobs succeed.
func TestTwoJobs(t *testing.T) {
	t.Parallel()
	ns := newNamespaceApart(t)
	ns.slots(2, 1)
	// the tutorial's flags; model and sizes fit this cluster
	seed := []string{
		"--model_file=elasticdl/python/examples/mnist_mlp.py",
		"--minibatch_size=10", "--record_per_task=100",
		"--ps_resource_request=cpu=20m,memory=64Mi", "--ps_resource_limit=cpu=1,memory=512Mi", "--ps_pod_priority=high",
		"--master_pod_priority=high",
		"--worker_resource_request=cpu=20m,memory=64Mi,elastic.dev/slot=1",
		"--worker_resource_limit=cpu=0.2,memory=512Mi,elastic.dev/slot=1",
		"--codec_type=bytes",
	}
	low := ns.train("low-prio-job",
		slices.Concat(seed, []string{"--worker_pod_priority=low", "--num_epoch=12", "--num_worker=2",
			"--grads_to_wait=2",
			"--master_resource_request=cpu=20m,memory=64Mi,elastic.dev/slot=1",
			"--master_resource_limit=cpu=1,memory=512Mi,elastic.dev/slot=1"})...)
	low.runs("master", "ps-0", "worker-0", "worker-1")
	low.trains(0.02)
	kept := low.uids("master", "ps-0")

	began := time.Now()
	high := ns.train("high-prio-job",
		slices.Concat(seed, []string{"--worker_pod_priority=high", "--num_epoch=2", "--num_worker=1",
			"--grads_to_wait=1",
			"--master_resource_request=cpu=20m,memory=64Mi", "--master_resource_limit=cpu=1,memory=512Mi"})...)
	high.runs("worker-0")
	took(t, "the second job's train command to its worker running, one worker preempted for it", began)
	low.awaits("one worker less", patience, func() bool {
		return len(low.workers((*object).running)) == 1 && len(low.workers(pending)) == 1
	})
	low.goesOn(500)
	high.ends(2)
	low.awaits("second worker again", patience, func() bool { return len(low.workers((*object).running)) == 2 })
	if now := low.uids("master", "ps-0"); !slices.Equal(now, kept) {
		t.Errorf("master or server was disturbed: %v, before %v", now, kept)
	}
	if s := low.ends(12); s.Relaunched != 1 {
		t.Errorf("%d workers of the job of low priority replaced, want 1", s.Relaunched)
	}
	if lines := grep(low.log("master"), `worker-\d.*preempted`); len(lines) == 0 {
		t.Errorf("the master does not say that a worker was preempted:\n%s", strings.Join(lines, "\n"))
	}
}

// The job starts with the workers that fit, and reports why the others are pending; stopping it
// frees its resources.
func TestStartsWithWhatFits(t *testing.T) {
	t.Parallel()
	ns := newNamespaceApart(t)
	ns.slots(1, 1)
	j := ns.train("large", slices.Concat(slotted, []string{mlp, "--num_epochs=16", "--num_ps_pods=1",
		"--num_workers=4", "--minibatch_size=64"})...)
	j.awaits("job of 2 workers and 2 pending", patience, func() bool {
		return len(j.workers((*object).running)) == 2 && len(j.workers(pending)) == 2
	})
	j.ends(16)
}
