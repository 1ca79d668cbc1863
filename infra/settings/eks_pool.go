package settings

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// How a cluster of Amazon gets its nodes: values of eks.nodes.
const (
	// managed node groups, whose number of nodes people set
	NodesGroups = "groups"
	// EKS Auto Mode: Amazon makes nodes for pods that wait
	NodesAuto = "auto"
	// Karpenter, which the stack installs, makes nodes for pods that wait
	NodesKarpenter = "karpenter"
)

// Follow reports whether nodes come and end with pods.
func (e *EKS) Follow() bool { return e.Nodes == NodesAuto || e.Nodes == NodesKarpenter }

// NamedGroup is a group or pool with its name and the path of its settings.
type NamedGroup struct {
	Name, Path string
	*EKSGroup
	// it is of the list eks.pools: its nodes have [LabelPool]
	Listed bool
	Taints []Taint
}

// ForWorkers reports whether the nodes of a group are for workers: those of its kind select and
// tolerate them. With follow they are Karpenter's.
func (g NamedGroup) ForWorkers(follow bool) bool {
	if follow || g.Listed {
		return g.Name != CorePool && g.Name != SystemPool
	}
	return g.Name == WorkerGroup && g.Spot
}

// system returns the group for what the cluster itself runs.
func (e *EKS) system() NamedGroup {
	return NamedGroup{Name: SystemPool, Path: "eks.systemGroup", EKSGroup: &e.SystemGroup}
}

// more returns all other groups and pools.
func (e *EKS) more() (all []NamedGroup) {
	if e.WorkerGroup != nil {
		all = append(all, NamedGroup{Name: WorkerGroup, Path: "eks.workerGroup", EKSGroup: e.WorkerGroup})
	}
	if e.GPUGroup != nil {
		all = append(all, NamedGroup{Name: GPUPool, Path: "eks.gpuGroup", EKSGroup: e.GPUGroup})
	}
	for i := range e.Pools {
		of := &e.Pools[i]
		all = append(all, NamedGroup{of.Name, fmt.Sprintf("eks.pools[%d]", i), &of.EKSGroup, true, of.Taints})
	}
	return all
}

// Groups returns the managed node groups of the stack, the system group first.
func (e *EKS) Groups() []NamedGroup {
	switch e.Nodes {
	case NodesAuto:
		return nil
	case NodesKarpenter:
		return []NamedGroup{e.system()}
	}
	return append([]NamedGroup{e.system()}, e.more()...)
}

// NodePools returns the pools of Karpenter, the one for masters and parameter servers first.
func (e *EKS) NodePools() []NamedGroup {
	if !e.Follow() {
		return nil
	}
	all := e.more()
	if i := slices.IndexFunc(all, func(g NamedGroup) bool { return g.Name == CorePool }); i >= 0 {
		return slices.Concat(all[i:i+1], all[:i], all[i+1:])
	}
	core := e.system()
	core.Name = CorePool
	if e.Nodes == NodesKarpenter {
		// more nodes like those of the group, which runs Karpenter itself
		more := e.SystemGroup
		more.MinNodes, more.DesiredNodes, more.MaxNodes, more.IdleAfter = 0, 0, coreNodes, defaultIdle
		core.EKSGroup = &more
	}
	return append([]NamedGroup{core}, all...)
}

// Arm reports whether the nodes have Arm processors.
func (o *EKSGroup) Arm() bool {
	return len(o.InstanceTypes) > 0 && isArm.MatchString(o.InstanceTypes[0])
}

const (
	// of core nodes in Auto Mode, unless the file has another
	coreNodes   = 10
	defaultIdle = "5m"
	defaultDisk = 100
)

// settlePools sets the values of pools that follow from others.
func (e *EKS) settlePools(given func(path string) bool) {
	if e.Nodes == "" {
		e.Nodes = NodesGroups
	}
	for i := range e.Pools {
		of := &e.Pools[i]
		if of.DiskGB == 0 {
			of.DiskGB = defaultDisk
		}
		settleTaints(of.Taints)
	}
	if e.Nodes == NodesAuto {
		for path, n := range map[string]*int{"minNodes": &e.SystemGroup.MinNodes,
			"desiredNodes": &e.SystemGroup.DesiredNodes} {
			if !given("eks.systemGroup." + path) {
				*n = 0
			}
		}
		if !given("eks.systemGroup.maxNodes") {
			e.SystemGroup.MaxNodes = coreNodes
		}
	}
	for _, g := range e.NodePools() {
		if g.IdleAfter == "" {
			g.IdleAfter = defaultIdle
		}
	}
}

// checkPools checks all groups and pools: each alone, and what eks.nodes makes of them.
func (e *EKS) checkPools(s *Settings, p *Problems) {
	p.oneOf("eks.nodes", e.Nodes, NodesAuto, NodesKarpenter, NodesGroups)
	system := e.system()
	system.check(s, system.Path, p)
	system.checkGPUs(s, system.Path, false, p)
	p.Check(e.Nodes == NodesAuto || system.MinNodes >= 1, system.Path+".minNodes",
		"%d: expected 1 or more: what the cluster itself runs has no other place", system.MinNodes)
	p.Check(!system.Spot, system.Path+".spot",
		"true: what the cluster itself runs, masters and servers are not to be taken away")
	e.checkFollows(system, e.Nodes == NodesAuto, p)
	names := slices.Clone(reservedPools[CloudEKS])
	for _, g := range e.more() {
		if g.Listed {
			checkPoolName(g.Path, g.Name, names, p)
			names = append(names, g.Name)
			checkTaints(g.Path+".taints", g.Taints, p)
		}
		core := g.Name == CorePool && e.Follow()
		g.check(s, g.Path, p)
		g.checkGPUs(s, g.Path, g.Name == GPUPool || g.Listed && g.GPUs > 0, p)
		e.checkFollows(g, e.Follow(), p)
		s.checkSpot(g.Path+".spot", g.Spot && (!g.Listed || g.Name == s.WorkersOn()), p)
		p.Check(!core || !g.Spot && g.GPUs == 0 && len(g.Taints) == 0, g.Path,
			"%s is for masters and parameter servers: expected neither spot, gpus nor taints", CorePool)
		p.Check(!g.Arm() || !core, g.Path+".instanceTypes", "%s is for masters and parameter servers: expected no Arm",
			CorePool)
	}
}

// NodeNotes returns lines for the user about the nodes of the settings, before there are any.
func (e *EKS) NodeNotes() []string {
	if e.Nodes != NodesAuto {
		return nil
	}
	return []string{"eks.nodes: auto: Amazon replaces each node of Auto Mode within 21 days; a master comes back on " +
		"another, and for a parameter server the training returns to the newest checkpoint"}
}

// checkCore refuses settings of the core pool that another one makes ineffective. Given reports
// whether the file has a path.
func (e *EKS) checkCore(given func(path string) bool, p *Problems) {
	own := slices.ContainsFunc(e.Pools, func(of EKSPool) bool { return of.Name == CorePool })
	p.Check(e.Nodes != NodesAuto || !own || !given("eks.systemGroup"), "eks.systemGroup",
		"has no effect: eks.pools has an entry %s: remove one of the two", CorePool)
}

// checkFollows checks the settings of a group that depend on whether its nodes follow the pods.
func (e *EKS) checkFollows(g NamedGroup, follows bool, p *Problems) {
	const why = "requires eks.nodes: auto or karpenter"
	if !follows {
		p.Check(!g.OnDemand, g.Path+".onDemand", "true: %s, and this group has nodes of one kind: remove it", why)
		p.Check(g.IdleAfter == "", g.Path+".idleAfter", "%s: %s, and people end the nodes of this group: remove it",
			g.IdleAfter, why)
		return
	}
	made := "eks.nodes: " + e.Nodes + ": nodes come and end with pods: remove it"
	p.Check(g.MinNodes == 0, g.Path+".minNodes", "%d: %s", g.MinNodes, made)
	p.Check(g.DesiredNodes == 0, g.Path+".desiredNodes", "%d: %s", g.DesiredNodes, made)
	p.Check(!g.OnDemand || g.Spot, g.Path+".onDemand", "true: goes with spot: true; nodes are on demand without")
	checkIdle(g.Path+".idleAfter", g.IdleAfter, p)
}

var isReservation = regexp.MustCompile(`^cr-[0-9a-f]{8,17}$`)

// checkPlace checks the zones and the reservation of a group.
func (o *EKSGroup) checkPlace(s *Settings, at string, p *Problems) {
	for i, zone := range o.Zones {
		path := fmt.Sprintf("%s.zones[%d]", at, i)
		p.Check(s.EKS.VPC.ID != "" || slices.Contains(s.EKS.VPC.Zones, zone), path,
			"%s: expected a zone of eks.vpc.zones, %s", zone, strings.Join(s.EKS.VPC.Zones, ", "))
		p.Check(!slices.Contains(o.Zones[:i], zone), path, "%s occurs twice", zone)
	}
	p.Check(o.Reservation == "" || isReservation.MatchString(o.Reservation), at+".reservation",
		"%s: expected the ID of a capacity reservation, as cr-0a1b2c3d4e5f60718", o.Reservation)
	p.Check(!o.CapacityBlock || o.Reservation != "", at+".capacityBlock",
		"true: requires reservation, the ID of the block")
	p.Check(o.Reservation == "" || !o.Spot, at+".spot", "true: nodes of a reservation are no spot nodes: remove one")
	p.Check(!o.CapacityBlock || s.EKS.Follow() || len(o.Zones) == 1, at+".zones",
		"%d zones: a capacity block is in one: expected that zone", len(o.Zones))
	p.Check(o.Reservation == "" || len(o.InstanceTypes) == 1, at+".instanceTypes",
		"%d types: a reservation has one", len(o.InstanceTypes))
}

// checkTypes checks the instance types of a group, which must have one architecture: an image for
// which the stack builds no such platform would not start there.
func (o *EKSGroup) checkTypes(s *Settings, at string, p *Problems) {
	p.Check(len(o.InstanceTypes) > 0, at+".instanceTypes", "missing: one or more, as [m6i.xlarge]")
	p.Check(len(o.InstanceTypes) <= 20, at+".instanceTypes", "%d types: expected at most 20", len(o.InstanceTypes))
	builds := s.Image == nil || slices.Contains(s.Image.Platforms, "linux/arm64")
	if o.Arm() && s.Image == nil {
		s.note("%s: Arm machines: job.image must be for linux/arm64, too", at)
	}
	for i, t := range o.InstanceTypes {
		path := fmt.Sprintf("%s.instanceTypes[%d]", at, i)
		p.Check(isInstanceType.MatchString(t), path, "%s: expected a type, as m6i.xlarge", t)
		p.Check(isArm.MatchString(t) == o.Arm(), path, "%s: a pool has Arm machines or others, and %s is first", t,
			o.InstanceTypes[0])
		p.Check(!isArm.MatchString(t) || builds && strings.HasPrefix(at, "eks.pools"), path,
			"%s: an Arm machine: these are in eks.pools, with image.platforms: [linux/amd64, linux/arm64]", t)
		p.Check(!slices.Contains(o.InstanceTypes[:i], t), path, "%s occurs twice", t)
	}
}
