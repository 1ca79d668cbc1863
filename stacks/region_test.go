//go:build !e2e

package main

import (
	"strings"
	"testing"
)

// A regional cluster begins with nodes for the cluster's own pods, and keeps its nodes: neither the
// values that GKE fills in for machines with local disks, nor other labels, other limits or another
// zone replace a node.
func TestRegion(t *testing.T) {
	t.Parallel()
	e := start(t, "gke")
	e.withFiles()
	e.set("elasticdl:gke.bucket", map[string]any{})
	for path, value := range map[string]any{
		"location": "us-central1", "filestore.location": "us-central1-a",
		"systemPool": map[string]any{"machineType": "e2-standard-4", "minNodes": 1},
		"gpuPool": map[string]any{"machineType": "a2-ultragpu-1g", "accelerator": "nvidia-a100-80gb",
			"gpus": 1, "maxNodes": 2},
	} {
		e.set("elasticdl:gke."+path, value)
	}
	e.up()
	for _, r := range e.resources() {
		if r.URN.Name() == "system" && r.Outputs["initialNodeCount"] != 1.0 {
			e.Errorf("the system pool begins with %v nodes in each zone", r.Outputs["initialNodeCount"])
		}
	}
	e.unchangedAfterRefresh("nothing has changed")

	const pools = "gcp:container/nodePool:NodePool "
	other := map[string]any{
		"labels": map[string]any{"team": "vision"}, "gke.workerPool.maxNodes": 6, "gke.systemPool.minNodes": 2,
		"gke.maintenance.exclusions": []any{map[string]any{"name": "a", "start": "2026-12-20T00:00:00Z",
			"end": "2027-01-04T00:00:00Z"}},
	}
	for path, value := range other {
		e.set("elasticdl:"+path, value)
	}
	e.expect("other labels, limits and times", e.up(),
		"update gcp:artifactregistry/repository:Repository registry labels.team",
		"update gcp:container/cluster:Cluster cluster maintenancePolicy.maintenanceExclusions[0] resourceLabels.team",
		"update gcp:filestore/instance:Instance filestore labels.team",
		"update gcp:storage/bucket:Bucket data labels.team",
		"update "+pools+"system autoscaling.totalMinNodeCount",
		"update "+pools+"workers autoscaling.totalMaxNodeCount",
	)
	e.set("elasticdl:gke.workerPool.maxNodes", 1)
	e.set("elasticdl:gke.systemPool.diskGb", 60)
	if said, err := e.stack.Preview(e.Context()); err != nil ||
		!strings.Contains(said.StdOut, "warning: pool system: diskSizeGb: Google makes its nodes again") {
		e.Errorf("the preview does not warn of nodes that are drained: %v\n%s", err, said.StdOut)
	}
	e.set("elasticdl:gke.systemPool.diskGb", nil)
	e.set("elasticdl:gke.maintenance.exclusions", nil)
	e.expect("a lower limit, and no exclusion", e.up(),
		"update gcp:container/cluster:Cluster cluster maintenancePolicy.maintenanceExclusions[0]",
		"update "+pools+"workers autoscaling.totalMaxNodeCount")
	e.unchangedAfterRefresh("after all of that")
}
