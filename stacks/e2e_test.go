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
	"time"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/test/provider/cluster"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// The Kubernetes objects of every stack work on a real cluster, with the real engine; the clouds
// are simulated.
func TestRealCluster(t *testing.T) {
	s := newSite(t)
	t.Run("objects", s.testObjects)
	t.Run("others", s.testOthers)
	t.Run("job", s.testJob)
	t.Run("program", s.testProgram)
	t.Run("page", s.testPage)
	t.Run("existing", s.testExisting)
	t.Run("queue", s.testQueue)
	t.Run("nodepools", s.testNodePools)
}

// The API server, which refuses unknown fields, accepts every object of every stack with every
// option on, and the pods that its master would create. A second update changes nothing.
func (s *site) testObjects(t *testing.T) {
	quota := section{"pods": "50", "requests.cpu": "64", "requests.memory": "256Gi", "limits.cpu": "64",
		"limits.memory": "256Gi", "persistentvolumeclaims": "1"}
	for _, test := range []struct {
		stack  string
		change func(config section)
		// kinds of objects that not every stack has
		more string
	}{
		{"gke", func(config section) {
			config["gcp:project"] = "elasticdl-test"
			sub(config, "elasticdl:gke")["authorizedNetworks"] = []any{section{"cidr": "198.51.100.7/32"}}
			sub(config, "elasticdl:gke")["filestore"] = section{"tier": "BASIC_HDD", "capacityGb": 1024,
				"share": "data"}
			sub(config, "elasticdl:platform")["networkPolicy"] = true
		}, "networking.k8s.io/v1/NetworkPolicy"},
		{"eks", func(config section) {
			sub(config, "elasticdl:eks")["authorizedNetworks"] = []any{section{"cidr": "198.51.100.7/32"}}
			// the kinds of Auto Mode are Amazon's: see testNodePools
			eks := sub(config, "elasticdl:eks")
			delete(eks, "pools")
			eks["nodes"], eks["efs"] = "groups", section{"throughputMode": "elastic"}
			eks["systemGroup"] = section{"minNodes": 1, "desiredNodes": 1, "maxNodes": 3}
			eks["gpuGroup"] = section{"instanceTypes": []any{"g4dn.xlarge"}, "gpus": 1, "maxNodes": 1}
			sub(config, "elasticdl:platform")["networkPolicy"] = true
			sub(config, "elasticdl:platform")["storageClass"] = "elasticdl-efs"
		}, "networking.k8s.io/v1/NetworkPolicy storage.k8s.io/v1/StorageClass apps/v1/DaemonSet"},
		{"minikube", func(config section) {
			maps.Copy(sub(config, "elasticdl:minikube"), section{"cni": "calico", "data": s.data})
			sub(config, "elasticdl:platform")["networkPolicy"] = true
		}, "networking.k8s.io/v1/NetworkPolicy"},
	} {
		t.Run(test.stack, func(t *testing.T) {
			tr := s.newTrial(t, test.stack, func(config section) {
				config["elasticdl:protectStorage"] = false
				sub(config, "elasticdl:platform")["quota"] = quota
				sub(config, "elasticdl:platform", "priorityClasses")["urgent-"+test.stack] = 2000000
				delete(config, "elasticdl:image")
				delete(config, "elasticdl:data") // a pod would have to write the data
				sub(config, "elasticdl:job")["suspend"] = true
				// no node can pull this image
				sub(config, "elasticdl:job")["image"] = "registry.invalid/elasticdl:none"
				test.change(config)
			})
			tr.up()
			kinds := make(map[string]int)
			for _, c := range tr.left() {
				kinds[c.Kind]++
			}
			t.Logf("accepted of %s: %d objects: %v", test.stack, len(tr.left()), kinds)
			for kind := range strings.FieldsSeq(
				"v1/Namespace scheduling.k8s.io/v1/PriorityClass v1/PersistentVolume " +
					"v1/PersistentVolumeClaim v1/ResourceQuota " +
					"rbac.authorization.k8s.io/v1/Role rbac.authorization.k8s.io/v1/RoleBinding " +
					"v1/ServiceAccount v1/ConfigMap v1/Secret v1/Service batch/v1/Job " + test.more) {
				if kinds[kind] == 0 {
					t.Errorf("no %s was made", kind)
				}
			}
			tr.resumes()
			tr.masterMayMakePods()
			tr.unchanged()
			tr.refresh()
			tr.unchanged()

			// Objects with a change that the API refuses are replaced, others are updated.
			tr.configure(func(config section) {
				platform := sub(config, "elasticdl:platform")
				sub(platform, "priorityClasses")["urgent-"+test.stack] = 3000000
				sub(platform, "quota")["pods"] = "60"
				platform["networkPolicy"] = false
			})
			class := "scheduling.k8s.io/v1/PriorityClass urgent-" + test.stack
			tr.does("delete "+class, "create "+class, "update v1/ResourceQuota elasticdl",
				"delete networking.k8s.io/v1/NetworkPolicy elasticdl")

			before := len(tr.cluster.Calls())
			tr.destroy()
			for _, c := range tr.cluster.Calls()[before:] {
				if c.Op == "delete" {
					t.Errorf("%s, which would have been deleted with its cluster", c)
				}
			}
			if left := tr.cloud.Left(); len(left) > 0 {
				t.Errorf("the cloud still has %v", left)
			}
		})
	}
}

// A stack on an existing profile, which has objects of others: they are checked before, shared if
// the settings report it, and kept. Every change that the pages allow can be previewed, also if the
// API server refuses to change the object, and after a stop.
func (s *site) testOthers(t *testing.T) {
	tr := s.newTrial(t, "minikube", func(config section) {
		sub(config, "elasticdl:minikube")["adopt"] = true
		delete(config, "elasticdl:image")
		delete(config, "elasticdl:data")
		maps.Copy(sub(config, "elasticdl:job"), section{"suspend": true, "image": "registry.invalid/elasticdl:none"})
	})
	if err := tr.cloud.StartMinikube(tr.namespace); err != nil {
		t.Fatal(err)
	}
	tr.run("kubectl", "create", "namespace", tr.namespace)
	t.Cleanup(func() { tr.try("kubectl", "delete", "namespace", tr.namespace, "--wait=false") })
	tr.run("kubectl", "create", "configmap", "precious")
	tr.refuses("Namespace "+tr.namespace+" already exists, and is not of this stack", "platform.shareNamespace: true")

	tr.configure(func(config section) { sub(config, "elasticdl:platform")["shareNamespace"] = true })
	tr.up()
	tr.unchanged()
	tr.configure(func(config section) { sub(config, "elasticdl:minikube")["data"] = s.data })
	volume, claim := "v1/PersistentVolume "+tr.namespace+"-data-claim", "v1/PersistentVolumeClaim data-claim"
	tr.does("delete "+claim, "delete "+volume, "create "+volume, "create "+claim)
	tr.unchanged()

	tr.run("elasticdl", "stop", jobName)
	tr.configure(func(config section) { sub(config, "elasticdl:job")["numEpochs"] = 7 })
	tr.refuses("was deleted since, by `elasticdl stop`", "pulumi up --refresh")
	tr.refresh()
	tr.up()
	if tr.master() == "" {
		t.Error("there is no job")
	}
	tr.unchanged()
	tr.destroy()
	if left := tr.left(); len(left) > 0 {
		t.Errorf("the cluster still has %v", left)
	}
	tr.run("kubectl", "get", "configmap", "precious")
}

// masterMayMakePods asks the API server whether the master may create its pods within the
// namespace's limits.
func (tr *trial) masterMayMakePods() {
	tr.t.Helper()
	var spec struct{ Data map[string]string }
	j := new(job.Job)
	if err := json.Unmarshal([]byte(tr.run("kubectl", "get", "configmap", manifest.SpecName(jobName),
		"-o", "json")), &spec); err != nil {
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
		p, err := manifest.Pod(j, manifest.PodSpec{ID: id, Incarnation: 1},
			meta.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: manifest.MasterName(j.Name), UID: "0"})
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
		if out := tr.run("kubectl", "create", "--dry-run=server", "--validate=strict", "-f",
			file); strings.Contains(out, "Warning") {
			tr.t.Errorf("%s: %s", id, out)
		}
	}
}

// resumes starts a suspended job by one update, and checks that the API server accepts its master's
// pod.
func (tr *trial) resumes() {
	tr.t.Helper()
	tr.configure(func(config section) { sub(config, "elasticdl:job")["suspend"] = false })
	tr.does("update " + jobMaster)
	tr.eventually("master", func() bool {
		if events := tr.run("kubectl", "get", "events"); strings.Contains(events, "FailedCreate") {
			tr.t.Fatalf("the master's pod is refused:\n%s", events)
		}
		return strings.Contains(tr.run("kubectl", "get", "pods", "-o", "name"), manifest.MasterName(jobName))
	})
}

// Names of the job of the shipped stacks.
const (
	jobName   = "test-mnist"
	jobSpec   = "v1/ConfigMap elasticdl-test-mnist"
	jobMaster = "batch/v1/Job elasticdl-test-mnist-master"
)

// A job on minikube is built from the source of its model, runs to its end, and follows changes of
// its configuration.
func (s *site) testJob(t *testing.T) {
	tr := s.newTrial(t, "minikube", func(config section) {
		// In an adopted profile objects are deleted one by one, and the cluster is kept.
		maps.Copy(sub(config, "elasticdl:minikube"), section{"adopt": true})
		config["elasticdl:data"] = section{"dataset": "mnist", "path": "mnist",
			"source": filepath.Join(s.repository, "examples/mnist/data"), "command": s.onCluster(t)}
		j := sub(config, "elasticdl:job")
		maps.Copy(j, section{"modelDef": "mnist.mnist_mlp.custom_model", "numEpochs": 1, "numMinibatchesPerTask": 4})
		for role, cpu := range map[string]string{"master": "50m", "ps": "50m", "worker": "20m"} {
			maps.Copy(sub(j, role), section{"request": section{"cpu": cpu, "memory": "64Mi"},
				"limit": section{"cpu": "500m", "memory": "512Mi"}})
		}
	})
	tr.cluster.Mounts = map[string]string{"/data": s.data}
	if err := tr.cloud.StartMinikube(tr.namespace); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	tr.up()
	tr.run("elasticdl", "wait", jobName, "--timeout=4m")
	if status := tr.run("elasticdl", "status", jobName); !strings.Contains(status, "Succeeded") {
		t.Errorf("%s", status)
	}
	t.Logf("pulumi up to the end of the job: %v", time.Since(began).Round(100*time.Millisecond))
	first := tr.master()

	tr.unchanged()
	tr.up("urn:pulumi:minikube::elasticdl::command:local:Command::dataset")
	if said := tr.said("dataset"); !strings.Contains(said, "mnist already exists") {
		t.Errorf("the data that is there was brought again: %s", said)
	}
	tr.refresh()
	tr.unchanged()
	tr.drifts()
	if again := tr.master(); again != first {
		t.Fatalf("the job that had ended was run again: %s, then %s", first, again)
	}

	// Another setting of the training, a longer one: the Job is replaced.
	tr.configure(func(config section) { sub(config, "elasticdl:job")["numEpochs"] = 1000 })
	tr.does("update "+jobSpec, "delete "+jobMaster, "create "+jobMaster)
	second := tr.master()
	if second == first {
		t.Fatal("the job was not replaced")
	}
	tr.running("worker-0")
	worker := tr.uid("worker-0")

	// More workers: one update, and the running workers continue.
	tr.configure(func(config section) { sub(config, "elasticdl:job")["numWorkers"] = 3 })
	tr.does("update " + jobSpec)
	tr.running("worker-0", "worker-1", "worker-2")
	if tr.master() != second || tr.uid("worker-0") != worker {
		t.Error("the job or its worker was disturbed")
	}
	tr.unchanged()

	// The stack overwrites the number that another command has set.
	tr.run("kubectl", "patch", "configmap", manifest.SpecName(jobName), "--type=merge", "-p",
		`{"data":{"numWorkers":"2"}}`)
	tr.eventually("end of worker-2", func() bool {
		return tr.uid("worker-2") == "" || tr.phase("worker-2") != "Running"
	})
	tr.refresh()
	tr.does("update " + jobSpec)
	tr.unchanged()

	// Another setting of the training while it runs: the new pods have the names of the old ones.
	tr.configure(func(config section) { sub(config, "elasticdl:job")["minibatchSize"] = 32 })
	tr.does("update "+jobSpec, "delete "+jobMaster, "create "+jobMaster)
	if tr.master() == second {
		t.Error("the job was not replaced")
	}
	tr.eventually("worker-0 of the new job", func() bool {
		return tr.uid("worker-0") != worker && tr.phase("worker-0") == "Running"
	})

	tr.isDestroyed()
}

// drifts changes and deletes objects outside of Pulumi.
func (tr *trial) drifts() {
	tr.t.Helper()
	tr.run("kubectl", "delete", "role,rolebinding", manifest.SpecName(jobName))
	tr.run("kubectl", "delete", "service", manifest.MasterName(jobName))
	// a label with another value would be a conflict, which up reports
	tr.run("kubectl", "label", "namespace", tr.namespace, "app-")
	found := tr.refresh()
	if found["delete"] != 3 {
		tr.t.Errorf("refresh found %v, want 3 deletions", found)
	}
	tr.does("create rbac.authorization.k8s.io/v1/Role elasticdl-test-mnist",
		"create rbac.authorization.k8s.io/v1/RoleBinding elasticdl-test-mnist",
		"create v1/Service elasticdl-test-mnist-master", "update v1/Namespace "+tr.namespace)
	tr.run("kubectl", "get", "role,rolebinding", manifest.SpecName(jobName))
	tr.unchanged()
}

// isDestroyed destroys the stack while its job runs: pods are deleted before the objects that they
// use, and nothing is left.
func (tr *trial) isDestroyed() {
	tr.t.Helper()
	before := len(tr.cluster.Calls())
	tr.cluster.Done = func(c cluster.Call) {
		if c.Op != "delete" || !slices.Contains([]string{"v1/PersistentVolumeClaim", "v1/Namespace"}, c.Kind) {
			return
		}
		// the launcher, which uses no claim, ends after its master
		jsonpath := "{range .items[*]}{.metadata.name} {.spec.volumes[*].persistentVolumeClaim.claimName}{\"\\n\"}{end}"
		pods, _ := tr.try("kubectl", "get", "pods", "-o", "jsonpath="+jsonpath)
		for line := range strings.Lines(pods) {
			if pod := strings.Fields(line); c.Kind == "v1/Namespace" || len(pod) > 1 {
				tr.t.Errorf("%s, and there is still pod %v", c, pod)
			}
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

// master returns the UID of the Job.
func (tr *trial) master() string {
	tr.t.Helper()
	return tr.run("kubectl", "get", "job", manifest.MasterName(tr.job), "-o", "jsonpath={.metadata.uid}")
}

// uid returns the UID of a parameter server or worker, or "" if there is none.
func (tr *trial) uid(name string) string {
	tr.t.Helper()
	return tr.run("kubectl", "get", "pod", manifest.SpecName(tr.job)+"-"+name, "-o",
		"jsonpath={.metadata.uid}", "--ignore-not-found")
}

func (tr *trial) phase(name string) string {
	tr.t.Helper()
	return tr.run("kubectl", "get", "pod", manifest.SpecName(tr.job)+"-"+name, "-o",
		"jsonpath={.status.phase}", "--ignore-not-found")
}

// running waits until these pods are running.
func (tr *trial) running(names ...string) {
	tr.t.Helper()
	for _, name := range names {
		tr.eventually("running "+name, func() bool { return tr.phase(name) == "Running" })
	}
}
