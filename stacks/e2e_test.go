//go:build e2e

package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/test/provider/cluster"
	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/manifest"
	"github.com/elasticdl/elasticdl/trainer/pod"
)

// The Kubernetes half of every stack on a real cluster, by the real engine; the clouds are played.
func TestRealCluster(t *testing.T) {
	s := newSite(t)
	t.Run("objects", s.testObjects)
	t.Run("job", s.testJob)
}

// Every object of every stack, with every option on, is taken by the API server, which refuses fields that it does not
// know; so are the pods that its master would make. Then nothing is left to do.
func (s *site) testObjects(t *testing.T) {
	quota := section{"pods": "50", "requests.cpu": "64", "requests.memory": "256Gi", "limits.cpu": "64", "limits.memory": "256Gi", "persistentvolumeclaims": "1"}
	for _, test := range []struct {
		stack  string
		change func(config section)
		more   string // kinds that not every stack has
	}{
		{"gke", func(config section) {
			config["gcp:project"] = "elasticdl-test"
			sub(config, "elasticdl:gke")["authorizedNetworks"] = []any{section{"cidr": "198.51.100.7/32"}}
			sub(config, "elasticdl:platform")["networkPolicy"] = true
		}, "networking.k8s.io/v1/NetworkPolicy"},
		{"eks", func(config section) {
			sub(config, "elasticdl:eks")["authorizedNetworks"] = []any{section{"cidr": "198.51.100.7/32"}}
			sub(config, "elasticdl:platform")["networkPolicy"] = true
			sub(config, "elasticdl:platform")["storageClass"] = "elasticdl-efs"
		}, "networking.k8s.io/v1/NetworkPolicy storage.k8s.io/v1/StorageClass apps/v1/DaemonSet"},
		{"minikube", func(config section) {
			sub(config, "elasticdl:minikube")["cni"] = "calico"
			sub(config, "elasticdl:platform")["networkPolicy"] = true
		}, "networking.k8s.io/v1/NetworkPolicy"},
	} {
		t.Run(test.stack, func(t *testing.T) {
			tr := s.newTrial(t, test.stack, func(config section) {
				config["elasticdl:protectStorage"] = false
				sub(config, "elasticdl:platform")["quota"] = quota
				test.change(config)
			})
			tr.previewed()
			tr.up()
			kinds := make(map[string]int)
			for _, c := range tr.left() {
				kinds[c.Kind]++
			}
			t.Logf("accepted of %s: %d objects: %v", test.stack, len(tr.left()), kinds)
			for kind := range strings.FieldsSeq("v1/Namespace scheduling.k8s.io/v1/PriorityClass v1/PersistentVolume v1/PersistentVolumeClaim v1/ResourceQuota " +
				"rbac.authorization.k8s.io/v1/Role rbac.authorization.k8s.io/v1/RoleBinding v1/ServiceAccount v1/ConfigMap v1/Service batch/v1/Job " + test.more) {
				if kinds[kind] == 0 {
					t.Errorf("no %s was made", kind)
				}
			}
			tr.masterMayMakePods()
			tr.unchanged()
			tr.refresh()
			tr.unchanged()

			before := len(tr.cluster.Calls())
			tr.destroy()
			for _, c := range tr.cluster.Calls()[before:] {
				if c.Op == "delete" {
					t.Errorf("%s, which would have gone with its cluster", c)
				}
			}
			if left := tr.cloud.Left(); len(left) > 0 {
				t.Errorf("the cloud still has %v", left)
			}
		})
	}
}

// masterMayMakePods asks the API server, with the namespace's limits, what it would say to the master.
func (tr *trial) masterMayMakePods() {
	tr.t.Helper()
	var spec struct{ Data map[string]string }
	j := new(job.Job)
	if err := json.Unmarshal([]byte(tr.run("kubectl", "get", "configmap", tr.jobObject(""), "-o", "json")), &spec); err != nil {
		tr.t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(spec.Data[manifest.KeyJob]), j); err != nil {
		tr.t.Fatal(err)
	}
	ids := []pod.ID{{Role: pod.Worker}}
	if j.NumPS > 0 {
		ids = append(ids, pod.ID{Role: pod.PS})
	}
	for _, id := range ids {
		p, err := manifest.Pod(j, manifest.PodSpec{ID: id, Launch: 1}, meta.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: manifest.MasterName(j.Name), UID: "0"})
		if err != nil {
			tr.t.Fatal(err)
		}
		text, err := json.Marshal(p)
		if err != nil {
			tr.t.Fatal(err)
		}
		file := filepath.Join(tr.t.TempDir(), "pod.json")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			tr.t.Fatal(err)
		}
		if out := tr.run("kubectl", "create", "--dry-run=server", "--validate=strict", "-f", file); strings.Contains(out, "Warning") {
			tr.t.Errorf("%s: %s", id, out)
		}
	}
	if events, _ := tr.try("kubectl", "get", "events"); strings.Contains(events, "FailedCreate") {
		tr.t.Errorf("the master's pod is refused:\n%s", events)
	}
}

// A job on minikube from its start to its end, and what becomes of it when the configuration changes.
func (s *site) testJob(t *testing.T) {
	tr := s.newTrial(t, "minikube", func(config section) {
		sub(config, "elasticdl:minikube")["adopt"] = true // so that objects are deleted, not the cluster with them
		j := sub(config, "elasticdl:job")
		maps.Copy(j, section{"modelDef": "mnist.mnist_mlp.custom_model", "numEpochs": 1, "numWorkers": 1, "numPS": 1, "minibatchSize": 64, "numMinibatchesPerTask": 4})
		for role, cpu := range map[string]string{"master": "50m", "ps": "50m", "worker": "20m"} {
			j[role] = section{"request": section{"cpu": cpu, "memory": "64Mi"}, "limit": section{"cpu": "500m", "memory": "512Mi"}}
		}
	})
	tr.cluster.Mounts = map[string]string{"/data": s.digits}
	if err := tr.cloud.StartMinikube(tr.namespace); err != nil {
		t.Fatal(err)
	}
	tr.up()
	tr.ends()
	first := tr.master()

	tr.unchanged()
	tr.refresh()
	tr.unchanged()
	if again := tr.master(); again != first {
		t.Fatalf("the job that had ended was run again: %s, then %s", first, again)
	}

	tr.drifts()
	if again := tr.master(); again != first {
		t.Fatalf("the job that had ended was run again: %s, then %s", first, again)
	}

	// Another substance, a longer one: the Job is another.
	tr.configure(func(config section) { sub(config, "elasticdl:job")["numEpochs"] = 1000 })
	tr.is(tr.previewed(), map[string]int{"replace": 1, "update": 1})
	tr.up()
	second := tr.master()
	if second == first {
		t.Fatal("the job was not replaced")
	}
	tr.running("worker-0")
	worker := tr.uid("worker-0")

	// More workers: one update, and those that run go on.
	tr.configure(func(config section) { sub(config, "elasticdl:job")["numWorkers"] = 3 })
	tr.is(tr.previewed(), map[string]int{"update": 1})
	tr.is(tr.up(), map[string]int{"update": 1})
	tr.running("worker-0", "worker-1", "worker-2")
	if tr.master() != second || tr.uid("worker-0") != worker {
		t.Error("the job or its worker was disturbed")
	}
	tr.unchanged()

	// The configuration has the last word.
	tr.run("elasticdl", "scale", tr.job(), "--num_workers=2")
	tr.refresh()
	tr.is(tr.up(), map[string]int{"update": 1})
	tr.running("worker-0")

	// Another substance while it runs: the new one's pods have the old ones' names.
	tr.configure(func(config section) { sub(config, "elasticdl:job")["minibatchSize"] = 32 })
	tr.is(tr.up(), map[string]int{"replace": 1, "update": 1})
	third := tr.master()
	tr.eventually("worker-0 of the new job", func() bool {
		return tr.uid("worker-0") != "" && tr.uid("worker-0") != worker && tr.phase("worker-0") == "Running"
	})
	if second == third {
		t.Error("the job was not replaced")
	}

	tr.isDestroyed()
}

// drifts changes and deletes objects behind Pulumi's back.
func (tr *trial) drifts() {
	tr.t.Helper()
	tr.run("kubectl", "delete", "role,rolebinding", tr.jobObject(""))
	tr.run("kubectl", "delete", "service", tr.jobObject("-master"))
	tr.run("kubectl", "label", "namespace", tr.namespace, "app-") // one with another value would be a conflict, which up reports
	found := tr.refresh()
	if found["delete"] != 3 {
		tr.t.Errorf("refresh found %v, want 3 deletions", found)
	}
	tr.is(tr.previewed(), map[string]int{"create": 3, "update": 1})
	tr.is(tr.up(), map[string]int{"create": 3, "update": 1})
	tr.run("kubectl", "get", "role,rolebinding", tr.jobObject(""))
	tr.unchanged()
}

// isDestroyed destroys the stack while its job runs: pods are gone before what they use, and nothing is left.
func (tr *trial) isDestroyed() {
	tr.t.Helper()
	before := len(tr.cluster.Calls())
	tr.cluster.Done = func(c cluster.Call) {
		if c.Op != "delete" || !slices.Contains([]string{"v1/PersistentVolumeClaim", "v1/Namespace"}, c.Kind) {
			return
		}
		if pods, _ := tr.try("kubectl", "get", "pods", "-o", "name"); strings.Contains(pods, "pod/") {
			tr.t.Errorf("%s, and there are still %s", c, pods)
		}
	}
	tr.destroy()
	var order []string
	for _, c := range tr.cluster.Calls()[before:] {
		if c.Op == "delete" {
			order = append(order, c.Kind[strings.LastIndex(c.Kind, "/")+1:])
		}
	}
	tr.t.Log("deleted: ", order)
	if at := slices.Index(order, "Job"); at != 0 {
		tr.t.Errorf("the job goes after %v", order[:max(at, 0)])
	}
	if left := tr.left(); len(left) > 0 {
		tr.t.Errorf("the cluster still has %v", left)
	}
	if left := tr.cloud.Left(); len(left) > 0 {
		tr.t.Errorf("the cloud still has %v", left)
	}
	if out, err := tr.try("kubectl", "get", "namespace", tr.namespace); err == nil {
		tr.t.Errorf("the namespace is there:\n%s", out)
	}
}

// job is the name of the stack's.
func (tr *trial) job() string {
	tr.t.Helper()
	var name string
	tr.configure(func(config section) { name, _ = sub(config, "elasticdl:job")["name"].(string) })
	return name
}

func (tr *trial) jobObject(suffix string) string { return manifest.SpecName(tr.job()) + suffix }

// ends waits as a user does.
func (tr *trial) ends() {
	tr.t.Helper()
	tr.run("elasticdl", "wait", tr.job(), "--timeout=4m")
	if status := tr.run("elasticdl", "status", tr.job()); !strings.Contains(status, "Succeeded") {
		tr.t.Errorf("%s", status)
	}
}

// master is the identity of the Job.
func (tr *trial) master() string {
	tr.t.Helper()
	return tr.run("kubectl", "get", "job", tr.jobObject("-master"), "-o", "jsonpath={.metadata.uid}")
}

// uid is that of a server or worker, "" if there is none.
func (tr *trial) uid(name string) string {
	tr.t.Helper()
	return tr.run("kubectl", "get", "pod", tr.jobObject("-"+name), "-o", "jsonpath={.metadata.uid}", "--ignore-not-found")
}

func (tr *trial) phase(name string) string {
	tr.t.Helper()
	return tr.run("kubectl", "get", "pod", tr.jobObject("-"+name), "-o", "jsonpath={.status.phase}", "--ignore-not-found")
}

// running waits until these pods run.
func (tr *trial) running(names ...string) {
	tr.t.Helper()
	for _, name := range names {
		tr.eventually("running "+name, func() bool { return tr.phase(name) == "Running" })
	}
}

// is compares changes by kind.
func (tr *trial) is(got, want map[string]int) {
	tr.t.Helper()
	if !maps.Equal(got, want) {
		tr.t.Errorf("%v, want %v", got, want)
	}
}
