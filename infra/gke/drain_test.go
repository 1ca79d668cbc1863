package gke

import (
	"os"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// The warning says what the page says of a drained node.
func TestDrainedIsAsOnThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/infrastructure/gke.md")
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Join(strings.Fields(string(page)), " ")
	for clause := range strings.SplitSeq(drained, ", ") {
		clause = strings.Replace(strings.TrimPrefix(clause, "and "), "workers there are", "workers are", 1)
		if !strings.Contains(said, clause) {
			t.Errorf("the page has no %q", clause)
		}
	}
}

// A preview warns of updates that drain nodes, and of no others.
func TestDrains(t *testing.T) {
	pool := func(machine string, disk, least int, private bool) resource.PropertyMap {
		return resource.NewPropertyMapFromMap(map[string]any{
			"nodeConfig": map[string]any{"machineType": machine, "diskSizeGb": disk,
				"diskType": "pd-balanced", "imageType": "COS_CONTAINERD"},
			"autoscaling":   map[string]any{"totalMinNodeCount": least},
			"networkConfig": map[string]any{"enablePrivateNodes": private},
		})
	}
	left := pool("n1-standard-8", 50, 0, true) // to Google
	delete(left["nodeConfig"].ObjectValue(), "imageType")
	delete(left, "networkConfig")
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
		want    string
	}{
		{"the same", pool("n1-standard-8", 50, 0, true), pool("n1-standard-8", 50, 0, true), ""},
		{"limits", pool("n1-standard-8", 50, 0, true), pool("n1-standard-8", 50, 3, true), ""},
		{"a machine and its disk", pool("n1-standard-8", 50, 0, true),
			pool("n1-standard-4", 100, 0, true),
			"pool workers: machineType, diskSizeGb: Google makes its nodes again, one after the other"},
		{"addresses", pool("n1-standard-8", 50, 0, true), pool("n1-standard-8", 50, 0, false),
			"pool workers: enablePrivateNodes: Google makes its nodes again, one after the other"},
		{"inputs that are left out", pool("n1-standard-8", 50, 0, true), left, ""},
		{"inputs that are given", left, pool("n1-standard-8", 50, 0, true), ""},
		{"labels", cluster("a", "x-a", "x-b"), cluster("b", "x-b", "x-a"), ""},
		{"one more zone", cluster("a", "x-a"), cluster("a", "x-a", "x-b"), ""},
		{"one zone fewer", cluster("a", "x-a", "x-b"), cluster("a", "x-a"),
			"gke.nodeZones: without x-b: Google takes away the nodes there"},
		{"no word of zones", cluster("a", "x-a", "x-b"), cluster("a"), ""},
	} {
		if got := whyDrained("workers", test.was, test.is); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// An upgrade takes more than one node at a time from a large pool of workers, and no node first
// from the system pool.
func TestAtOnce(t *testing.T) {
	for _, test := range []struct {
		pool               string
		minNodes           int
		gpu                bool
		surge, unavailable int
	}{
		{"system", 2, false, 1, 0}, {"system", 30, false, 1, 0}, {"workers", 0, false, 1, 0},
		{"workers", 6, false, 1, 0}, {"workers", 7, false, 1, 2}, {"workers", 1000, false, 1, 19},
		{"gpu", 0, true, 0, 1}, {"gpu", 9, true, 0, 3}, {"gpu", 1000, true, 0, 20},
	} {
		of := settings.PoolOfGKE{GKEPool: &settings.GKEPool{MinNodes: test.minNodes, MaxNodes: 1000}}
		if test.gpu {
			of.Accelerator = "nvidia-l4"
		}
		if s, u := atOnce(test.pool, of); s != test.surge || u != test.unavailable {
			t.Errorf("%+v: %d and %d", test, s, u)
		}
	}
}
