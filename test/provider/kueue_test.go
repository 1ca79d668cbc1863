package provider

import (
	"maps"
	"strings"
	"testing"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

func aRelease(more Props) Props {
	r := Props{"name": "kueue", "namespace": "kueue-system", "chart": "oci://registry.k8s.io/kueue/charts/kueue",
		"version": "0.17.0", "values": Props{"managerConfig": Props{"controllerManagerConfigYaml": `{"kind": ` +
			`"Configuration", "webhook": {"port": 9443}, "managedJobsNamespaceSelector": {}}`}}}
	maps.Copy(r, more)
	return r
}

// A kind of Kueue is served as soon as its definition is there, and its fields are checked also
// before. Definitions are deleted with the release, and with them the objects of their kinds.
func TestRelease(t *testing.T) {
	w := newCluster(t)
	check := func(kind string, in Props) string {
		t.Helper()
		r, err := w.Kubernetes.Check(t.Context(), &pulumirpc.CheckRequest{Urn: urn(kind, "x"), News: value(t, in)})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.Failures {
			return f.Reason
		}
		return ""
	}
	queue := objectOf(kueueVersion, "LocalQueue", Props{"spec": Props{"clusterQueue": "a"}})
	wrong := objectOf(kueueVersion, "LocalQueue", Props{"spec": Props{"clusterQueues": "a"}})
	if why := check(typeFor(queue), queue); why != "" {
		t.Errorf("a queue is refused: %s", why)
	}
	if why := check(typeFor(queue), wrong); !strings.Contains(why, "clusterQueues") {
		t.Errorf("an unknown field is accepted: %s", why)
	}
	for want, more := range map[string]Props{"": nil,
		"oci://registry.k8s.io/kueue/charts/kueue: 0.1.0: not found": {"version": "0.1.0"},
		`chart "nothing" not found`:                                  {"chart": "nothing"}} {
		if why := check(releaseType, aRelease(more)); !strings.HasPrefix(why, want) || (why == "") != (want == "") {
			t.Errorf("%v: %s, want %s", more, why, want)
		}
	}
	create := func(kind string, in Props) error {
		_, err := w.Kubernetes.Create(t.Context(),
			&pulumirpc.CreateRequest{Urn: urn(kind, "x"), Properties: value(t, in)})
		return err
	}
	if err := w.previewed(queue); err != nil {
		t.Errorf("a preview before Kueue is there: %v", err)
	}
	if err := create(typeFor(queue), queue); err == nil || !strings.Contains(err.Error(), "no matches for kind") {
		t.Errorf("a queue without Kueue: %v", err)
	}
	if err := create(releaseType, aRelease(nil)); err == nil || !strings.Contains(err.Error(), "namespaces") {
		t.Errorf("Kueue without a namespace: %v", err)
	}
	w.made(Props{"apiVersion": "v1", "kind": "Namespace", "metadata": Props{"name": "kueue-system"}})
	if err := create(releaseType, aRelease(Props{"values": Props{}})); err == nil {
		t.Error("Kueue without its settings starts")
	}
	if err := create(releaseType, aRelease(nil)); err != nil {
		t.Fatal(err)
	}
	if err := create(releaseType, aRelease(nil)); err == nil || !strings.Contains(err.Error(), "ownership metadata") {
		t.Errorf("a second Kueue: %v", err)
	}
	is := w.made(queue)
	other := objectOf(kueueVersion, "LocalQueue", Props{"spec": Props{"clusterQueue": "b"}})
	if err := w.update(is, other, false); err == nil || !strings.Contains(err.Error(), "field is immutable") {
		t.Errorf("another ClusterQueue: %v", err)
	}
	if err := w.Kubernetes.deleteRelease(&pulumirpc.DeleteRequest{Urn: urn(releaseType, "x"),
		Properties: value(t, aRelease(nil))}); err != nil {
		t.Fatal(err)
	}
	for key := range w.Kubernetes.clusters["https://x"].objects {
		if key != "v1/Namespace kueue-system" {
			t.Errorf("there is still %s", key)
		}
	}
}

// Kueue's webhook writes quantities in their shortest form, and a flavor that is in use stays.
func TestKueueWebhooks(t *testing.T) {
	w := newCluster(t)
	server := w.Kubernetes.clusters["https://x"]
	for _, o := range kueueObjects() {
		if err := server.make(o, "helm"); err != nil {
			t.Fatal(err)
		}
	}
	flavor := Props{"apiVersion": kueueVersion, "kind": "ResourceFlavor", "metadata": Props{"name": "f"}}
	w.made(flavor)
	w.made(Props{"apiVersion": kueueVersion, "kind": "ClusterQueue", "metadata": Props{"name": "q"},
		"spec": Props{"resourceGroups": []any{Props{"coveredResources": []any{"cpu"}, "flavors": []any{Props{
			"name": "f", "resources": []any{Props{"name": "cpu", "nominalQuota": "2000m"}}}}}}}})
	is := server.objects[kueueVersion+"/ClusterQueue q"].Is
	if quota := at(is, "spec", "resourceGroups", 0, "flavors", 0, "resources", 0, "nominalQuota"); quota != "2" {
		t.Errorf("the quota is %v", quota)
	}
	if _, err := server.delete(keyOf(flavor)); err == nil || !strings.Contains(err.Error(), "q uses it") {
		t.Errorf("a flavor in use: %v", err)
	}
	if _, err := server.delete(kueueVersion + "/ClusterQueue q"); err != nil {
		t.Error(err)
	}
	if _, err := server.delete(keyOf(flavor)); err != nil {
		t.Error(err)
	}
}
