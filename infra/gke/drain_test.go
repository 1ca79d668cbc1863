package gke

import (
	"slices"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// A preview warns of what drains nodes, and of nothing else.
func TestDrains(t *testing.T) {
	pool := func(machine string, disk, least int, private bool) resource.PropertyMap {
		return resource.NewPropertyMapFromMap(map[string]any{
			"nodeConfig":    map[string]any{"machineType": machine, "diskSizeGb": disk, "diskType": "pd-balanced", "imageType": "COS_CONTAINERD"},
			"autoscaling":   map[string]any{"totalMinNodeCount": least},
			"networkConfig": map[string]any{"enablePrivateNodes": private},
		})
	}
	cluster := func(label string, zones ...any) resource.PropertyMap {
		m := map[string]any{"resourceLabels": map[string]any{"team": label}}
		if zones != nil {
			m["nodeLocations"] = zones
		}
		return resource.NewPropertyMapFromMap(m)
	}
	for _, test := range []struct {
		name    string
		was, is resource.PropertyMap
		want    []string
	}{
		{"the same", pool("n1-standard-8", 50, 0, true), pool("n1-standard-8", 50, 0, true), nil},
		{"limits", pool("n1-standard-8", 50, 0, true), pool("n1-standard-8", 50, 3, true), nil},
		{"a machine and its disk", pool("n1-standard-8", 50, 0, true), pool("n1-standard-4", 100, 0, true), []string{"machineType", "diskSizeGb"}},
		{"addresses", pool("n1-standard-8", 50, 0, true), pool("n1-standard-8", 50, 0, false), []string{"enablePrivateNodes"}},
		{"labels", cluster("a", "x-a", "x-b"), cluster("b", "x-b", "x-a"), nil},
		{"one more zone", cluster("a", "x-a"), cluster("a", "x-a", "x-b"), nil},
		{"one zone fewer", cluster("a", "x-a", "x-b"), cluster("a", "x-a"), []string{"x-b"}},
		{"no word of zones", cluster("a", "x-a", "x-b"), cluster("a"), nil},
	} {
		if got := append(remade(test.was, test.is), leftZones(test.was, test.is)...); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
