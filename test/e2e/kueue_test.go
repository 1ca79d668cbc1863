//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

// startKueue starts Kueue in the cluster, once, for the tests that need it. A Kueue that runs
// belongs to the owner of the cluster, and stays.
var startKueue = sync.OnceValue(func() error {
	// the exit code tells whether all components run, which is of no interest
	out, _ := exec.Command(*program, "status", "--dir="+*cluster).Output()
	kueueStarted = len(grep(string(out), `^kueue +running`)) == 0
	if err := clusterCommand("add", "kueue"); err != nil {
		return err
	}
	return command("kubectl", "apply", "-f", "testdata/workload-priorities.yaml")
})

// kueueStarted reports whether startKueue has started Kueue.
var kueueStarted bool

// stopKueue ends Kueue if a test has started it.
func stopKueue() {
	if kueueStarted {
		command("kubectl", "delete", "-f", "testdata/workload-priorities.yaml")
		clusterCommand("remove", "kueue")
	}
}

// workloads is the kind of Kueue's objects that hold quota, one for each pod.
const workloads kind = "apis/kueue.x-k8s.io/v1beta2/workloads"

// teams makes Kueue admit the namespace's pods, by queues of one cohort with these quotas of pods.
// Each team has a LocalQueue of its name.
func (ns *namespace) teams(quotas map[string]int) {
	ns.t.Helper()
	if err := startKueue(); err != nil {
		ns.t.Fatal(err)
	}
	ns.kubectl("label", "namespace", ns.name, "elastic.dev/queued=true")
	ns.create(`{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"ResourceFlavor","metadata":{"name":"` + ns.name + `"}}`)
	ns.t.Cleanup(func() { command("kubectl", "delete", "resourceflavor", ns.name, "--wait=false") })
	for team, pods := range quotas {
		ns.quota(team, pods)
		ns.t.Cleanup(func() { command("kubectl", "delete", "clusterqueue", ns.clusterQueue(team), "--wait=false") })
	}
	for team := range quotas {
		ns.kubectl("wait", "--for=condition=Active", "localqueue/"+team, "--timeout=60s")
	}
	ns.t.Cleanup(func() {
		if ns.t.Failed() {
			ns.t.Log(ns.try("kubectl", "get", "workloads,localqueues,clusterqueues,pods", "-o", "yaml"))
		}
	})
	ns.add(ns.t.Context(), ns.name, workloads)
}

// quota creates the queue of a team, or changes its quota of pods.
func (ns *namespace) quota(team string, pods int) {
	ns.t.Helper()
	ns.apply("testdata/queue.yaml", "$COHORT", ns.name, "$TEAM", team, "$PODS", fmt.Sprint(pods))
}

// clusterQueue returns the name of the cluster's queue of a team.
func (ns *namespace) clusterQueue(team string) string { return ns.name + "-" + team }

// rival creates a pod of a team that is no part of a job.
func (ns *namespace) rival(name, team string) {
	ns.t.Helper()
	ns.apply("testdata/rival.yaml", "$NAME", name, "$TEAM", team, "$IMAGE", registry+"/pause:1")
}

// workload returns the workload of a pod, nil if there is none. Like pod it is called in conditions
// only.
func (ns *namespace) workload(pod string) *object {
	for _, o := range ns.now[workloads] {
		if len(o.Metadata.OwnerReferences) > 0 && o.Metadata.OwnerReferences[0].Name == pod {
			return o
		}
	}
	return nil
}

// reserves reports whether a workload holds quota.
func (o *object) reserves() bool { return o.is("QuotaReserved", "True") && !o.is("Finished", "True") }

// reserved returns the names of the pods whose workloads hold quota of a team, sorted; of all teams
// for "".
func (ns *namespace) reserved(team string) (found []string) {
	for _, o := range ns.now[workloads] {
		if o.reserves() && (team == "" || o.Spec.QueueName == team) {
			found = append(found, o.Metadata.OwnerReferences[0].Name)
		}
	}
	slices.Sort(found)
	return found
}

// queueState returns a line for each workload, with what Kueue says about it.
func (ns *namespace) queueState() string {
	var lines []string
	for _, o := range ns.now[workloads] {
		line := fmt.Sprintf("%s priority %d", o.Metadata.OwnerReferences[0].Name, o.Spec.Priority)
		for _, c := range o.Status.Conditions {
			line += fmt.Sprintf("; %s=%s %s %q", c.Type, c.Status, c.Reason, c.Message)
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// logQueues logs what Kueue says about each workload, and what elasticdl says about the job.
func (j *submitted) logQueues(when string) {
	j.t.Helper()
	j.ask(func() bool {
		j.t.Logf("%s:\n%s", when, j.queueState())
		return true
	})
	out, err := j.try(*elasticdl, "status", j.job)
	j.t.Logf("elasticdl status %s: %v\n%s", j.job, err, out)
}

// limitsQuota returns a function that checks that no more workloads than a limit have held quota at
// once since limitsQuota was called.
func (ns *namespace) limitsQuota(limit int) (check func()) {
	over := ""
	most := ns.maximum(ns.t.Context(), func() int {
		n := len(ns.reserved(""))
		if n > limit && over == "" {
			over = ns.queueState()
		}
		return n
	})
	return func() {
		ns.t.Helper()
		if n := most(); n > limit {
			ns.t.Errorf("%d workloads held quota at once, want %d at most, first these:\n%s", n, limit, over)
		}
	}
}

// shares returns the job's pods by their share of its quota: "core" and "elastic".
func (j *submitted) shares() map[string][]string {
	found := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(j.now[pods])) {
		if share := j.now[pods][name].Metadata.Labels[shareLabel]; share != "" {
			found[share] = append(found[share], strings.TrimPrefix(name, "elasticdl-"+j.job+"-"))
		}
	}
	return found
}

// shareLabel is the label of pods of jobs in queues that says to which share of quota they belong.
const shareLabel = "elasticdl-share"

// checkPods checks the pods in queues: none has a controller, because Kueue does not manage such a
// pod on its own, and each has one workload.
func (ns *namespace) checkPods(t *testing.T) {
	t.Helper()
	ns.ask(func() bool {
		owners := map[string]int{}
		for _, o := range ns.now[workloads] {
			owners[o.Metadata.OwnerReferences[0].UID]++
		}
		for name, o := range ns.now[pods] {
			if o.Metadata.Labels["kueue.x-k8s.io/queue-name"] == "" {
				continue
			}
			if n := owners[o.Metadata.UID]; n != 1 {
				t.Errorf("%s has %d workloads, want 1", name, n)
			}
			for _, owner := range o.Metadata.OwnerReferences {
				if owner.Controller {
					t.Errorf("%s has the controller %s %s, want none", name, owner.Kind, owner.Name)
				}
			}
		}
		return true
	})
}
