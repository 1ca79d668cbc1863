//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A worker that runs out of memory is replaced by one with twice as much, repeatedly, up to
// --max_memory.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	const epochs = 2
	ns := newNamespace(t)
	j := ns.train("hungry", slices.Concat(small, []string{mlp, "--num_epochs=2", "--num_ps_pods=1",
		"--num_workers=1", "--minibatch_size=64",
		"--worker_resource_request=cpu=20m,memory=16Mi", "--worker_resource_limit=cpu=0.5,memory=16Mi",
		"--max_memory=512Mi", "--relaunch_on_worker_failure=8"})...)
	s := j.ends(epochs)
	lines := grep(j.log("master"), `worker-\d+.*out of memory`)
	figure(t, "times out of memory, from 16Mi", strings.Repeat("I", len(lines)), "at least once")
	if len(lines) == 0 || s.Relaunched == 0 {
		t.Errorf("nothing ran out of memory: %d pods replaced", s.Relaunched)
	}
}

// The status names a quota that is too small; the job runs with the pods that it allows, and starts
// the others when it is raised. A server that is lost after the quota was lowered further takes the
// room of a worker.
func TestQuota(t *testing.T) {
	t.Parallel()
	const epochs = 60
	ns := newNamespace(t)
	ns.kubectl("create", "quota", "few", "--hard=pods=5")
	j := ns.train("modest", slices.Concat(small, []string{mlp, "--num_epochs=60", "--num_ps_pods=1",
		"--num_workers=3", "--minibatch_size=64"})...)
	j.trains(0.05)
	eventually(t, "word of the quota in elasticdl status", patience, func() bool {
		return len(grep(ns.elasticdl("status", "modest"), `worker-\d.*exceeded quota`)) > 0
	})
	j.awaits("2 workers", patience, func() bool { return len(j.workers((*object).running)) == 2 })
	ns.kubectl("patch", "quota", "few", "--patch", `{"spec": {"hard": {"pods": "4"}}}`)
	ns.kubectl("wait", "--for=jsonpath={.status.hard.pods}=4", "quota/few", "--timeout=60s")
	lost := j.uids("ps-0")[0]
	ns.kubectl("delete", "pod", "elasticdl-modest-ps-0", "--wait=false")
	began := time.Now()
	j.awaits("a server instead of a worker", patience, func() bool {
		server := j.pod("ps-0")
		return server.running() && server.Metadata.UID != lost && len(j.workers((*object).running)) == 1
	})
	took(t, "server deleted to its next incarnation in a worker's place", began)
	j.goesOn(10_000)
	ns.kubectl("delete", "quota", "few")
	began = time.Now()
	j.awaits("3 workers", patience, func() bool { return len(j.workers((*object).running)) == 3 })
	took(t, "quota lifted to all workers running", began)
	j.ends(epochs)
}

// alone waits until no pod of the job is running.
func (j *submitted) alone() {
	j.t.Helper()
	j.until(j.t, "end of all pods", patience, func() bool {
		for name, o := range j.now[pods] {
			if strings.HasPrefix(name, "elasticdl-"+j.job+"-") &&
				(o.Status.Phase == "Running" || o.Status.Phase == "Pending") {
				return false
			}
		}
		return true
	})
}

// --deadline ends a job that takes too long, and --ttl removes one that has ended.
func TestDeadlineAndTTL(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	before := ns.everything("")
	late := ns.train("late",
		slices.Concat(small, []string{mlp, "--num_epochs=1000", "--num_ps_pods=1", "--num_workers=2",
			"--minibatch_size=64", "--deadline=15s"})...)
	ns.kubectl("wait", "--for=condition=failed", "job/elasticdl-late-master", "--timeout="+wholeJob.String())
	if out, err := ns.try(*elasticdl, "wait", "late"); exitCode(err) != 1 || len(grep(out, "(?i)deadline")) == 0 {
		t.Errorf("elasticdl wait late: exit code %d\n%s", exitCode(err), out)
	}
	late.alone()
	ns.elasticdl("stop", "late")

	brief := ns.train("brief",
		slices.Concat(small, []string{mlp, "--num_epochs=1", "--num_ps_pods=1", "--num_workers=2",
			"--minibatch_size=64", "--ttl=5s"})...)
	brief.runs("master")
	eventually(t, "end of all that the job has made", patience, func() bool {
		return slices.Equal(ns.everything(""), before)
	})
}

// A job without permissions to create Roles runs with the objects that an administrator applies,
// and the output of --yaml is a job that kubectl can apply and delete.
func TestAppliedByHand(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	dir := t.TempDir()
	permissions := filepath.Join(dir, "rbac.yaml")
	if err := os.WriteFile(permissions, []byte(ns.elasticdl("rbac")), 0o644); err != nil {
		t.Fatal(err)
	}
	ns.kubectl("apply", "-f", permissions)
	before := ns.everything("")
	file := filepath.Join(dir, "job.yaml")
	j := ns.train("written",
		slices.Concat(small, []string{mlp, "--num_epochs=2", "--num_ps_pods=1", "--num_workers=2",
			"--minibatch_size=64",
			"--service_account=elasticdl", "--yaml=" + file})...)
	t.Log(ns.kubectl("apply", "-f", file))
	j.ends(2)
	ns.kubectl("delete", "-f", file)
	eventually(t, "end of all that the file has made", patience, func() bool {
		return slices.Equal(ns.everything(""), before)
	})
}
