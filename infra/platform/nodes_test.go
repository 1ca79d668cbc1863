package platform

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/graph"
)

// The charts and objects that make nodes come before all pods, each after those before it; they
// keep the fields that must not change, and the job waits for them.
func TestMakersOfNodes(t *testing.T) {
	maker := func(kind string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"tags": map[string]any{}}}}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: "x", Version: "v1", Kind: kind})
		u.SetName("a")
		return u
	}
	all, p, err := record(t, configured(settings.CloudGKE), false, func(c *infra.Cluster) {
		c.Charts = []infra.Chart{{Name: "definitions", Chart: "oci://c", Version: "1", Namespace: "kube-system"},
			{Name: "controller", Chart: "oci://d", Version: "1", Namespace: "kube-system", SkipDefinitions: true}}
		c.Nodes = []infra.Object{{Name: "class", Object: maker("Class"), Kept: []string{"spec.tags"}},
			{Name: "pool", Object: maker("Pool"), Fixed: []string{"spec.class"}}}
	})
	if err != nil {
		t.Fatal(err)
	}
	order := []string{typeRelease + " definitions", typeRelease + " controller", "kubernetes:x/v1:Class class",
		"kubernetes:x/v1:Pool pool", "kubernetes:core/v1:Namespace namespace"}
	for i, key := range order {
		j := slices.IndexFunc(all, func(r graph.Resource) bool { return r.Type+" "+r.Name == key })
		if j < 0 {
			t.Fatalf("there is no %s", key)
		}
		for _, before := range order[:i] {
			if !slices.Contains(all[j].Options.DependsOn, before) {
				t.Errorf("%s does not wait for %s", key, before)
			}
		}
	}
	if r := graph.Find(all, "kubernetes:x/v1:Class", "class"); !slices.Contains(r.Options.IgnoreChanges, "spec.tags") {
		t.Errorf("the class ignores %v", r.Options.IgnoreChanges)
	}
	if len(p.Ready) != len(within(all)) {
		t.Errorf("the job waits for %d of %d", len(p.Ready), len(within(all)))
	}
}
