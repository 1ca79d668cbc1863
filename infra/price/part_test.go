package price

import (
	"slices"
	"strings"
	"testing"
)

// A network and a file server that exist already have no price: the stack does not make them.
func TestExistingParts(t *testing.T) {
	s := stack(t, "gke", func(config map[string]any) {
		g := config["elasticdl:gke"].(map[string]any)
		g["subnet"] = map[string]any{"name": "nodes"}
		g["ranges"] = map[string]any{"master": "172.16.0.32/28"}
		g["filestore"] = map[string]any{"name": "files", "location": "us-central1-c"}
	})
	e := Of(s)
	for _, row := range e.Rows {
		if strings.Contains(row.Name, "NAT") || strings.Contains(row.Name, "Filestore") {
			t.Errorf("the stack pays for %s", row.Name)
		}
	}
	if !slices.Contains(e.Unknown, "Filestore files") {
		t.Errorf("not in the sums are only %v", e.Unknown)
	}
}
