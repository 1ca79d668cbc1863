package settings

import (
	"fmt"
	"regexp"
	"slices"
)

// LabelClass is the label, and the key of the taint, of nodes of a ComputeClass of GKE.
const LabelClass = "cloud.google.com/compute-class"

// PoolOfGKE is a pool with its name and the path of its settings.
type PoolOfGKE struct {
	Name, Path string
	*GKEPool
	// it is of the list gke.pools: its nodes have [LabelPool]
	Listed bool
	// spot nodes first, and on-demand nodes where there are none: nodes have [LabelClass]
	OnDemand bool
	Taints   []Taint
}

// AllPools returns all pools of the stack, the system pool first.
func (g *GKE) AllPools() []PoolOfGKE {
	all := []PoolOfGKE{{Name: SystemPool, Path: "gke.systemPool", GKEPool: &g.SystemPool}}
	if g.WorkerPool != nil {
		all = append(all, PoolOfGKE{Name: WorkerPool, Path: "gke.workerPool", GKEPool: g.WorkerPool})
	}
	if g.GPUPool != nil {
		all = append(all, PoolOfGKE{Name: GPUPool, Path: "gke.gpuPool", GKEPool: g.GPUPool})
	}
	for i := range g.Pools {
		of := &g.Pools[i]
		all = append(all, PoolOfGKE{of.Name, fmt.Sprintf("gke.pools[%d]", i), &of.GKEPool, true, of.OnDemand,
			of.Taints})
	}
	return all
}

// Most returns the greatest number of nodes of a pool: with a fallback it is that of spot nodes and
// that of nodes on demand, which may exist at the same time.
func (o PoolOfGKE) Most() int {
	if o.OnDemand {
		return 2 * o.MaxNodes
	}
	return o.MaxNodes
}

// Fallback returns the pool of the on-demand nodes of a pool of spot nodes; nil = it has none.
func (o PoolOfGKE) Fallback() *GKEPool {
	if !o.OnDemand {
		return nil
	}
	onDemand := *o.GKEPool
	onDemand.Spot, onDemand.MinNodes = false, 0
	return &onDemand
}

// Arm reports whether the nodes have Arm processors.
func (o *GKEPool) Arm() bool {
	return slices.Contains([]string{"t2a", "c4a", "n4a", "a4x"}, family(o.MachineType))
}

// settlePools sets the values of pools that follow from others.
func (g *GKE) settlePools() {
	for i := range g.Pools {
		of := &g.Pools[i]
		if of.DiskGB == 0 {
			of.DiskGB = defaultDisk
		}
		if of.Accelerator != "" && of.GPUDriver == "" {
			of.GPUDriver = "DEFAULT"
		}
		settleTaints(of.Taints)
	}
}

var isGoogleReservation = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)

// checkPools checks all pools.
func (g *GKE) checkPools(s *Settings, p *Problems) {
	system := &g.SystemPool
	p.Check(system.MinNodes >= 1, "gke.systemPool.minNodes",
		"%d: expected 1 or more: what the cluster itself runs has no other place", system.MinNodes)
	p.Check(!system.Spot, "gke.systemPool.spot",
		"true: what the cluster itself runs, masters and servers are not to be taken away")
	names := slices.Clone(reservedPools[CloudGKE])
	for _, of := range g.AllPools() {
		of.check(s, of.Path, of.Listed, p)
		cards := of.Name == GPUPool || of.Listed && (of.Accelerator != "" || of.GPUs > 0)
		of.checkGPUs(of.Path, cards, p)
		if cards {
			of.noteNewGPUs(s, of.Path)
		}
		if of.Name == SystemPool {
			continue
		}
		s.checkSpot(of.Path+".spot", of.Spot && (!of.Listed || of.Name == s.WorkersOn()), p)
		if !of.Listed {
			continue
		}
		checkPoolName(of.Path, of.Name, names, p)
		names = append(names, of.Name, of.Name+onDemandSuffix)
		checkTaints(of.Path+".taints", of.Taints, p)
		p.Check(!of.OnDemand || of.Spot, of.Path+".onDemand", "true: goes with spot: true; nodes are on demand without")
	}
}

// onDemandSuffix ends the name of the pool of on-demand nodes for which a pool of spot nodes has
// none.
const onDemandSuffix = "-on-demand"

// OnDemandName returns the name of a pool's on-demand nodes.
func (o PoolOfGKE) OnDemandName() string { return o.Name + onDemandSuffix }

// checkPlace checks the zones and the reservation of a pool.
func (o *GKEPool) checkPlace(g *GKE, at string, p *Problems) {
	region, _ := Region(g.Location)
	for i, zone := range o.Zones {
		path := fmt.Sprintf("%s.zones[%d]", at, i)
		r, isZone := Region(zone)
		p.Check(isZone && r == region, path, "%s: expected a zone of %s", zone, orMissing(region))
		p.Check(!slices.Contains(o.Zones[:i], zone), path, "%s occurs twice", zone)
	}
	p.Check(o.Reservation == "" || isGoogleReservation.MatchString(o.Reservation), at+".reservation",
		"%s: expected the name of a reservation: at most 63 lower-case letters, digits and '-'", o.Reservation)
	p.Check(o.Reservation == "" || !o.Spot, at+".spot", "true: nodes of a reservation are no spot nodes: remove one")
}

// ZonesOf returns the number of zones in which a pool has nodes.
func (g *GKE) ZonesOf(o *GKEPool) int {
	if len(o.Zones) > 0 {
		return len(o.Zones)
	}
	return g.Zones()
}
