//go:build !e2e

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"github.com/elasticdl/elasticdl/infra/policy"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/graph"
	"github.com/elasticdl/elasticdl/test/provider"
)

// Each shipped stack and example violates no rule, including those that need all resources. The
// tests of the engine judge updates while they run.
func TestPolicyOfStacks(t *testing.T) {
	stacks, err := filepath.Glob("stacks/Pulumi.*.yaml")
	if err != nil || len(stacks) != 4 {
		t.Fatal(stacks, err)
	}
	examples, err := filepath.Glob("examples/*/Pulumi.*.yaml")
	if err != nil || len(examples) == 0 {
		t.Fatal(examples, err)
	}
	for _, file := range slices.Concat(stacks, examples) {
		cloud := graph.Cloud{Config: configOf(t, file), Preview: true}
		cloud.Outputs = known
		all, err := graph.Record(cloud, program(world{now: func() time.Time {
			return today
		}, live: provider.Start(t), find: func(name string) (string, error) { return name, nil }}))
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		t.Logf("%s: %d resources", file, len(all))
		var except settings.Policy // exceptions of examples
		if text := cloud.Config["elasticdl:policy"]; text != "" {
			if err := json.Unmarshal([]byte(text), &except); err != nil {
				t.Fatal(err)
			}
		}
		if slices.Contains(stacks, file) && len(except.Allow) > 0 {
			t.Errorf("%s lets pass %v", file, except.Allow)
		}
		if v := policy.Check(judged(all), except.Allow...); len(v) > 0 || len(all) < 10 {
			t.Errorf("%s: %d resources, against the policy: %v", file, len(all), v)
		}
	}
}

// If valid settings violate a rule, the preview of the stack fails: here for an image that is not
// pinned, of the master and of the pods that it would create. The stack's file can allow it.
func TestPolicyRefuses(t *testing.T) {
	e := start(t, "gke")
	e.set("elasticdl:image", nil)
	e.set("elasticdl:job.image", "us-docker.pkg.dev/p/training/mnist:latest")
	_, err := e.stack.Preview(t.Context())
	if err == nil {
		t.Fatal("an image with the tag latest passes")
	}
	for _, pod := range []string{`batch/v1:Job "test-mnist-master"`,
		`core/v1:Pod "elasticdl-test-mnist-ps-0"`, `core/v1:Pod "elasticdl-test-mnist-worker-0"`} {
		if want := "policy unpinned-image: kubernetes:" + pod; !strings.Contains(err.Error(), want) {
			t.Errorf("nothing says %s\n%v", want, err)
		}
	}
	e.set("elasticdl:policy.allow", []any{"unpinned-image"})
	if _, err := e.stack.Preview(t.Context()); err != nil {
		t.Error(err)
	}
}

// known returns outputs that a kubeconfig contains: Pulumi's mocks refuse unknown secrets.
func known(r graph.Resource) resource.PropertyMap {
	of := func(key string) resource.PropertyValue {
		return resource.NewProperty(resource.PropertyMap{resource.PropertyKey(key): resource.NewProperty("Q0E=")})
	}
	switch r.Type + " " + r.Name {
	case "command:local:Command kubeconfig":
		return resource.PropertyMap{"stdout": resource.NewProperty("users: [{name: u, user: " +
			"{client-key-data: " + provider.Key + "}}]")}
	case "gcp:container/cluster:Cluster cluster":
		return resource.PropertyMap{"name": resource.NewProperty("c"),
			"endpoint": resource.NewProperty("192.0.2.1"), "masterAuth": of("clusterCaCertificate")}
	case "aws:eks/cluster:Cluster cluster":
		return resource.PropertyMap{"name": resource.NewProperty("c"),
			"endpoint": resource.NewProperty("https://192.0.2.1"), "certificateAuthority": of("data")}
	}
	return nil
}

// judged returns recorded resources in the form that the policy checks.
func judged(all []graph.Resource) (judged []policy.Resource) {
	for _, r := range all {
		o := policy.Options{Provider: r.Options.Provider, DependsOn: r.Options.DependsOn, Protect: r.Options.Protect}
		judged = append(judged, policy.Resource{Type: r.Type, Name: r.Name, Inputs: r.Inputs, Options: o})
	}
	return judged
}

// configOf returns the configuration in a stack's file, with the settings of its user, as the
// engine passes it to the program: values that are not texts as JSON.
func configOf(t *testing.T, shipped string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(shipped)
	if err != nil {
		t.Fatal(err)
	}
	var stack struct{ Config map[string]any }
	if err := yaml.Unmarshal(text, &stack); err != nil {
		t.Fatal(err)
	}
	for path, value := range user(stack.Config["elasticdl:cloud"].(string)) {
		key, field, nested := strings.Cut(path, ".")
		if section, ok := stack.Config[key].(map[string]any); ok {
			section[field] = value
		} else if !nested {
			stack.Config[key] = value
		}
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
