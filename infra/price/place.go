package price

import (
	"cmp"
	"math"
	"slices"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// group is a number of pods that request the same.
type group struct {
	pods       int
	cpus, gpus float64
}

// supply has what a pool or group gives to pods.
type supply struct {
	// of a node of each type that it has
	cpus []int
	gpus int
	// nodes that are there in any case, and no others; 0 = as many as pods need
	fixed int
}

// google returns what the pools of Google have.
func google(s *settings.Settings) map[string]supply {
	on := map[string]supply{}
	for _, pool := range s.GKE.AllPools() {
		on[pool.Name] = supply{cpus: []int{settings.GoogleCPUs(pool.MachineType)}, gpus: pool.GPUs}
	}
	return on
}

// amazon returns what the groups and pools of Amazon have. The nodes of a group are of its first
// type.
func amazon(s *settings.Settings) map[string]supply {
	on := map[string]supply{}
	for _, g := range s.EKS.Groups() {
		on[g.Name] = supply{[]int{settings.AmazonCPUs(g.InstanceTypes[0])}, g.GPUs, g.DesiredNodes}
	}
	for _, g := range s.EKS.NodePools() {
		of := supply{gpus: g.GPUs}
		for _, t := range g.InstanceTypes {
			of.cpus = append(of.cpus, settings.AmazonCPUs(t))
		}
		on[g.Name] = of
	}
	return on
}

// needs returns the first type of node that has room for each of some pods, by its place in the
// list, and how many of these nodes the pods need.
func (of supply) needs(pods []group) (first, nodes int) {
	first = max(0, slices.IndexFunc(of.cpus, func(cpus int) bool { return fits(pods, cpus, of.gpus) }))
	return first, nodesFor(pods, of.cpus[first], of.gpus)
}

// takes reports whether there is room for some pods.
func (of supply) takes(pods []group) bool {
	first, nodes := of.needs(pods)
	return fits(pods, of.cpus[first], of.gpus) && (of.fixed == 0 || nodes <= of.fixed)
}

// place returns the pods of the stack's job on the nodes of each pool, by its name: on those that
// are there in any case as far as they fit there, and on those of the system at last.
func place(s *settings.Settings, on map[string]supply) map[string][]group {
	rank := func(name string) int {
		switch {
		case on[name].fixed > 0:
			return 0
		case name == settings.SystemPool:
			return 2
		}
		return 1
	}
	pods := map[string][]group{}
	for _, of := range s.Pods() {
		names := of.Places()
		slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
		for _, name := range names {
			all := append(slices.Clone(pods[name]), group{of.First, of.CPUs, of.GPUs})
			if on[name].takes(all) {
				pods[name] = all
				break
			}
		}
	}
	return pods
}

// fits reports whether all pods fit on nodes, one at a time.
func fits(all []group, cpus, gpus int) bool {
	return !slices.ContainsFunc(all, func(g group) bool { return settings.Room(g.cpus, g.gpus, cpus, gpus) == 0 })
}

// nodesFor returns how many nodes pods need, by CPUs and GPUs. A pod that requests neither takes a
// node for itself, and one that is too large for a node takes none.
func nodesFor(all []group, cpus, gpus int) int {
	var need float64
	for _, g := range all {
		fit := settings.Room(g.cpus, g.gpus, cpus, gpus)
		switch {
		case fit == 0:
			continue
		case math.IsInf(fit, 1):
			fit = 1
		}
		need += float64(g.pods) / fit
	}
	return int(math.Ceil(need - 1e-9))
}
