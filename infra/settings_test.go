package infra

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/elasticdl/elasticdl/trainer/job"
)

// day is one on which tests are.
var day = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// of is the input that a stack's file makes, as the engine does: sections are JSON.
func of(t testing.TB, file []byte) input {
	t.Helper()
	in := input{project: "elasticdl", stack: "test", root: "..", now: day, config: map[string]string{}}
	for key, v := range tree(t, file) {
		in.config[key] = engineText(t, v)
	}
	return in
}

func tree(t testing.TB, file []byte) map[string]any {
	t.Helper()
	var stack struct{ Config map[string]any }
	if err := yaml.UnmarshalStrict(file, &stack); err != nil {
		t.Fatal(err)
	}
	return stack.Config
}

func engineText(t testing.TB, v any) string {
	t.Helper()
	if text, ok := v.(string); ok {
		return text
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func read1(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// stackFile is a stack of this repository, with what its user adds.
func stackFile(t testing.TB, cloud string) map[string]any {
	t.Helper()
	return completed(tree(t, read1(t, "../stacks/Pulumi."+cloud+".yaml")))
}

func completed(config map[string]any) map[string]any {
	networks := []any{map[string]any{"cidr": "203.0.113.7/32"}}
	switch config["elasticdl:cloud"] {
	case CloudGKE:
		config["gcp:project"] = "my-project"
		config["elasticdl:gke"].(map[string]any)["authorizedNetworks"] = networks
	case CloudEKS:
		config["elasticdl:eks"].(map[string]any)["authorizedNetworks"] = networks
	}
	return config
}

func parsed(t testing.TB, config map[string]any) (*Settings, error) {
	t.Helper()
	in := input{project: "elasticdl", stack: "test", root: "..", now: day, config: map[string]string{}}
	for key, v := range config {
		in.config[key] = engineText(t, v)
	}
	return parse(in)
}

func TestStacks(t *testing.T) {
	for _, cloud := range []string{CloudGKE, CloudEKS, CloudMinikube} {
		t.Run(cloud, func(t *testing.T) {
			s, err := parsed(t, stackFile(t, cloud))
			if err != nil {
				t.Fatal(err)
			}
			t.Log(strings.Join(s.Notes, "\n"))
			if s.Job == nil || s.Image == nil || s.Job.Namespace != "elasticdl" || !s.ProtectStorage || s.Image.Name != "test-mnist" {
				t.Errorf("%+v", s)
			}
			if got := slices.Collect(maps.Keys(s.Platform.PriorityClasses)); len(got) != 2 {
				t.Errorf("classes %v", got)
			}
		})
	}
}

var _ = filepath.Join
var _ = job.Default
