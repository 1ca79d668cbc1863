//go:build !e2e

package main

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

// cheapPool returns a pool of EKS for workers, with other fields.
func cheapPool(more map[string]any) map[string]any {
	pool := map[string]any{"name": "cheap", "instanceTypes": []any{"m6i.large", "m5.large"}, "maxNodes": 20,
		"spot":     true,
		"onDemand": true, "idleAfter": "2m"}
	maps.Copy(pool, more)
	return pool
}

// A stack whose nodes follow the pods: in one update the cluster, its pools and the job, whose
// workers choose one; no difference afterwards, nor after a refresh; another limit changes the pool
// alone; other zones, types and tags replace nothing; and the end of the stack deletes the pools
// before what ends their instances.
func TestPools(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"auto", "karpenter"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			e := start(t, "eks")
			e.set("elasticdl:protectStorage", false)
			e.follow(how)
			e.set("elasticdl:eks.pools", []any{cheapPool(nil)})
			e.up()
			spec := fmt.Sprint(at(e.object(specObject), "data"))
			if !strings.Contains(spec, `elasticdl.org/pool`) || !strings.Contains(spec, "cheap") {
				t.Errorf("workers do not choose the pool: %s", spec)
			}
			e.unchanged("nothing has changed")
			e.unchangedAfterRefresh("nothing has changed")
			const pool, class = "kubernetes:karpenter.sh/v1:NodePool pool-cheap ", "class-cheap"
			e.set("elasticdl:eks.pools", []any{cheapPool(map[string]any{"maxNodes": 30})})
			e.expect("more nodes", e.up(), "update "+pool+"spec.limits.cpu spec.limits.nodes")
			e.set("elasticdl:eks.pools", []any{cheapPool(map[string]any{"maxNodes": 30, "zones": []any{"us-west-2a"}})})
			for _, step := range e.up() {
				if !strings.HasPrefix(step, "update "+pool) && !strings.Contains(step, class) ||
					strings.Contains(step, "replace") {
					t.Errorf("one zone: %s", step)
				}
			}
			e.set("elasticdl:labels.team", "vision")
			for _, step := range e.up() {
				if strings.Contains(step, class) {
					t.Errorf("another label: %s", step)
				}
			}
			e.set("elasticdl:eks.pools", []any{cheapPool(nil), map[string]any{"name": "cards",
				"instanceTypes": []any{"g6.xlarge"}, "gpus": 1, "maxNodes": 2, "diskGb": 100}})
			if text := e.warned(); !strings.Contains(text, "--quota-code L-DB2E81BA") {
				t.Errorf("nothing on the quota of a new pool of cards in\n%s", text)
			}
			e.up()
			if text := e.warned(); strings.Contains(text, "--quota-code") || strings.Contains(text, "within 21 days") {
				t.Errorf("nothing is new, and quotas or the age of nodes are noted:\n%s", text)
			}
			e.set("elasticdl:eks.pools", []any{cheapPool(nil)})
			e.up()
			e.destroy()
			e.cleared()
		})
	}
}

// follow lets nodes follow the pods, in the shipped file of EKS.
func (e *engine) follow(how string) {
	e.set("elasticdl:eks.nodes", how)
	e.set("elasticdl:eks.workerGroup", nil)
	if how == "auto" {
		e.set("elasticdl:eks.systemGroup.minNodes", nil)
		e.set("elasticdl:eks.systemGroup.desiredNodes", nil)
	}
}

// A cluster with groups that turns to Auto Mode keeps its storage and its control plane, and does
// not turn back. Its job is submitted again: workers choose other nodes.
func TestGroupsToAutoMode(t *testing.T) {
	t.Parallel()
	e := start(t, "eks")
	e.manage()
	e.up()
	const cluster = "aws:eks/cluster:Cluster"
	e.follow("auto")
	e.set("elasticdl:eks.pools", []any{cheapPool(nil)})
	did := e.up()
	for _, step := range did {
		if strings.HasPrefix(step, "replace ") && step != "replace "+jobMaster || strings.HasPrefix(step,
			"delete aws:efs") {
			t.Errorf("it would %s", step)
		}
	}
	if len(did.only("update "+cluster)) != 1 || len(did.only("delete aws:eks/nodeGroup:NodeGroup")) != 2 {
		t.Errorf("steps:\n%s", did)
	}
	// the network's setting, for which Amazon's addon had an object
	e.up()
	e.unchangedAfterRefresh("after that")
	e.set("elasticdl:eks.nodes", "karpenter")
	e.set("elasticdl:eks.systemGroup.minNodes", 1)
	e.set("elasticdl:eks.systemGroup.desiredNodes", 1)
	e.refused("has Auto Mode, which is not taken away from it")
}

// On GKE a pool with a fallback gets a ComputeClass that names both of its pools.
func TestComputeClass(t *testing.T) {
	t.Parallel()
	e := start(t, "gke")
	e.set("elasticdl:protectStorage", false)
	e.set("elasticdl:gke.workerPool", nil)
	e.set("elasticdl:gke.pools", []any{map[string]any{"name": "cheap", "machineType": "n2-standard-8", "maxNodes": 3,
		"spot": true, "onDemand": true}})
	e.up()
	priorities := fmt.Sprint(at(e.object("cloud.google.com/v1/ComputeClass cheap"), "spec", "priorities"))
	if strings.Count(priorities, "nodepools:[cheap-") != 2 || strings.Count(priorities, "cheap-on-demand-") != 1 ||
		strings.Index(priorities, "on-demand") < len(priorities)/2 {
		t.Errorf("it prefers %s", priorities)
	}
	e.unchanged("nothing has changed")
	e.unchangedAfterRefresh("nothing has changed")
	e.destroy()
	e.cleared()
}
