package gke

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/infra/trainingjob"
	"github.com/elasticdl/elasticdl/test/graph"
	"github.com/elasticdl/elasticdl/test/place"
)

// listed returns the settings of a stack with a list of pools, in two zones.
func listed() *settings.Settings {
	s := configured()
	s.GKE.Location, s.GKE.NodeZones = "us-central1", []string{"us-central1-a", "us-central1-c"}
	s.GKE.WorkerPool, s.GKE.GPUPool = nil, nil
	s.GKE.Pools = []settings.GKENamedPool{
		{Name: "cheap", OnDemand: true, GKEPool: settings.GKEPool{MachineType: "n2-standard-4", MaxNodes: 20,
			Spot: true, DiskGB: 50, Zones: []string{"us-central1-c"}}},
		{Name: "h200", Taints: []settings.Taint{{Key: "team", Value: "vision", Effect: "NoExecute"}},
			GKEPool: settings.GKEPool{MachineType: "a3-ultragpu-8g", Accelerator: "nvidia-h200-141gb", GPUs: 8,
				MaxNodes: 2, DiskGB: 500, GPUDriver: "LATEST", Reservation: "ours"}},
		{Name: "arm", GKEPool: settings.GKEPool{MachineType: "c4a-standard-4", MaxNodes: 5, DiskGB: 50,
			Labels: map[string]string{"tier": "arm"}}},
	}
	return s
}

// The inputs of listed pools: zones, a reservation whose change is not ignored, labels and taints.
func TestListedPools(t *testing.T) {
	all, c := record(t, listed(), false)
	graph.Golden(t, "pools", slices.DeleteFunc(slices.Clone(all), func(r graph.Resource) bool {
		return r.Type != typePool || r.Name == systemPool
	}))
	want(t, find(t, all, typePool, "cheap"), "nodeLocations[0]=us-central1-c", "nodeConfig.spot=true")
	want(t, find(t, all, typePool, "cheap-on-demand"), "nodeLocations[0]=us-central1-c", "nodeConfig.spot=false")
	cards := find(t, all, typePool, "h200")
	want(t, cards, "nodeLocations", "nodeConfig.reservationAffinity.values[0]=ours")
	if slices.Contains(cards.Options.IgnoreChanges, affinity) {
		t.Error("another reservation is ignored")
	}
	ignores(t, find(t, all, typePool, "arm"), affinity)
	if len(c.Nodes) != 1 || c.Nodes[0].Name != "class-cheap" || len(c.Nodes[0].Holes) != 2 {
		t.Fatalf("objects: %+v", c.Nodes)
	}
	text, err := yaml.Marshal(c.Nodes[0].Object)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != class {
		t.Errorf("%s", text)
	}
}

// Only GKE serves ComputeClasses; Google's page describes this one.
const class = `apiVersion: cloud.google.com/v1
kind: ComputeClass
metadata:
  name: cheap
spec:
  activeMigration:
    optimizeRulePriority: false
  priorities:
  - nodepools:
    - '{pool-of-spot-nodes}'
  - nodepools:
    - '{pool-of-nodes-on-demand}'
  whenUnsatisfiable: DoNotScaleUp
`

// Workers select the pool that job.worker.pool names, or else the first listed one without GPUs
// unless there is a worker pool, and tolerate its taints; masters tolerate none of these.
func TestPlacesOfWorkers(t *testing.T) {
	for _, test := range []struct{ pool, want string }{
		{"", "map[cloud.google.com/compute-class:cheap] cloud.google.com/compute-class=cheap:NoSchedule " +
			"elasticdl.org/pool=cheap:NoSchedule"},
		{"arm",
			"map[elasticdl.org/pool:arm] elasticdl.org/pool=arm:NoSchedule kubernetes.io/arch=arm64:NoSchedule"},
		{"h200", "map[elasticdl.org/pool:h200] team=vision:NoExecute"},
	} {
		s := listed()
		s.WorkerPool = test.pool
		if test.pool == "h200" {
			s.Job.Worker.Limit = map[string]string{"nvidia.com/gpu": "8"}
		}
		_, c := record(t, s, false)
		if got := shown(c.Workers); got != test.want {
			t.Errorf("%q: %s, want %s", test.pool, got, test.want)
		}
		if len(c.Tolerations) != 1 || c.Tolerations[0].Key != workerTaint {
			t.Errorf("all pods tolerate %v", c.Tolerations)
		}
	}
	s := listed()
	s.GKE.WorkerPool = configured().GKE.WorkerPool
	if _, c := record(t, s, false); c.Workers != nil {
		t.Errorf("with a worker pool: %+v", c.Workers)
	}
}

// Pods of a job fit on nodes of the stack, whatever pools there are: they select labels that the
// nodes of some pool have, and tolerate all its taints.
func TestPodsFitSomePool(t *testing.T) {
	taint := []settings.Taint{{Key: "team", Value: "a", Effect: "NoSchedule"}}
	cpu := settings.GKEPool{MachineType: "n2-standard-4", MaxNodes: 2, Spot: true}
	cards := settings.GKEPool{MachineType: "g2-standard-4", Accelerator: "nvidia-l4", GPUs: 1, MaxNodes: 2, Spot: true}
	lists := [][]settings.GKENamedPool{nil, {{Name: "a", GKEPool: cpu}}, {{Name: "a", GKEPool: cpu, Taints: taint}},
		{{Name: "a", GKEPool: cpu, OnDemand: true}, {Name: "c", GKEPool: cards, OnDemand: true, Taints: taint}},
		{{Name: "c", GKEPool: cards, Taints: taint}}, {{Name: "r",
			GKEPool: settings.GKEPool{MachineType: "c4a-standard-4"}}}}
	for i, pools := range lists {
		for _, asks := range []bool{false, true} {
			for _, older := range []bool{false, true} {
				s := listed()
				s.GKE.Pools = pools
				if s.Job.Worker.Limit = nil; asks {
					s.Job.Worker.Limit = map[string]string{"nvidia.com/gpu": "1"}
				}
				if older {
					s.GKE.WorkerPool, s.GKE.GPUPool = regional().GKE.WorkerPool, regional().GKE.GPUPool
				}
				if asks && !slices.ContainsFunc(s.GKE.AllPools(),
					func(of settings.PoolOfGKE) bool { return of.GPUs > 0 }) {
					continue // the settings refuse such a job
				}
				_, c := record(t, s, false)
				for _, role := range []string{"master_pod_spec", "worker_pod_spec"} {
					placed, err := trainingjob.Placed(s.Job, c.Cluster, s.WorkerPool)
					if err != nil {
						t.Fatal(err)
					}
					why := place.Unplaced(placed, role, asks && role == "worker_pod_spec",
						nodesLike(s.GKE.AllPools()))
					if why != "" {
						t.Errorf("pools %d, GPUs %v, older pools %v: %s %s", i, asks, older, role, why)
					}
				}
			}
		}
	}
}

// nodesLike returns a node of each pool, with Google's own labels and taints.
func nodesLike(all []settings.PoolOfGKE) (nodes []place.Node) {
	for _, of := range all {
		n := place.Node{Labels: labelsOf(of), Taints: taintsOf(of), GPUs: of.GPUs}
		if of.Spot {
			n.Labels[spotLabel] = "true"
		}
		if of.Arm() {
			n.Taints = append(n.Taints, settings.Taint{Key: "kubernetes.io/arch", Value: "arm64"})
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// The pool of on-demand nodes is empty while no pod needs it.
func TestFallbackIsEmpty(t *testing.T) {
	s := listed()
	s.GKE.Pools[0].MinNodes = 2
	all, _ := record(t, s, false)
	want(t, find(t, all, typePool, "cheap"), "autoscaling.totalMinNodeCount=2")
	want(t, find(t, all, typePool, "cheap-on-demand"), "autoscaling.totalMinNodeCount=0", "initialNodeCount=0")
}

func shown(of *infra.Nodes) string {
	if of == nil {
		return "none"
	}
	all := []string{fmt.Sprint(of.NodeSelector)}
	for _, o := range of.Tolerations {
		all = append(all, fmt.Sprintf("%s=%s:%s", o.Key, o.Value, o.Effect))
	}
	return strings.Join(all, " ")
}

// Nodes of a pool of the list have its name as a label; nodes of the stack's own pools have none.
func TestLabelsOfPools(t *testing.T) {
	for of, s := range map[string]*settings.Settings{"own": configured(), "listed": listed()} {
		for _, pool := range s.GKE.AllPools() {
			want := ""
			if of == "listed" && pool.Name != systemPool {
				want = pool.Name
			}
			if got := labelsOf(pool)[settings.LabelPool]; got != want {
				t.Errorf("%s: nodes of %s have the pool %q, want %q", of, pool.Name, got, want)
			}
		}
	}
}
