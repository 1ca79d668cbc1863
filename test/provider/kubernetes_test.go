package provider

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

// newCluster returns a world with one cluster, which the provider knows.
func newCluster(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.Kubernetes.open("https://x")
	w.Kubernetes.server = "https://x"
	w.Kubernetes.config = Props{"enableConfigMapMutable": true}
	return w
}

// objectOf returns an object x in the namespace default, or a cluster-wide one.
func objectOf(version, kind string, more Props) Props {
	o := Props{"apiVersion": version, "kind": kind, "metadata": Props{"name": "x"}}
	if !slices.Contains([]string{"Namespace", "PersistentVolume", "PriorityClass", "StorageClass"}, kind) {
		o["metadata"].(Props)["namespace"] = "default"
	}
	maps.Copy(o, more)
	return o
}

func typeFor(o Props) string {
	version := text(o, "apiVersion")
	if !strings.Contains(version, "/") {
		version = "core/" + version
	}
	return "kubernetes:" + version + ":" + text(o, "kind")
}

// made creates an object as a stack does, and returns its state.
func (w *world) made(o Props) Props {
	w.t.Helper()
	_, out := w.create(typeFor(o), "x", o)
	return out
}

// update returns the error of an object's update.
func (w *world) update(was, now Props, preview bool) error {
	w.t.Helper()
	_, err := w.Kubernetes.Update(w.t.Context(), &pulumirpc.UpdateRequest{
		Urn: urn(typeFor(now), "x"), Id: idOf(now), Olds: value(w.t, was), News: value(w.t, now), Preview: preview,
	})
	return err
}

// previewed returns the error of the preview of a creation, which may replace an object.
func (w *world) previewed(o Props) error {
	w.t.Helper()
	_, err := w.Kubernetes.Create(w.t.Context(), &pulumirpc.CreateRequest{Urn: urn(typeFor(o), "x"),
		Properties: value(w.t, o), Preview: true})
	return err
}

// A change of an immutable field is refused with the message of the API server, also in a preview;
// a preview can replace the object only if the message contains "field is immutable".
func TestImmutableFields(t *testing.T) {
	const shared = "is immutable after creation"
	class := func(more Props) Props { return objectOf("scheduling.k8s.io/v1", "PriorityClass", more) }
	volume := func(spec Props) Props { return objectOf("v1", "PersistentVolume", Props{"spec": spec}) }
	storage := func(more Props) Props { return objectOf("storage.k8s.io/v1", "StorageClass", more) }
	job := func(spec Props) Props { return objectOf("batch/v1", "Job", Props{"spec": spec}) }
	pod := func(image string) Props {
		return Props{"spec": Props{"restartPolicy": "Never", "containers": []any{Props{"name": "c", "image": image}}}}
	}
	for _, test := range []struct {
		was, now    Props
		refused     string // the message; "" = changed in place
		replaceable bool   // a preview can replace the object
	}{
		{class(Props{"value": 1}), class(Props{"value": 2}),
			`PriorityClass.scheduling.k8s.io "x" is invalid: value: Forbidden: may not be changed in an update.`,
			false},
		{class(Props{"value": 1, "preemptionPolicy": "Never"}),
			class(Props{"value": 1, "preemptionPolicy": "PreemptLowerPriority"}),
			"preemptionPolicy: Invalid value: \"PreemptLowerPriority\": field is immutable", true},
		{class(Props{"value": 1, "description": "a"}), class(Props{"value": 1, "description": "b"}), "", true},
		{volume(Props{"hostPath": Props{"path": "/a"}}), volume(Props{"hostPath": Props{"path": "/b"}}),
			"spec.persistentvolumesource: Forbidden: spec.persistentvolumesource " + shared, false},
		{volume(Props{"nfs": Props{"path": "/a", "server": "s"}}),
			volume(Props{"csi": Props{"driver": "d", "volumeHandle": "h"}}),
			"spec.persistentvolumesource " + shared, false},
		{volume(Props{"capacity": Props{"storage": "1Gi"}}),
			volume(Props{"capacity": Props{"storage": "2Gi"}}), "", true},
		{storage(Props{"provisioner": "p", "reclaimPolicy": "Delete"}),
			storage(Props{"provisioner": "p", "reclaimPolicy": "Retain"}),
			"reclaimPolicy: Invalid value: \"Retain\": field is immutable", true},
		{job(Props{"template": pod("a")}), job(Props{"template": pod("b")}), "field is immutable", true},
		{job(Props{"template": pod("a"), "suspend": true}),
			job(Props{"template": pod("a"), "suspend": false}), "", true},
		{objectOf("rbac.authorization.k8s.io/v1", "RoleBinding",
			Props{"roleRef": Props{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a"}}),
			objectOf("rbac.authorization.k8s.io/v1", "RoleBinding",
				Props{"roleRef": Props{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role",
					"name": "b"}}), "cannot change roleRef", false},
	} {
		w := newCluster(t)
		is := w.made(test.was)
		for _, preview := range []bool{true, false} {
			if err := w.update(is, test.now, preview); (err == nil) != (test.refused == "") ||
				err != nil && !strings.Contains(err.Error(), test.refused) {
				t.Errorf("%v to %v, preview %v: %v, expected %q", test.was, test.now, preview, err, test.refused)
			}
		}
		if err := w.previewed(test.now); (err == nil) != test.replaceable {
			t.Errorf("%v to %v: the preview of a replacement: %v", test.was, test.now, err)
		}
	}
}

// A missing object cannot be updated, not even in a preview.
func TestUpdateOfNothing(t *testing.T) {
	w := newCluster(t)
	o := objectOf("v1", "ConfigMap", Props{"data": Props{"a": "1"}})
	is := w.made(o)
	if err := w.Kubernetes.Remove("v1/ConfigMap default/x"); err != nil {
		t.Fatal(err)
	}
	for _, preview := range []bool{true, false} {
		if err := w.update(is, o, preview); err == nil || !strings.Contains(err.Error(), `configmaps "x" not found`) {
			t.Errorf("preview %v: %v", preview, err)
		}
	}
}

// Creating an existing object takes it over, unless it has other values by another manager; and
// deletes it in the end.
func TestCreateTakesOver(t *testing.T) {
	w := newCluster(t)
	server := w.Kubernetes.clusters["https://x"]
	for _, o := range []Props{
		objectOf("v1", "Namespace", nil),
		{"apiVersion": "v1", "kind": "ConfigMap", "metadata": Props{"name": "theirs", "namespace": "x"}},
		objectOf("scheduling.k8s.io/v1", "PriorityClass", Props{"value": 1000}),
	} {
		if err := server.make(o, "kubectl-create"); err != nil {
			t.Fatal(err)
		}
	}
	namespace := objectOf("v1", "Namespace", Props{"metadata": Props{"name": "x", "labels": Props{"a": "b"}}})
	w.made(namespace)
	if err := w.delete(typeFor(namespace), "x", "x"); err != nil {
		t.Fatal(err)
	}
	if left := slices.Sorted(maps.Keys(server.objects)); !reflect.DeepEqual(left,
		[]string{"scheduling.k8s.io/v1/PriorityClass x"}) {
		t.Errorf("of a namespace that was taken over and deleted there are %v", left)
	}
	w.made(objectOf("scheduling.k8s.io/v1", "PriorityClass", Props{"value": 1000}))
	other := objectOf("scheduling.k8s.io/v1", "PriorityClass", Props{"value": 5})
	if err := w.refused(typeFor(other), "x", other); !strings.Contains(err,
		"Server-Side Apply field conflict detected") || !strings.Contains(err, `.value`) {
		t.Errorf("with another value: %s", err)
	}
	if err := w.previewed(other); err == nil || !strings.Contains(err.Error(), "may not be changed in an update") {
		t.Errorf("in a preview, which is forced: %v", err)
	}
}

// A field that another manager has written is a conflict, unless the object forces its own value;
// fields that the stack no longer requests are removed, and fields that others have added are kept.
func TestFieldsOfOthers(t *testing.T) {
	w := newCluster(t)
	config := func(data Props, force bool) Props {
		o := objectOf("v1", "ConfigMap", Props{"data": data})
		if force {
			o["metadata"].(Props)["annotations"] = Props{"pulumi.com/patchForce": "true"}
		}
		return o
	}
	is := w.made(config(Props{"a": "1", "b": "1"}, false))
	if err := w.Kubernetes.Change("v1/ConfigMap default/x", func(is Props) {
		is["data"].(Props)["a"], is["data"].(Props)["c"] = "2", "2"
	}); err != nil {
		t.Fatal(err)
	}
	for _, preview := range []bool{true, false} {
		if err := w.update(is, config(Props{"a": "3"}, false), preview); err == nil ||
			!strings.Contains(err.Error(), `conflict with "elasticdl"`) || !strings.Contains(err.Error(), ".data.a") {
			t.Errorf("preview %v: %v", preview, err)
		}
	}
	if err := w.update(is, config(Props{"a": "3"}, true), false); err != nil {
		t.Fatal(err)
	}
	live, err := w.Kubernetes.Object("v1/ConfigMap default/x")
	if err != nil || !reflect.DeepEqual(live["data"], Props{"a": "3", "c": "2"}) {
		t.Errorf("the data are now %v, %v", live["data"], err)
	}
}

// Changes for which Pulumi's provider replaces an object, after or before deleting the old one.
func TestKubernetesReplaces(t *testing.T) {
	w := newCluster(t)
	for _, test := range []struct {
		was, now Props
		mutable  bool
		want     string
	}{
		{objectOf("v1", "ConfigMap", Props{"data": Props{"a": "1"}}),
			objectOf("v1", "ConfigMap", Props{"data": Props{"a": "2"}}), false, "data.a"},
		{objectOf("v1", "ConfigMap", Props{"data": Props{"a": "1"}}),
			objectOf("v1", "ConfigMap", Props{"data": Props{"a": "2"}}), true, ""},
		{objectOf("scheduling.k8s.io/v1", "PriorityClass", Props{"value": 1}),
			objectOf("scheduling.k8s.io/v1", "PriorityClass", Props{"value": 2}), true, ""},
	} {
		w.Kubernetes.config = Props{"enableConfigMapMutable": test.mutable}
		d := w.diff("kubernetes:x:y", test.was, test.was, test.now)
		if got := strings.Join(d.Replaces, " "); got != test.want || len(d.Diffs) != 1 ||
			d.DeleteBeforeReplace != (test.want != "") {
			t.Errorf("%v to %v: replaced for %q, expected %q", test.was, test.now, got, test.want)
		}
	}
}

// When a job is deleted in the foreground, its name and all objects that its pods use remain until
// the pods end.
func TestJobHolds(t *testing.T) {
	w := newCluster(t)
	w.create("kubernetes:core/v1:Namespace", "n", Props{"apiVersion": "v1", "kind": "Namespace",
		"metadata": Props{"name": "n"}})
	j := Props{"apiVersion": "batch/v1", "kind": "Job", "spec": Props{},
		"metadata": Props{"name": "x", "namespace": "n", "annotations": Props{"pulumi.com/skipAwait": "true"}}}
	const kind = "kubernetes:batch/v1:Job"
	w.create(kind, "x", j)
	if err := w.delete("kubernetes:core/v1:Namespace", "n", "n"); err == nil {
		t.Error("a namespace went before the job in it")
	}
	if err := w.delete(kind, "x", "n/x"); err != nil {
		t.Error(err)
	}
	w.create(kind, "x", j)
	if _, err := w.Kubernetes.Object("batch/v1/Job n/x"); err == nil {
		t.Error("the former's pods run, and another is made")
	}
}
