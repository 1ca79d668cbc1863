package kube

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubetesting "k8s.io/client-go/testing"

	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// Evidence has the job's objects and what they depend on, and never a Secret. An object that may
// not be read has the reason.
func TestEvidence(t *testing.T) {
	objects, root := submitted(t, nil)
	labels := map[string]string{manifest.LabelApp: manifest.App, manifest.LabelJob: root.Labels[manifest.LabelJob]}
	name := labels[manifest.LabelJob]
	worker := &core.Pod{ObjectMeta: meta.ObjectMeta{Name: "w", Namespace: "default", UID: "the-pod", Labels: labels,
		ManagedFields: []meta.ManagedFieldsEntry{{Manager: "kubelet"}}},
		Spec: core.PodSpec{NodeName: "n1", Volumes: []core.Volume{{Name: "v", VolumeSource: core.VolumeSource{
			PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}}}
	event := func(name, uid string) *core.Event {
		return &core.Event{ObjectMeta: meta.ObjectMeta{Name: name, Namespace: "default"}, Reason: name,
			InvolvedObject: core.ObjectReference{UID: "the-pod"}, Message: uid}
	}
	other := event("Other", "x")
	other.InvolvedObject.UID = "another"
	claim := &core.PersistentVolumeClaim{ObjectMeta: meta.ObjectMeta{Name: "data", Namespace: "default"}}
	c, set := testClient(append(objects, worker, event("Killing", "x"), other, claim,
		&core.Secret{ObjectMeta: meta.ObjectMeta{Name: "s", Namespace: "default"}})...)
	set.PrependReactor("get", "nodes", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, api.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n1", errors.New("no"))
	})
	all, err := c.Evidence(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for _, e := range all {
		if e.Why != nil {
			files[e.Name] = e.Why.Error()
			continue
		}
		text, err := json.Marshal(e.Value)
		if err != nil {
			t.Fatal(e.Name, err)
		}
		files[e.Name] = string(text)
	}
	for file, want := range map[string]string{
		"cluster/job.json": `"uid":"the-job"`, "cluster/pods.json": `"nodeName":"n1"`,
		"cluster/events.json": `"Killing"`,
		"cluster/claims.json": `"data"`, "cluster/nodes.json": "is forbidden", "cluster/quotas.json": `"items":`,
		"cluster/settings.json": `"job.json":{`, "cluster/version.json": `"major"`,
	} {
		if !strings.Contains(files[file], want) {
			t.Errorf("%s lacks %s: %.300s", file, want, files[file])
		}
	}
	if strings.Contains(files["cluster/events.json"], "Other") || strings.Contains(files["cluster/pods.json"],
		"kubelet") {
		t.Errorf("an event of another object, or managed fields: %s", files)
	}
	if slices.ContainsFunc(set.Actions(), func(a kubetesting.Action) bool {
		return a.GetResource().Resource == "secrets" || a.GetVerb() != "get" && a.GetVerb() != "list"
	}) {
		t.Errorf("requests: %v", set.Actions())
	}
	if _, err := c.Evidence(t.Context(), "none"); !errors.Is(err, ErrNotFound) {
		t.Errorf("of no job: %v", err)
	}
}
