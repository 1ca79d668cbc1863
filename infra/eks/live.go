package eks

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/eks"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// live has what exists of the stack's cluster in the account when the program starts. The zero
// value means that nothing exists yet.
type live struct {
	// subnets of the control plane, in the order of their IDs; empty for a VPC that the stack did
	// not create
	control []subnetRange
	// subnets of the groups, likewise
	nodes  []subnetRange
	groups []group
	// version of Kubernetes; "" = there is no cluster
	version string
	// it has Auto Mode
	auto bool
	// key of its secrets; "" = Amazon's own
	secretsKey string
}

// subnetRange is a subnet's zone and range.
type subnetRange struct{ zone, cidr string }

// group is an existing node group.
type group struct {
	id                string // its name in EKS
	name              string // as in the settings
	types             []string
	spot              bool
	min, max, desired int
	// zones of its subnets in a VPC that the stack created, else IDs of these; in order
	places []string
}

// lookUpLive asks Amazon for the cluster and its groups. That there is no such cluster is no error.
func (p *parts) lookUpLive() (*live, error) {
	const why = "needed so that no change sets back the number of nodes, or takes away a zone of the control plane"
	all, err := eks.GetClusters(p.ctx, p.invokes...)
	if err != nil {
		return nil, fmt.Errorf("list the clusters of %s (eks:ListClusters, %s): %w", p.e.Region, why, err)
	}
	l := &live{}
	if !slices.Contains(all.Names, p.name) {
		return l, nil
	}
	cluster, err := eks.LookupCluster(p.ctx, &eks.LookupClusterArgs{Name: p.name}, p.invokes...)
	if err != nil {
		return nil, fmt.Errorf("look up the cluster %s (eks:DescribeCluster, %s): %w", p.name, why, err)
	}
	l.version, l.secretsKey = cluster.Version, cluster.Tags[secretsTag]
	l.auto = len(cluster.ComputeConfigs) > 0 && cluster.ComputeConfigs[0].Enabled
	if l.auto && p.e.Nodes != settings.NodesAuto {
		return nil, fmt.Errorf("eks.nodes: %s: the cluster %s has Auto Mode, which is not taken away from it: put "+
			"auto back, or make another stack", p.e.Nodes, p.name)
	}
	if p.e.VPC.ID == "" {
		for _, id := range slices.Sorted(slices.Values(cluster.VpcConfig.SubnetIds)) {
			s, err := p.subnetOf(id)
			if err != nil {
				return nil, fmt.Errorf("look up the subnet %s of cluster %s (ec2:DescribeSubnets, "+
					"%s): %w", id, p.name, why, err)
			}
			l.control = append(l.control, subnetRange{s.AvailabilityZone, s.CidrBlock})
		}
	}
	if p.e.Nodes == settings.NodesAuto && !l.auto && p.s.Platform.NetworkPolicy {
		return nil, fmt.Errorf("platform.networkPolicy: true: while the cluster %s turns to Auto Mode, its nodes obey "+
			"no NetworkPolicies: set it to false for this update, and to true in the next", p.name)
	}
	names, err := eks.GetNodeGroups(p.ctx, &eks.GetNodeGroupsArgs{ClusterName: p.name}, p.invokes...)
	if err != nil {
		return nil, fmt.Errorf("list the node groups of cluster %s (eks:ListNodegroups, %s): %w", p.name, why, err)
	}
	for _, id := range slices.Sorted(slices.Values(names.Names)) {
		g, err := eks.LookupNodeGroup(p.ctx, &eks.LookupNodeGroupArgs{ClusterName: p.name, NodeGroupName: id},
			p.invokes...)
		if err != nil {
			return nil, fmt.Errorf("look up the node group %s of cluster %s (eks:DescribeNodegroup, "+
				"%s): %w", id, p.name, why, err)
		}
		name, ours := strings.CutPrefix(g.Tags["Name"], p.name+"-")
		if !ours || g.Status == "DELETING" || len(g.ScalingConfigs) == 0 {
			continue
		}
		places, err := p.placesOf(l, g.SubnetIds)
		if err != nil {
			return nil, fmt.Errorf("look up the subnets of node group %s (ec2:DescribeSubnets, %s): %w", id, why, err)
		}
		size := g.ScalingConfigs[0]
		l.groups = append(l.groups, group{
			id: id, name: name, types: g.InstanceTypes, spot: g.CapacityType == "SPOT", places: places,
			min: size.MinSize, max: size.MaxSize, desired: size.DesiredSize,
		})
	}
	return l, nil
}

// placesOf returns where subnets of a group are, as [group] has it, and notes their ranges.
func (p *parts) placesOf(l *live, subnets []string) ([]string, error) {
	places := slices.Clone(subnets)
	if p.e.VPC.ID == "" {
		for i, id := range subnets {
			s, err := p.subnetOf(id)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", id, err)
			}
			places[i] = s.AvailabilityZone
			l.nodes = append(l.nodes, subnetRange{s.AvailabilityZone, s.CidrBlock})
		}
	}
	slices.Sort(places)
	return places, nil
}

// stays reports whether a group can be updated to what is wanted, without being replaced. The order
// of instance types counts: for nodes on demand it is their priority. That of subnets does not.
func (g group) stays(want *settings.EKSGroup, places []string) bool {
	return slices.Equal(g.types, want.InstanceTypes) && g.spot == want.Spot && slices.Equal(g.places, places)
}

// desired returns the number of nodes to request, and whether the engine must ignore that number.
// The engine must ignore it unless something else of the group changes, because EKS updates the
// number together with the bounds, and the number in the state dates from the group's creation. The
// number of nodes that run is kept: within new bounds, and by a group that replaces another.
func (l *live) desired(want settings.NamedGroup, places []string) (nodes int, ignore bool, err error) {
	g, exists, stays := l.find(want, places)
	if !exists || stays && g.min == want.MinNodes && g.max == want.MaxNodes {
		return want.DesiredNodes, true, nil
	}
	if g.desired > want.MaxNodes {
		return 0, false, fmt.Errorf("%[1]s.maxNodes: %[2]d: the group %[3]s has %[4]d "+
			"nodes, and `pulumi up` ends none: first run aws eks update-nodegroup-config with "+
			"desiredSize=%[2]d, or give %[4]d or more",
			want.Path, want.MaxNodes, g.id, g.desired)
	}
	return max(g.desired, want.MinNodes), false, nil
}

// find returns the existing group of that name, and whether it stays; one that stays comes before
// one that is about to be deleted.
func (l *live) find(want settings.NamedGroup, places []string) (g group, exists, stays bool) {
	for _, is := range l.groups {
		if is.name == want.Name && !stays {
			g, exists, stays = is, true, is.stays(want.EKSGroup, places)
		}
	}
	return g, exists, stays
}

// replaced returns a warning if the group replaces another one, which has nodes, or "".
//
// EKS drains all nodes of a group that it deletes at once, and ends them after some minutes
// although disruption budgets are in the way: github.com/aws/containers-roadmap/issues/1636.
func (l *live) replaced(want settings.NamedGroup, places []string) string {
	g, exists, stays := l.find(want, places)
	if !exists || stays || g.desired == 0 {
		return ""
	}
	return fmt.Sprintf("%s: another group replaces %s. When its nodes have joined, Amazon "+
		"drains all %d of the old group at once, and does not wait long for disruption budgets: workers "+
		"there are replaced, a master comes back, and for a parameter server the training returns to "+
		"the newest checkpoint", want.Path, g.id, g.desired)
}

// check returns an error if a change of the zones would break the cluster: the control plane keeps
// the zones with which it was created, and the range of a subnet follows from the position of its
// zone in the list.
func (l *live) check(vpc settings.VPC) error {
	cidr, err := netip.ParsePrefix(vpc.CIDR)
	if vpc.ID != "" || err != nil {
		return nil
	}
	var wrong []error
	told := map[string]bool{}
	for _, is := range l.control {
		if told[is.zone] {
			continue
		}
		i := slices.Index(vpc.Zones, is.zone)
		switch {
		case i < 0:
			wrong = append(wrong, fmt.Errorf("eks.vpc.zones: %s is missing: the control plane was "+
				"made with it and keeps it: put it back; zones that were added later can be removed", is.zone))
		case is.cidr != privateRange(cidr, i) && is.cidr != publicRange(cidr, i):
			wrong = append(wrong, fmt.Errorf("eks.vpc.zones[%d]: %s has the range %s, which is not "+
				"that of its place in the list: keep the order, and add zones at the end", i, is.zone, is.cidr))
		default:
			continue
		}
		told[is.zone] = true
	}
	// The engine creates the new subnet before it deletes the old one.
	for i, zone := range vpc.Zones {
		j := slices.IndexFunc(l.nodes, func(is subnetRange) bool {
			return is.cidr == privateRange(cidr, i) && is.zone != zone && !told[is.zone]
		})
		if j >= 0 && !told[zone] {
			wrong = append(wrong, fmt.Errorf("eks.vpc.zones[%d]: %s: the subnet of %s has the range of this "+
				"place: first `pulumi up` with %s only, then add %[2]s", i, zone, l.nodes[j].zone,
				strings.Join(vpc.Zones[:i], ", ")))
		}
	}
	return errors.Join(wrong...)
}
