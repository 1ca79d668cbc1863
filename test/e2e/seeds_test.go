//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/test/seeds"
)

// Every command of five published tutorials, as it stands, with what the tutorial says that one
// sees. Only names of projects, registries and clusters are replaced; package seeds has the table
// of commands that have a stand-in. Clusters are as large as the tutorials': see
// seeds_cluster_test.go.
func TestSeeds(t *testing.T) {
	w := newWebhook(t)
	stories := map[string]func(*testing.T, *webhook){
		"gke": testSeedGKE, "gke-older": testSeedGKEOlder, "minikube": testSeedMinikube,
		"torchelastic": testSeedTorchElastic, "elastic-scheduling": testSeedElasticScheduling,
	}
	// tests after this one need both
	t.Cleanup(func() { command("kubectl", "apply", "-f", "testdata/priorities.yaml") })
	for _, name := range seeds.Names {
		t.Run(name, func(t *testing.T) { stories[name](t, w) })
	}
}

// edlCluster is the cluster of the tutorials for GKE: 3 n1-standard-8, of which pods can have 7.91
// CPUs and 26 GiB. Four workers of two CPUs have two CPUs here, so that there is time to disturb
// the job.
var edlCluster = size{3, 7910, 26 << 10, 4}

// nginx has what nginx:1.7.9 is here: a program that waits, in an image that has tar and test,
// which kubectl cp needs.
func nginx() map[string]string { return map[string]string{"nginx:1.7.9": registry + "/busybox:1"} }

func testSeedGKE(t *testing.T, w *webhook) {
	ns, c := w.newReplica(t, edlCluster, nginx())
	claim := ns.claim()
	p := newPlayer(t, "gke", ns, c, "your_project_id=elasticdl", "your_code_dir=code")
	p.prepares(`mkdir code && your_code_dir=$PWD/code`)
	p.runTo("kubectl apply -f elasticdl/manifests/elasticdl-rbac.yaml")
	p.granted()
	p.classes("high", "low")
	p.runTo("kubectl create -f low.yaml")
	p.copies("kubectl cp data/mnist", claim)
	p.runTo("elasticdl train")
	p.trainsAndYields()
}

func testSeedGKEOlder(t *testing.T, w *webhook) {
	ns, c := w.newReplica(t, edlCluster, nginx())
	claim := ns.claim()
	p := newPlayer(t, "gke-older", ns, c, "your_project_id=elasticdl")
	latest, err := seeds.Read("gke")
	if err != nil {
		t.Fatal(err)
	}
	p.seed.Files = latest.Files // its own have lost their indentation
	p.prepares("git clone https://github.com/sql-machine-learning/elasticdl.git && cd elasticdl")
	if out := p.runTo("kubectl get all --all-namespaces"); lacks(out, []string{`^default +service/kubernetes `}) != "" {
		t.Errorf("no service of the cluster is listed:\n%s", out)
	}
	p.runTo("kubectl apply -f elasticdl/manifests/examples/elasticdl-rbac.yaml")
	p.granted()
	p.classes("high", "low")
	p.runTo("kubectl create -f low.yaml")
	p.copies("kubectl cp mnist", claim)
	// The page says in words to build this image and to push it.
	p.prepares(
		`elasticdl zoo build --image=$REGISTRY/${PROJECT_ID}/elasticdl:ci "$(command -v elasticdl)" && elasticdl zoo push $REGISTRY/${PROJECT_ID}/elasticdl:ci`)
	p.runTo("python -m elasticdl.python.elasticdl.client train")
	p.trainsAndYields()
}

// granted checks what the applied permissions allow.
func (p *player) granted() {
	p.t.Helper()
	if out, failed := p.types("kubectl auth can-i create pods --as=system:serviceaccount:" + p.name +
		":elasticdl"); failed {
		p.t.Errorf("the ServiceAccount elasticdl may not create pods: %s", out)
	}
}

// classes deletes PriorityClasses that a tutorial creates, which other tests have, too.
func (p *player) classes(names ...string) {
	p.t.Helper()
	p.prepares("kubectl delete priorityclass --ignore-not-found " + strings.Join(names, " "))
}

// copies runs the commands up to the copy of the data, for which my-pod must be running, and
// checks that it is on the claim.
func (p *player) copies(begins, claim string) {
	p.t.Helper()
	p.runTo("kubectl create -f my-pod.yaml")
	p.shows(isRunning("my-pod"))
	p.runTo(begins)
	for _, set := range []string{"train", "test"} {
		if files, err := os.ReadDir(filepath.Join(claim, "mnist", set)); err != nil || len(files) == 0 {
			p.t.Errorf("the claim has %d files of mnist/%s: %v", len(files), set, err)
		}
	}
}

// trainsAndYields runs the common commands of both tutorials for GKE: losses and evaluations, a
// deleted worker that is replaced by worker-4, three workers that are preempted by nginx, and that
// come back when it is scaled down.
func (p *player) trainsAndYields() {
	t := p.t
	t.Helper()
	j := &submitted{namespace: p.namespace, job: "test-mnist"}
	const of = "elasticdl-test-mnist-"
	all := func(workers ...int) (patterns []string) {
		for _, name := range []string{"master", "ps-0", "ps-1"} {
			patterns = append(patterns, isRunning(of+name))
		}
		for _, n := range workers {
			patterns = append(patterns, isRunning(fmt.Sprint(of, "worker-", n)))
		}
		return patterns
	}
	p.sees("kubectl get pods", all(0, 1, 2, 3)...)
	p.sees(`kubectl logs elasticdl-test-mnist-worker-0 | grep "Loss"`, lossLine)
	p.sees(`kubectl logs elasticdl-test-mnist-master | grep "Evaluation"`, evaluationLine)

	kept := j.uids("master", "ps-0", "ps-1", "worker-1", "worker-2", "worker-3")
	p.runTo("kubectl delete pod elasticdl-test-mnist-worker-0")
	p.shows(all(1, 2, 3, 4)...)
	if now := j.uids("master", "ps-0", "ps-1", "worker-1", "worker-2", "worker-3"); !slices.Equal(now, kept) {
		t.Errorf("others than worker-0 were disturbed: %v, before %v", now, kept)
	}

	p.runTo("kubectl create -f nginx.yaml")
	j.awaits("web server of 5", patience, func() bool { return j.now[deployments]["test-nginx"].ready(5) })
	j.awaits("job of 1 worker and 3 pending", patience, func() bool {
		return len(j.workers((*object).running)) == 1 && len(j.workers(pending)) == 3
	})
	p.shows(`^` + of + `worker-\d+ +0/1 +Pending`)
	j.goesOn(512)
	p.runTo("kubectl scale deployment.v1.apps/test-nginx --replicas=1")
	j.awaits("job of 4 workers again", patience, func() bool { return len(j.workers((*object).running)) == 4 })
	p.shows(slices.Concat(all(), []string{`^test-nginx-\S+ +1/1 +Running`, `^` + of + `worker-\d+ +1/1 +Running`})...)
	j.goesOn(512)
	if now := j.uids("master", "ps-0", "ps-1"); !slices.Equal(now, kept[:3]) {
		t.Errorf("master or servers were disturbed: %v, before %v", now, kept[:3])
	}
	s := j.tells()
	if s.Relaunched != 4 || s.RecordsTotal != 5*trainingDigits {
		t.Errorf("%d pods replaced, %d records in all, want 4 and %d", s.Relaunched, s.RecordsTotal, 5*trainingDigits)
	}
	p.over()
}

func testSeedMinikube(t *testing.T, w *webhook) {
	ns, c := w.newReplica(t, size{1, 2000, 6144, 1}, nil)
	p := newPlayer(t, "minikube", ns, c)
	c.mounts["/data"] = filepath.Join(p.dir, "data")
	p.runTo("kubectl apply -f")
	p.granted()
	p.runTo("elasticdl train")
	j := &submitted{namespace: ns, job: "test-mnist"}
	p.sees("kubectl get pods", isRunning("elasticdl-test-mnist-master"),
		isRunning("elasticdl-test-mnist-ps-0"), isRunning("elasticdl-test-mnist-worker-0"))
	p.sees(`kubectl logs elasticdl-test-mnist-master | grep "Evaluation"`, evaluationLine,
		`Evaluation metrics\[v=(2[5-9]|3\d)\d\]`)
	s := j.ends(2)
	accurate(t, s.Evaluations[len(s.Evaluations)-1].Metrics["accuracy"])

	p.runTo("elasticdl train")
	ring := &submitted{namespace: ns, job: "test-mnist-allreduce"}
	const of = "elasticdl-test-mnist-allreduce-"
	p.sees("kubectl get pods", isRunning(of+"master"), isRunning(of+"worker-0"), isRunning(of+"worker-1"))
	p.sees("kubectl logs elasticdl-test-mnist-allreduce-worker-0 | grep Loss", lossLine)
	ring.ends(1)
	p.over()
}

func testSeedElasticScheduling(t *testing.T, w *webhook) {
	// Three instances of 4 CPUs and 15 GB: no room for the second job's worker with the first job,
	// whose one epoch lasts until that worker is there.
	ns, c := w.newReplica(t, size{3, 4000, 14 << 10, 8}, nil)
	p := newPlayer(t, "elastic-scheduling", ns, c, "cluster_name=elasticdl", "project_name=elasticdl",
		"DATA_IMAGE="+pushData(t))
	p.prepares("cp -r $REPOSITORY/examples/elasticdl/elasticdl . && mkdir elasticdl/doc && cd elasticdl/doc")
	p.runTo("kubectl apply -f ../manifests/examples/elasticdl-rbac.yaml")
	p.granted()
	p.prepares("cd $HOME && mkdir work && cd work")
	t.Cleanup(func() {
		command("kubectl", "delete", "priorityclass", "high-priority", "low-priority", "--ignore-not-found")
	})
	p.runTo("python elasticdl/python/elasticdl/client/client.py")
	low := &submitted{namespace: ns, job: "low-prio-job"}
	p.sees("kubectl get pods -l elasticdl_job_name=low-prio-job",
		isRunning("elasticdl-low-prio-job-master"), isRunning("elasticdl-low-prio-job-worker-0"),
		isRunning("elasticdl-low-prio-job-worker-1"))
	low.trains(0.02)
	kept := low.uids("master", "ps-0")

	p.runTo("python elasticdl/python/elasticdl/client/client.py")
	high := &submitted{namespace: ns, job: "high-prio-job"}
	p.sees("kubectl get pod", isRunning("elasticdl-high-prio-job-master"), `^elasticdl-high-prio-job-worker-0 `)
	low.awaits("one worker less", patience, func() bool {
		return len(low.workers((*object).running)) == 1 && len(low.workers(pending)) == 1
	})
	high.runs("worker-0")
	high.ends(1)
	// "Because of elastic scheduling, the two elasticdl jobs will finish finally": the second
	// worker comes back if there is work left for it.
	ended := false
	low.awaits("second worker again, or the end", patience, func() bool {
		ended = low.status().State == "Succeeded"
		return ended || len(low.workers((*object).running)) == 2
	})
	if now := low.uids("master", "ps-0"); !ended && !slices.Equal(now, kept) {
		t.Errorf("master or server was disturbed: %v, before %v", now, kept)
	}
	if s := low.ends(1); s.Relaunched != 1 {
		t.Errorf("%d workers of the job of low priority replaced, want 1", s.Relaunched)
	}
	p.over()
}
