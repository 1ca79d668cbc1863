//go:build !e2e

package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/test/provider"
)

// A stack on a cluster that exists already leaves all that is not its own as it was; the preview
// names what is in its way, at once.
func TestExistingBesideOthers(t *testing.T) {
	t.Parallel()
	cloud := provider.Start(t)
	theirs := []provider.Props{
		{"apiVersion": "v1", "kind": "Namespace", "metadata": provider.Props{"name": "research"}},
		{"apiVersion": "v1", "kind": "ConfigMap", "metadata": provider.Props{"name": "precious",
			"namespace": "research"}},
		{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": provider.Props{"name": "datasets",
			"namespace": "research"}, "spec": provider.Props{"accessModes": []any{"ReadWriteMany"}}},
		{"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": provider.Props{"name": "high"},
			"value": 1000000},
		{"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": provider.Props{"name": "low"},
			"value": 1000},
	}
	if err := cloud.Kubernetes.Put("kind-mine", theirs...); err != nil {
		t.Fatal(err)
	}
	keys := []string{"v1/Namespace research", "v1/ConfigMap research/precious",
		"v1/PersistentVolumeClaim research/datasets", "scheduling.k8s.io/v1/PriorityClass high",
		"scheduling.k8s.io/v1/PriorityClass low"}
	e := startIn(t, cloud, "existing", "existing")
	e.set("elasticdl:platform.namespace", "research")
	e.refused("Namespace research already exists", "platform.shareNamespace: true",
		"PriorityClass high already exists", "PriorityClass low already exists")
	e.set("elasticdl:platform.shareNamespace", true)
	e.set("elasticdl:platform.sharePriorityClasses", []any{"high", "low"})
	e.set("elasticdl:existing.volume", map[string]any{"name": "data"})
	e.refused("existing.volume.name: there is no claim data in namespace research")
	e.set("elasticdl:existing.volume", map[string]any{"name": "datasets", "capacityGb": 10})
	e.refused("PersistentVolumeClaim research/datasets already exists", "leave out existing.volume.capacityGb")
	e.set("elasticdl:existing.volume", map[string]any{"name": "datasets"})
	e.set("elasticdl:job.volumes", []any{map[string]any{"claimName": "datasets", "mountPath": "/data"}})
	there := cloud.Left()
	e.up()
	were := objects(e, keys)
	e.unchanged("nothing has changed")
	if claim := e.outputs()["claim"]; claim != "datasets" {
		t.Errorf("the claim is %v", claim)
	}
	// Nobody else has a reason to delete these.
	for _, r := range e.resources() {
		for _, kind := range []string{":Namespace", ":PersistentVolumeClaim", ":PriorityClass"} {
			if strings.HasSuffix(string(r.Type), kind) {
				t.Errorf("the state has %s, which is shared", r.URN)
			}
		}
	}
	e.set("elasticdl:job.numWorkers", 3)
	e.up()
	e.unchangedAfterRefresh("nothing has changed")
	e.destroy()
	if now := objects(e, keys); !reflect.DeepEqual(now, were) {
		t.Errorf("there were\n%v\nand there are\n%v", were, now)
	}
	if now := cloud.Left(); !reflect.DeepEqual(now, there) {
		t.Errorf("there were\n%s\nand there are\n%s", steps(there), steps(now))
	}
}

// The claim of the stack cannot become one that is shared, which would delete it.
func TestExistingKeepsItsClaim(t *testing.T) {
	t.Parallel()
	cloud := provider.Start(t)
	if err := cloud.Kubernetes.Put("kind-mine", provider.Props{"apiVersion": "v1", "kind": "Namespace",
		"metadata": provider.Props{"name": "elasticdl"}}); err != nil {
		t.Fatal(err)
	}
	e := startIn(t, cloud, "existing", "existing")
	e.set("elasticdl:platform.shareNamespace", true)
	e.up()
	e.set("elasticdl:existing.volume.capacityGb", nil)
	e.refused("existing.volume.capacityGb: missing, and the claim data-claim is this stack's own")
}

// A change of an object that was deleted since is refused with the cure, as on other clusters.
func TestExistingAfterStop(t *testing.T) {
	t.Parallel()
	e := start(t, "existing")
	e.up()
	if err := e.cloud.Kubernetes.Remove(jobObject, specObject, stateOf); err != nil {
		t.Fatal(err)
	}
	e.set("elasticdl:job.numWorkers", 3)
	e.refused("ConfigMap elasticdl/elasticdl-test-mnist is to be changed, and was deleted since", "pulumi up --refresh")
}

// Another cluster of the same kubeconfig, or one without an answer, is an error that names it.
func TestExistingContext(t *testing.T) {
	t.Parallel()
	e := start(t, "existing")
	e.set("elasticdl:existing.context", "kind-nobody")
	e.refused("elasticdl:existing.context: kind-nobody: ", "and there are kind-mine, kind-other",
		"kubectl config use-context")
	e.set("elasticdl:existing.context", nil)
	e.up()
	e.set("elasticdl:existing.context", "kind-other")
	e.refused("elasticdl:existing.context: the stack is on another cluster")
	e.set("elasticdl:policy.allow", []any{"replaced-cluster"})
	e.refused("elasticdl:existing.context: the stack is on another cluster")
	e.set("elasticdl:policy.allow", nil)
	e.set("elasticdl:existing.context", "kind-mine")
	e.unchanged("the context has a name")
}

// On nodes of one job only, a volume of one node warns before it is made, and not again.
func TestExistingOneNode(t *testing.T) {
	t.Parallel()
	e := start(t, "existing")
	e.set("elasticdl:existing.volume.accessMode", "ReadWriteOnce")
	if said := e.warned(); !strings.Contains(said, "existing.volume.accessMode: ReadWriteOnce: the pods") {
		t.Errorf("the first preview does not warn: %s", said)
	}
	e.up()
	e.set("elasticdl:job.numWorkers", 3)
	if said := e.warned(); strings.Contains(said, "accessMode") {
		t.Errorf("a later preview warns: %s", said)
	}
}
