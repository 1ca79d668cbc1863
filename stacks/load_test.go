//go:build !e2e

package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/graph"
)

// engineConfig returns the configuration of the stack gke, including the values that only its user
// knows, as the engine passes it to a program: sections are JSON.
func engineConfig(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("stacks/Pulumi.gke.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var stack struct{ Config map[string]any }
	if err := yaml.UnmarshalStrict(text, &stack); err != nil {
		t.Fatal(err)
	}
	stack.Config["gcp:project"] = "my-project"
	stack.Config["elasticdl:gke"].(map[string]any)["authorizedNetworks"] =
		[]any{map[string]any{"cidr": "203.0.113.7/32"}}
	config := map[string]string{}
	for key, v := range stack.Config {
		if text, ok := v.(string); ok {
			config[key] = text
			continue
		}
		section, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		config[key] = string(section)
	}
	return config
}

// load reads what the engine passes, and finds misspelt keys in the environment that the CLI sets.
func TestLoad(t *testing.T) {
	config := engineConfig(t)
	read := func(config map[string]string) (s *settings.Settings, err error) {
		all, e := graph.Record(graph.Cloud{Config: config}, func(ctx *pulumi.Context) error {
			s, err = load(ctx, time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
			return nil
		})
		if e != nil || len(all) > 0 {
			t.Fatalf("%v, %d resources", e, len(all))
		}
		return s, err
	}
	// where older language hosts run the program; Pulumi.yaml is one directory above
	t.Chdir("stacks")
	s, err := read(config)
	if err != nil {
		t.Fatal(err)
	}
	if s.Project != graph.Project || s.Stack != graph.Stack || s.GKE.Project != "my-project" || s.Job.NumWorkers != 4 {
		t.Errorf("%+v", s)
	}
	t.Setenv(pulumi.EnvConfig, `{"elasticdl:platfrom": "{}", "gcp:zone": "us-central1-c"}`)
	if _, err := read(config); err == nil ||
		err.Error() != "the configuration of stack test cannot be used:\nelasticdl:platfrom: "+
			"unknown field; did you mean platform?" {
		t.Errorf("a misspelt key: %v", err)
	}
	delete(config, "elasticdl:cloud")
	if _, err := read(config); err == nil ||
		!strings.Contains(err.Error(), "elasticdl:cloud: missing: expected gke, eks, minikube or existing") {
		t.Errorf("no cloud: %v", err)
	}
}
