package infra

import (
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/test/graph"
)

// Load sees what the engine gives it, and misspelt keys by the environment that the CLI makes.
func TestLoad(t *testing.T) {
	config := asEngine(t, stack(t, CloudGKE))
	load := func(config map[string]string) (s *Settings, err error) {
		all, e := graph.Record(graph.Cloud{Config: config}, func(ctx *pulumi.Context) error {
			s, err = Load(ctx, day)
			return nil
		})
		if e != nil || len(all) > 0 {
			t.Fatalf("%v, %d resources", e, len(all))
		}
		return s, err
	}
	t.Chdir("../stacks") // where older hosts of the language run the program; Pulumi.yaml is above
	s, err := load(config)
	if err != nil {
		t.Fatal(err)
	}
	if s.Project != graph.Project || s.Stack != graph.Stack || s.GKE.Project != "my-project" || s.Job.NumWorkers != 4 {
		t.Errorf("%+v", s)
	}
	t.Setenv(pulumi.EnvConfig, `{"elasticdl:platfrom": "{}", "gcp:zone": "us-central1-c"}`)
	if _, err := load(config); err == nil || err.Error() != "the configuration of stack test cannot be used:\nelasticdl:platfrom: unknown field; did you mean platform?" {
		t.Errorf("a misspelt key: %v", err)
	}
	delete(config, "elasticdl:cloud")
	if _, err := load(config); err == nil || !strings.Contains(err.Error(), "elasticdl:cloud: missing: expected gke, eks or minikube") {
		t.Errorf("no cloud: %v", err)
	}
}
