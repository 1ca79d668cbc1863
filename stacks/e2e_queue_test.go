//go:build e2e

package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// kueue starts the real Kueue in the test's cluster. One that runs already belongs to the owner of
// the cluster, and stays.
func (s *site) kueue(t *testing.T) {
	t.Helper()
	program := filepath.Join(s.repository, "build", "tools", "cluster")
	// the exit status tells whether all components run, which is of no interest
	status, _ := exec.CommandContext(t.Context(), program, "status", "--dir="+s.dir).Output()
	run := func(args ...string) {
		if out, err := exec.Command(program, append(args, "--dir="+s.dir)...).CombinedOutput(); err != nil {
			t.Errorf("cluster %v: %v\n%s", args, err, out)
		}
	}
	run("add", "kueue")
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "kueue" && f[1] == "running" {
			return
		}
	}
	t.Cleanup(func() { run("remove", "kueue") })
}

// Queues on the real API server, whose schemas and Kueue's webhooks check every object.
func (s *site) testQueue(t *testing.T) {
	s.kueue(t)
	t.Run("own", s.testQueueOwn)
	t.Run("of others", s.testQueueOfOthers)
}

// With the rights of an administrator the stack makes a queue with all that it may have. Quotas,
// the cohort and the flavor change in place, and a refresh finds no difference: Kueue's webhooks
// write values into these objects.
func (s *site) testQueueOwn(t *testing.T) {
	t.Setenv("KUBECONFIG", s.kubeconfig)
	tr := s.newTrial(t, "existing", func(config section) {
		config["elasticdl:protectStorage"] = false
		config["elasticdl:existing"] = section{"volume": section{"capacityGb": 1, "storageClass": "of-nobody"}}
		delete(config, "elasticdl:image")
		delete(config, "elasticdl:data")
		platform := sub(config, "elasticdl:platform")
		platform["queuePriorities"] = true
		platform["queue"] = section{"clusterQueue": "of-nobody"}
		maps.Copy(sub(config, "elasticdl:job"), section{"suspend": true, "image": "registry.invalid/elasticdl:none"})
	})
	tr.refuses("platform.queue.clusterQueue: there is no ClusterQueue of-nobody")
	tr.configure(func(config section) {
		sub(config, "elasticdl:platform")["queue"] = section{"cohort": "all",
			"quotas": section{"cpu": 20, "memory": "81920Mi", "pods": 50, "nvidia.com/gpu": 8},
			"flavor": section{"labels": section{"pool": "gpu"}, "tolerations": []any{
				section{"key": "spot", "operator": "Exists", "effect": "NoExecute", "seconds": 5},
				section{"key": "gpu", "operator": "Equal", "value": "true"}}}}
	})
	tr.up()
	const of = "kueue.x-k8s.io/v1beta2/"
	kinds := map[string]bool{}
	for _, c := range tr.left() {
		kinds[strings.TrimPrefix(c.Kind, of)] = true
	}
	for _, kind := range []string{"ResourceFlavor", "ClusterQueue", "LocalQueue", "WorkloadPriorityClass"} {
		if !kinds[kind] {
			t.Errorf("no %s was made", kind)
		}
	}
	tr.run("kubectl", "wait", "--for=condition=Active", "localqueue/training", "--timeout=1m")
	tr.unchanged()
	tr.refresh()
	tr.unchanged()
	clusterQueue, flavor := of+"ClusterQueue "+tr.namespace+"-training", of+"ResourceFlavor "+tr.namespace+"-training"
	tr.configure(func(config section) { sub(config, "elasticdl:platform", "queue", "quotas")["cpu"] = 24 })
	tr.does("update " + clusterQueue)
	tr.configure(func(config section) {
		queue := sub(config, "elasticdl:platform", "queue")
		delete(queue, "cohort")
		delete(sub(queue, "flavor"), "tolerations")
	})
	tr.does("update "+clusterQueue, "update "+flavor)
	tr.unchanged()
	tr.refresh()
	tr.unchanged()
	tr.masterMayMakePods()
	tr.destroy()
	if left := tr.left(); len(left) > 0 {
		t.Errorf("the cluster still has %v", left)
	}
}

// A user with only the rights that the page lists runs a job in a queue of the administrator: the
// stack makes the LocalQueue, and Kueue admits the job's pods. The job ends, another one is changed
// while it runs, and all is destroyed; the administrator's queue is left unchanged.
func (s *site) testQueueOfOthers(t *testing.T) {
	registry, err := os.ReadFile(filepath.Join(s.dir, "registry"))
	if err != nil {
		t.Fatal(err)
	}
	namespace := fmt.Sprintf("queued-%x", time.Now().UnixMilli()&0xffffff)
	admin := &trial{site: s, t: t, namespace: namespace}
	theirs := append(admin.others(s.data, map[string]int{"high": 1000000, "low": 1000}), admin.queues()...)
	user := *s
	user.kubeconfig = admin.user(filepath.Join(s.repository, "docs", "infrastructure", "existing.md"))
	t.Setenv("KUBECONFIG", user.kubeconfig)
	tr := user.newTrial(t, "existing", func(config section) {
		config["elasticdl:existing"] = section{"registry": strings.TrimSpace(string(registry)),
			"volume": section{"name": "datasets"}}
		maps.Copy(sub(config, "elasticdl:platform"), section{"namespace": namespace, "shareNamespace": true,
			"sharePriorityClasses": []any{"high", "low"}, "queue": section{"clusterQueue": namespace}})
		sub(config, "elasticdl:image")["name"] = "existing/" + namespace
		config["elasticdl:data"] = section{"dataset": "mnist", "path": "mnist", "command": s.elasticdl,
			"source": filepath.Join(s.repository, "examples/mnist/data")}
		j := sub(config, "elasticdl:job")
		maps.Copy(j, section{"modelDef": "mnist.mnist_mlp.custom_model", "numEpochs": 1, "numMinibatchesPerTask": 4,
			"numWorkers": 1, "volumes": []any{section{"claimName": "datasets", "mountPath": "/data"}}})
		for role, cpu := range map[string]string{"master": "50m", "ps": "50m", "worker": "20m"} {
			maps.Copy(sub(j, role), section{"request": section{"cpu": cpu, "memory": "64Mi"},
				"limit": section{"cpu": "500m", "memory": "512Mi"}})
		}
	})
	tr.namespace = namespace
	uid := admin.run("kubectl", "get", "clusterqueue", namespace, "-o", "jsonpath={.metadata.uid} {.spec}")
	began := time.Now()
	tr.up()
	tr.run("elasticdl", "wait", jobName, "--timeout=4m")
	if status := tr.run("elasticdl", "status", jobName); !strings.Contains(status, "Succeeded") {
		t.Errorf("%s", status)
	}
	t.Logf("pulumi up to the end of the job: %v", time.Since(began).Round(100*time.Millisecond))
	tr.unchanged()
	tr.refresh()
	tr.unchanged()

	tr.configure(func(config section) { sub(config, "elasticdl:job")["numEpochs"] = 1000 })
	tr.does("update "+jobSpec, "delete "+jobMaster, "create "+jobMaster)
	tr.running("worker-0", "ps-0")
	tr.eventually("admitted master, server and worker", func() bool {
		admitted := admin.run("kubectl", "get", "workloads", "-o", `jsonpath={range .items[*]}{.spec.queueName} `+
			`{.status.conditions[?(@.type=="Admitted")].status} {.status.conditions[?(@.type=="Finished")].status}{"\n"}{end}`)
		n := 0
		for line := range strings.Lines(admitted) {
			if strings.TrimSpace(line) == "training True" {
				n++
			}
		}
		return n == 3
	})
	worker := tr.uid("worker-0")
	tr.configure(func(config section) { sub(config, "elasticdl:job")["numWorkers"] = 2 })
	tr.does("update " + jobSpec)
	tr.running("worker-0", "worker-1")
	if tr.uid("worker-0") != worker {
		t.Error("worker-0 was disturbed")
	}
	tr.destroy()
	if left := tr.left(); len(left) > 0 {
		t.Errorf("the cluster still has %v", left)
	}
	for _, name := range theirs {
		admin.run("kubectl", "get", name)
	}
	if now := admin.run("kubectl", "get", "clusterqueue", namespace, "-o",
		"jsonpath={.metadata.uid} {.spec}"); now != uid {
		t.Errorf("the administrator's ClusterQueue was\n\t%s\nand is\n\t%s", uid, now)
	}
}

// queues makes a ClusterQueue of the administrator for the trial's namespace, and has Kueue manage
// the namespace. It returns the names of both objects as kubectl accepts them.
func (tr *trial) queues() []string {
	tr.t.Helper()
	tr.run("kubectl", "label", "namespace", tr.namespace, "elastic.dev/queued=true")
	of := func(kind string, spec section) {
		tr.apply(section{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind,
			"metadata": section{"name": tr.namespace}, "spec": spec})
		tr.t.Cleanup(func() { tr.try("kubectl", "delete", strings.ToLower(kind), tr.namespace, "--timeout=1m") })
	}
	of("ResourceFlavor", section{})
	of("ClusterQueue", section{
		"namespaceSelector": section{"matchLabels": section{"kubernetes.io/metadata.name": tr.namespace}},
		"resourceGroups": []any{section{"coveredResources": []any{"cpu", "memory"},
			"flavors": []any{section{"name": tr.namespace, "resources": []any{
				section{"name": "cpu", "nominalQuota": "4"}, section{"name": "memory", "nominalQuota": "8Gi"}}}}}},
	})
	return []string{"clusterqueue/" + tr.namespace, "resourceflavor/" + tr.namespace}
}
