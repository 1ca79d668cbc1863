//go:build !e2e

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/elasticdl/elasticdl/test/provider"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

var eightCPUs = map[string]any{"cpu": 8, "memory": "8Gi"}

const localQueue = "kueue.x-k8s.io/v1beta2/LocalQueue elasticdl/training"

// shippedQueue returns the queue that a comment of the shipped file has, nil if there is none.
func shippedQueue(t *testing.T, name string) any {
	t.Helper()
	shipped, err := os.ReadFile(filepath.Join("stacks", "Pulumi."+name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^    # queue: (\{.*\}) #`).FindSubmatch(shipped)
	if found == nil && name == "minikube" {
		return nil
	}
	var queue map[string]any
	if found == nil || yaml.Unmarshal(found[1], &queue) != nil {
		t.Fatalf("Pulumi.%s.yaml has no queue in a comment: %s", name, found)
	}
	return queue
}

// Kueue, a queue and the job in it, in one update. A change of a quota replaces nothing, and the
// end of the stack deletes each before what it needs.
func TestQueue(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"gke", "eks", "minikube"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := start(t, name)
			e.set("elasticdl:protectStorage", false)
			e.set("elasticdl:platform.queue", shippedQueue(t, name))
			if did, err := e.tryPreview(); err != nil ||
				name != "minikube" && !slices.Contains(did, "create kubernetes:helm.sh/v3:Release kueue") {
				t.Errorf("the queue of the shipped file: %v: %s", err, did)
			}
			e.set("elasticdl:platform.queue", map[string]any{"quotas": map[string]any{"cpu": 64, "memory": "1024Mi"}})
			e.refused("elasticdl:platform.queue.quotas.memory: 1024Mi: the job needs")
			e.set("elasticdl:platform.queue.quotas.memory", "102400Mi")
			e.up()
			job := e.object(jobObject)
			var j struct{ Queue, QueuePriorities string }
			text, _ := at(e.object(specObject), "data", manifest.KeyJob).(string)
			if err := json.Unmarshal([]byte(text), &j); err != nil || j.Queue != "training" ||
				j.QueuePriorities != "workload" {
				t.Errorf("the job is in queue %+v: %v", j, err)
			}
			if in := at(e.object(localQueue), "spec", "clusterQueue"); in != "elasticdl-training" {
				t.Errorf("the queue is of %v", in)
			}
			e.unchanged("nothing has changed")
			e.unchangedAfterRefresh("nothing has changed")
			e.set("elasticdl:platform.queue.quotas.cpu", 72)
			e.expect("another quota", e.up(),
				"update kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue cluster-queue "+
					"spec.resourceGroups[0].flavors[0].resources[0].nominalQuota")
			e.set("elasticdl:platform.queue.namespaces", []any{"team-b"})
			e.expect("another namespace", e.up(), "update kubernetes:helm.sh/v3:Release kueue "+
				"values.managerConfig.controllerManagerConfigYaml")
			if uid := at(e.object(jobObject), "metadata", "uid"); uid != at(job, "metadata", "uid") {
				t.Error("the job is another")
			}
			e.destroy()
			e.cleared()
		})
	}
}

// On a cluster that exists already the queue is one of its administrator, whose objects are left
// unchanged.
func TestQueueOfOthers(t *testing.T) {
	t.Parallel()
	cloud := provider.Start(t)
	e := startIn(t, cloud, "existing", "existing")
	e.set("elasticdl:platform.queue", shippedQueue(t, "existing"))
	e.refused("platform.queue: the cluster has no Kueue: let the stack install it: platform.queue.install: true")
	if err := cloud.Kubernetes.AddKueue("kind-mine"); err != nil {
		t.Fatal(err)
	}
	e.refused("platform.queue.clusterQueue: there is no ClusterQueue team-a")
	theirs := provider.Props{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue",
		"metadata": provider.Props{"name": "team-a"}, "spec": provider.Props{}}
	if err := cloud.Kubernetes.Put("kind-mine", theirs); err != nil {
		t.Fatal(err)
	}
	there := cloud.Left()
	e.set("elasticdl:platform.queue.install", true)
	e.refused("platform.queue.clusterQueue: team-a: a Kueue that the stack installs has no queues yet")
	e.set("elasticdl:platform.queue", map[string]any{"install": true, "quotas": eightCPUs})
	e.refused("Namespace kueue-system already exists", "platform.queue.install: false")
	e.set("elasticdl:platform.queue", map[string]any{"clusterQueue": "team-a"})
	e.up()
	for _, r := range e.resources() {
		if strings.Contains(string(r.Type), "kueue") && !strings.HasSuffix(string(r.Type), ":LocalQueue") ||
			strings.Contains(string(r.Type), "helm") {
			t.Errorf("the stack makes %s", r.URN)
		}
	}
	e.unchangedAfterRefresh("nothing has changed")
	e.set("elasticdl:platform.queue.clusterQueue", "team-b")
	theirs["metadata"].(provider.Props)["name"] = "team-b"
	if err := cloud.Kubernetes.Put("kind-mine", theirs); err != nil {
		t.Fatal(err)
	}
	e.expect("another ClusterQueue", e.up(), "replace kubernetes:kueue.x-k8s.io/v1beta2:LocalQueue queue")
	e.set("elasticdl:platform.queue", map[string]any{"quotas": eightCPUs})
	e.up()
	e.set("elasticdl:platform.queue", map[string]any{"clusterQueue": "elasticdl-training"})
	e.refused("platform.queue.clusterQueue: ClusterQueue elasticdl-training is this stack's own")
	e.set("elasticdl:platform.queue", map[string]any{"clusterQueue": "team-a"})
	e.set("elasticdl:protectStorage", false)
	e.up()
	e.destroy()
	left := slices.DeleteFunc(cloud.Left(), func(key string) bool { return strings.HasSuffix(key, " team-b") })
	if !reflect.DeepEqual(left, there) {
		t.Errorf("there were\n%s\nand there are\n%s", steps(there), steps(left))
	}
}

// Kueue that a stack has installed on a cluster that stays is deleted after all that is in its
// queues, and is not handed over to others by a change of a setting.
func TestQueueOfAdopted(t *testing.T) {
	t.Parallel()
	cloud := provider.Start(t)
	if err := cloud.StartMinikube("mine"); err != nil {
		t.Fatal(err)
	}
	e := adopts(t, cloud, "minikube", "mine")
	e.set("elasticdl:platform.queue", map[string]any{"install": true, "quotas": eightCPUs})
	e.up()
	e.set("elasticdl:platform.queue.install", false)
	e.refused("platform.queue.install: false: Kueue is this stack's own, and would be deleted with all queues")
	e.set("elasticdl:platform.queue.install", true)
	before := len(cloud.Calls())
	e.destroy()
	var order []string
	for _, c := range cloud.Calls()[before:] {
		if c.Op == "delete" {
			order = append(order, c.Type[strings.LastIndex(c.Type, ":")+1:]+" "+c.Name)
		}
	}
	last := -1
	for _, name := range []string{"Job test-mnist", "LocalQueue queue", "ClusterQueue cluster-queue",
		"ResourceFlavor queue-flavor", "Namespace namespace", "Release kueue", "Namespace kueue-namespace"} {
		i := slices.IndexFunc(order, func(o string) bool { return strings.HasPrefix(o, name) })
		if i <= last {
			t.Errorf("%s is deleted too early, or not at all: %v", name, order)
		}
		last = i
	}
	e.cleared()
}

// A Kueue of others is found wherever its manager is.
func TestOneKueue(t *testing.T) {
	t.Parallel()
	cloud := provider.Start(t)
	definition := provider.Props{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": provider.Props{"name": "clusterqueues.kueue.x-k8s.io"}}
	if err := cloud.Kubernetes.Put("kind-mine", definition); err != nil {
		t.Fatal(err)
	}
	e := startIn(t, cloud, "existing", "existing")
	e.set("elasticdl:platform.queue", map[string]any{"install": true, "quotas": eightCPUs})
	e.refused("platform.queue.install: true: the cluster has Kueue already, which is not of this stack")
}
