package cluster

import (
	"encoding/base64"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// shippedKueue is a short version of what Kueue's module ships.
const shippedKueue = `
apiVersion: v1
kind: Namespace
metadata: {name: kueue-system}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: workloads.kueue.x-k8s.io}
spec:
  conversion:
    strategy: Webhook
    webhook:
      clientConfig:
        service: {name: kueue-webhook-service, namespace: kueue-system, path: /convert}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kueue-manager-config}
data:
  controller_manager_config.yaml: |
    kind: Configuration
    clientConnection: {qps: 50}
    integrations: {frameworks: [batch/job, deployment]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: kueue-controller-manager}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: kueue-mutating-webhook-configuration}
webhooks:
- name: mpod.kb.io
  clientConfig: {service: {path: /mutate--v1-pod}}
  rules: [{apiGroups: [""], resources: [pods]}]
- name: mdeployment.kb.io
  clientConfig: {service: {path: /mutate-apps-v1-deployment}}
  rules: [{apiGroups: [apps], resources: [deployments]}]
- name: mworkload.kb.io
  clientConfig: {service: {path: /mutate-workload}}
  rules: [{apiGroups: [kueue.x-k8s.io], resources: [workloads]}]
`

// Kueue's own manager is left out, webhooks of other integrations too. Those of pods are restricted
// to the namespaces that have the label.
func TestReadKueue(t *testing.T) {
	parts, err := readKueue([]byte(shippedKueue), "https://127.0.0.1:1", []byte("authority"))
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, object := range parts.objects {
		kinds = append(kinds, object["kind"].(string))
	}
	if want := []string{"Namespace", "CustomResourceDefinition", "MutatingWebhookConfiguration"}; !reflect.DeepEqual(kinds, want) {
		t.Errorf("kinds are %q, want %q", kinds, want)
	}
	if got := parts.definitions(); !reflect.DeepEqual(got, []string{"customresourcedefinition/workloads.kueue.x-k8s.io"}) {
		t.Errorf("definitions are %q", got)
	}
	text, err := json.Marshal(parts.objects)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"https://127.0.0.1:1/convert"`, `"https://127.0.0.1:1/mutate--v1-pod"`,
		`"https://127.0.0.1:1/mutate-workload"`, base64.StdEncoding.EncodeToString([]byte("authority"))} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	for _, unwanted := range []string{"deployment", "service"} {
		if strings.Contains(string(text), unwanted) {
			t.Errorf("%s is in %s", unwanted, text)
		}
	}
	webhooks := parts.objects[2]["webhooks"].([]any)
	if got := webhooks[0].(map[string]any)["namespaceSelector"]; !reflect.DeepEqual(got, queued) {
		t.Errorf("pods of the namespaces %v are shown to Kueue", got)
	}
	if got := webhooks[1].(map[string]any)["namespaceSelector"]; got != nil {
		t.Errorf("workloads of the namespaces %v are shown to Kueue, want all", got)
	}
}

// Settings that the cluster does not need to change stay as Kueue ships them.
func TestConfigureKueue(t *testing.T) {
	parts, err := readKueue([]byte(shippedKueue), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	config := parts.configure(&queues{Webhook: "127.0.0.1:7", Health: "127.0.0.1:8"}, false)
	if want := map[string]any{"qps": int64(50)}; !reflect.DeepEqual(config["clientConnection"], want) {
		t.Errorf("clientConnection is %v, want %v", config["clientConnection"], want)
	}
	if got := config["webhook"].(map[string]any)["port"]; got != 7 {
		t.Errorf("the port of webhooks is %v, want 7", got)
	}
	if _, fair := config["fairSharing"]; fair {
		t.Error("fair sharing is on")
	}
	if _, fair := parts.configure(&queues{Webhook: "127.0.0.1:7"}, true)["fairSharing"]; !fair {
		t.Error("fair sharing is off")
	}
}

func TestReadKueueRejects(t *testing.T) {
	for _, text := range []string{"", "kind: Namespace\n", "{", "kind: ConfigMap\ndata: {controller_manager_config.yaml: '{'}\n"} {
		if _, err := readKueue([]byte(text), "", nil); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

// All paths of Kueue are below its root directory, which is in the cluster's.
func TestKueueHasARoot(t *testing.T) {
	s := newState(t, Config{Kwok: 1})
	if c := s.kueue(); c.Root != s.path("kueue") || c.Args[0] != "/kueue" {
		t.Errorf("its root is %s, its program %s", c.Root, c.Args[0])
	}
}
