//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// succeeded waits until another master is running, and training continues with it.
func (j *submitted) succeeded(before string, what string) (uid string) {
	j.t.Helper()
	return j.back(what, func(o *object) bool { return o.running() && o.Metadata.UID != before })
}

// back waits until there is a master for which is returns true, and training continues with it.
func (j *submitted) back(what string, is func(master *object) bool) (uid string) {
	j.t.Helper()
	began := time.Now()
	j.awaits("another master", patience, func() bool { return is(j.pod("master")) })
	took(j.t, what+" to another master running", began)
	j.goesOn(trainingDigits / 10)
	took(j.t, what+" to further training", began)
	return j.uids("master")[0]
}

// undisturbed checks that the loss of masters began no new model generation.
func (j *submitted) undisturbed(s *wire.JobStatus) {
	j.t.Helper()
	if s.ModelGeneration != 1 || s.RollbackReason != "" {
		j.t.Errorf("model generation %d, %q: the model was lost with a master", s.ModelGeneration, s.RollbackReason)
	}
	if n := len(s.Evaluations); n == 0 {
		j.t.Error("nothing was evaluated")
	} else {
		accurate(j.t, s.Evaluations[n-1].Metrics["accuracy"])
	}
}

// A master is killed three times, twice by its process and once by its pod, and then lost with its
// node. Each time its launcher creates the next one. The servers and workers continue, and the job
// loses nothing.
func TestMasterComesBack(t *testing.T) {
	t.Parallel()
	const epochs = 60
	ns := newNamespaceApart(t)
	ns.cordon(ns.nodes[1])
	j := ns.train("heir", slices.Concat(small, []string{mlp, "--num_epochs=60", "--num_ps_pods=2", "--num_workers=2",
		"--minibatch_size=64", "--num_minibatches_per_task=4"})...)
	others := []string{"ps-0", "ps-1", "worker-0", "worker-1"}
	j.runs(slices.Concat([]string{"master"}, others)...)
	j.trains(0.01)
	kept, master := j.uids(others...), j.uids("master")[0]
	for n := range 2 {
		if !crash(j.found("master")) {
			t.Fatal("the master has no process")
		}
		master = j.succeeded(master, fmt.Sprintf("kill %d of the master's process", n+1))
	}

	ns.kubectl("uncordon", ns.nodes[1])
	ns.cordon(ns.nodes[0])
	ns.kubectl("delete", "pod", j.found("master").Metadata.Name, "--grace-period=0", "--force")
	master = j.succeeded(master, "master killed")
	if node := j.found("master").Spec.NodeName; node != ns.nodes[1] {
		t.Fatalf("the master is on %s", node)
	}
	ns.kubectl("uncordon", ns.nodes[0])

	back := killed(t, ns.nodes[1])
	j.succeeded(master, "the master's node killed")
	back()
	if now := j.uids(others...); !slices.Equal(now, kept) {
		t.Errorf("%v were disturbed: %v, before %v", others, now, kept)
	}
	j.hurries()
	j.undisturbed(j.ends(epochs))
	if log := j.log("master"); len(grep(log, "Master restored")) == 0 {
		t.Error("the last master's log does not say that it has come back")
	}
}

// The workers of a ring keep the model while their master is down. The job is suspended then, and
// resumes from its checkpoint.
func TestRingOutlivesMaster(t *testing.T) {
	t.Parallel()
	const epochs = 40
	ns := newNamespace(t)
	j := ns.train("orphans",
		slices.Concat(small, ns.checkpoints(),
			[]string{mlp, "--distribution_strategy=AllreduceStrategy", "--num_epochs=40", "--num_workers=3",
				"--minibatch_size=64", "--num_minibatches_per_task=4"})...)
	others := []string{"worker-0", "worker-1", "worker-2"}
	j.runs(slices.Concat([]string{"master"}, others)...)
	j.trains(0.01)
	kept, master := j.uids(others...), j.uids("master")[0]
	ns.kubectl("delete", "pod", j.found("master").Metadata.Name, "--grace-period=0", "--force")
	j.succeeded(master, "master killed")
	if s := j.tells(); s.ModelGeneration != 1 {
		t.Errorf("model generation %d: it was lost with a master", s.ModelGeneration)
	}
	if now := j.uids(others...); !slices.Equal(now, kept) {
		t.Errorf("%v were disturbed: %v, before %v", others, now, kept)
	}

	done := j.done()
	began := time.Now()
	ns.kubectl("patch", "job", "elasticdl-orphans-master", "--type=merge", "-p", `{"spec":{"suspend":true}}`)
	j.alone()
	took(t, "job suspended to the end of all pods", began)
	if out := ns.elasticdl("status", "orphans"); len(grep(out, `State: *Suspended`)) == 0 {
		t.Errorf("elasticdl status does not say that the job is suspended:\n%s", out)
	}
	began = time.Now()
	ns.kubectl("patch", "job", "elasticdl-orphans-master", "--type=merge", "-p", `{"spec":{"suspend":false}}`)
	j.goesOn(trainingDigits / 10)
	took(t, "job resumed to further training", began)
	if now := j.done(); now < done {
		t.Errorf("%d records are done after the suspension, %d before", now, done)
	}
	j.hurries()
	s := j.ends(epochs)
	if strings.Contains(s.RollbackReason, "started over") || s.RecordsBefore < done {
		t.Errorf("%q, with %d records of before: the job did not continue with what it had, %d records",
			s.RollbackReason, s.RecordsBefore, done)
	}
}

// evict asks the API server to evict a pod, as a drain does.
func (ns *namespace) evict(name string) {
	ns.t.Helper()
	file := filepath.Join(ns.t.TempDir(), "eviction.json")
	text := fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q,"namespace":%q}}`,
		name, ns.name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		ns.t.Fatal(err)
	}
	ns.kubectl("create", "--raw", "/api/v1/namespaces/"+ns.name+"/pods/"+name+"/eviction", "-f", file)
}

// A master is lost ten times in a row, and its launcher once with it: killed, deleted, evicted, and
// with its node. It is back as fast the tenth time as the first, the others continue, and each
// record counts once.
func TestMasterLostTenTimes(t *testing.T) {
	t.Parallel()
	const epochs = 100
	ns := newNamespaceApart(t)
	ns.cordon(ns.nodes[1])
	j := ns.train("felix", slices.Concat(small, []string{mlp, "--num_epochs=100", "--num_ps_pods=2",
		"--num_workers=2", "--minibatch_size=64", "--num_minibatches_per_task=4"})...)
	others := []string{"ps-0", "ps-1", "worker-0", "worker-1"}
	j.runs(slices.Concat([]string{"master"}, others)...)
	j.trains(0.01)
	ns.kubectl("uncordon", ns.nodes[1])
	kept, name := j.uids(others...), j.found("master").Metadata.Name
	// moves makes the next master start on the second node
	moves := func() {
		ns.cordon(ns.nodes[0])
		before := j.uids("master")[0]
		ns.evict(name)
		j.succeeded(before, "the master evicted, to the other node")
		ns.kubectl("uncordon", ns.nodes[0])
	}
	var back []time.Duration
	for n, how := range []string{"kill", "kill", "delete", "evict", "kill", "node", "kill", "evict",
		"with its launcher", "kill"} {
		if how == "node" {
			moves()
		}
		before, restart := j.uids("master")[0], func() {}
		began := time.Now()
		switch how {
		case "kill":
			if !crash(j.found("master")) {
				t.Fatal("the master has no process")
			}
		case "delete":
			ns.kubectl("delete", "pod", name, "--grace-period=0", "--force")
		case "evict":
			ns.evict(name)
		case "node":
			restart = killed(t, ns.nodes[1])
		case "with its launcher":
			ns.kubectl("delete", "pod", "--wait=false", "-l",
				"elasticdl-job-name=felix,elasticdl-replica-type=launcher")
			ns.kubectl("delete", "pod", name, "--grace-period=0", "--force")
		}
		what := fmt.Sprintf("loss %d (%s)", n+1, how)
		j.awaits("another master after "+what, patience, func() bool {
			return j.pod("master").running() && j.pod("master").Metadata.UID != before
		})
		took(t, what+" to another master running", began)
		if how != "node" && how != "with its launcher" {
			back = append(back, time.Since(began))
		}
		j.goesOn(trainingDigits / 10)
		took(t, what+" to further training", began)
		restart()
	}
	slices.Sort(back)
	figure(t, "median of the losses without a node or launcher", rounded(back[len(back)/2]), "")
	if now := j.uids(others...); !slices.Equal(now, kept) {
		t.Errorf("%v were disturbed: %v, before %v", others, now, kept)
	}
	j.hurries()
	j.undisturbed(j.ends(epochs))
}
