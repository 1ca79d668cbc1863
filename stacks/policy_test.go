//go:build !e2e

package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"github.com/elasticdl/elasticdl/infra/policy"
	"github.com/elasticdl/elasticdl/test/graph"
	"github.com/elasticdl/elasticdl/test/provider"
)

// Each stack as it is shipped is within all rules, those included that need the whole graph. Updates are judged as they
// run, in the tests of the engine.
func TestPolicyOfStacks(t *testing.T) {
	for _, name := range []string{"gke", "eks", "minikube"} {
		cloud := graph.Cloud{Config: configOf(t, userFile(t, t.TempDir(), name)), Preview: true}
		cloud.Outputs = func(r graph.Resource) resource.PropertyMap {
			if r.Name != "kubeconfig" { // of minikube
				return nil
			}
			return resource.PropertyMap{"stdout": resource.NewProperty("users: [{name: u, user: {client-key-data: " + provider.Key + "}}]")}
		}
		all, err := graph.Record(cloud, run)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		t.Logf("%s: %d resources", name, len(all))
		if v := policy.Check(judged(all)); len(v) > 0 || len(all) < 10 {
			t.Errorf("%s: %d resources, against the policy: %v", name, len(all), v)
		}
	}
}

// What settings allow and the policy does not ends the stack's preview: an image that may be another tomorrow, of the
// master and of the pods that it would make. The stack says so if that is meant.
func TestPolicyRefuses(t *testing.T) {
	e := start(t, "gke")
	e.set("elasticdl:image", nil)
	e.set("elasticdl:job.image", "us-docker.pkg.dev/p/training/mnist:latest")
	_, err := e.stack.Preview(t.Context())
	if err == nil {
		t.Fatal("an image with the tag latest passes")
	}
	for _, pod := range []string{`batch/v1:Job "test-mnist-master"`, `core/v1:Pod "elasticdl-test-mnist-ps-0"`, `core/v1:Pod "elasticdl-test-mnist-worker-0"`} {
		if want := "policy unpinned-image: kubernetes:" + pod; !strings.Contains(err.Error(), want) {
			t.Errorf("nothing says %s\n%v", want, err)
		}
	}
	e.set("elasticdl:policy.allow", []any{"unpinned-image"})
	if _, err := e.stack.Preview(t.Context()); err != nil {
		t.Error(err)
	}
}

// judged is what was recorded as the policy sees it.
func judged(all []graph.Resource) (judged []policy.Resource) {
	for _, r := range all {
		o := policy.Options{Provider: r.Options.Provider, DependsOn: r.Options.DependsOn, Protect: r.Options.Protect}
		judged = append(judged, policy.Resource{Type: r.Type, Name: r.Name, Inputs: r.Inputs, Options: o})
	}
	return judged
}

// configOf is a stack's file as the engine gives it to the program: what is no text as JSON.
func configOf(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var stack struct{ Config map[string]any }
	if err := yaml.Unmarshal(text, &stack); err != nil {
		t.Fatal(err)
	}
	config := map[string]string{}
	for key, value := range stack.Config {
		text, ok := value.(string)
		if !ok {
			raw, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			text = string(raw)
		}
		config[key] = text
	}
	return config
}
