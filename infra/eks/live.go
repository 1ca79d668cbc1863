package eks

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/ec2"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/eks"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// live has what exists of the stack's cluster in the account when the program starts. The zero
// value means that nothing exists yet.
type live struct {
	// subnets of the control plane, in the order of their IDs; empty for a VPC that the stack did
	// not create
	control []subnetRange
	groups  []group
}

// subnetRange is a subnet's zone and range.
type subnetRange struct{ zone, cidr string }

// group is an existing node group.
type group struct {
	id                string // its name in EKS
	name              string // system, worker or gpu
	types             []string
	spot              bool
	min, max, desired int
	subnets           int
}

// lookUpLive asks Amazon for the cluster and its groups. That there is no such cluster is no error.
func (p *parts) lookUpLive() (*live, error) {
	const why = "needed so that no change sets back the number of nodes, or takes away a zone of the control plane"
	all, err := eks.GetClusters(p.ctx)
	if err != nil {
		return nil, fmt.Errorf("list the clusters of %s (eks:ListClusters, %s): %w", p.e.Region, why, err)
	}
	l := &live{}
	if !slices.Contains(all.Names, p.name) {
		return l, nil
	}
	if p.e.VPC.ID == "" {
		cluster, err := eks.LookupCluster(p.ctx, &eks.LookupClusterArgs{Name: p.name})
		if err != nil {
			return nil, fmt.Errorf("look up the cluster %s (eks:DescribeCluster, %s): %w", p.name, why, err)
		}
		for _, id := range slices.Sorted(slices.Values(cluster.VpcConfig.SubnetIds)) {
			s, err := ec2.LookupSubnet(p.ctx, &ec2.LookupSubnetArgs{Id: &id})
			if err != nil {
				return nil, fmt.Errorf("look up the subnet %s of cluster %s (ec2:DescribeSubnets, "+
					"%s): %w", id, p.name, why, err)
			}
			l.control = append(l.control, subnetRange{s.AvailabilityZone, s.CidrBlock})
		}
	}
	names, err := eks.GetNodeGroups(p.ctx, &eks.GetNodeGroupsArgs{ClusterName: p.name})
	if err != nil {
		return nil, fmt.Errorf("list the node groups of cluster %s (eks:ListNodegroups, %s): %w", p.name, why, err)
	}
	for _, id := range slices.Sorted(slices.Values(names.Names)) {
		g, err := eks.LookupNodeGroup(p.ctx, &eks.LookupNodeGroupArgs{ClusterName: p.name, NodeGroupName: id})
		if err != nil {
			return nil, fmt.Errorf("look up the node group %s of cluster %s (eks:DescribeNodegroup, "+
				"%s): %w", id, p.name, why, err)
		}
		name, ours := strings.CutPrefix(g.Tags["Name"], p.name+"-")
		if !ours || g.Status == "DELETING" || len(g.ScalingConfigs) == 0 {
			continue
		}
		size := g.ScalingConfigs[0]
		l.groups = append(l.groups, group{
			id: id, name: name, types: g.InstanceTypes, spot: g.CapacityType == "SPOT", subnets: len(g.SubnetIds),
			min: size.MinSize, max: size.MaxSize, desired: size.DesiredSize,
		})
	}
	return l, nil
}

// stays reports whether a group can be updated to what is wanted, without being replaced.
func (g group) stays(want *settings.EKSGroup, subnets int) bool {
	return slices.Equal(slices.Sorted(slices.Values(g.types)),
		slices.Sorted(slices.Values(want.InstanceTypes))) && g.spot == want.Spot && g.subnets == subnets
}

// desired returns the number of nodes to request, and whether the engine must ignore that number.
// The engine must ignore it unless something else of the group changes, because EKS updates the
// number together with the bounds, and the number in the state dates from the group's creation. The
// number of nodes that run is kept: within new bounds, and by a group that replaces another.
func (l *live) desired(want settings.NamedGroup, subnets int) (nodes int, ignore bool, err error) {
	is := -1
	for i, g := range l.groups {
		if g.name == want.Name && (is < 0 || g.stays(want.EKSGroup, subnets)) {
			is = i
		}
	}
	if is < 0 {
		return want.DesiredNodes, true, nil
	}
	g := l.groups[is]
	if g.stays(want.EKSGroup, subnets) && g.min == want.MinNodes && g.max == want.MaxNodes {
		return want.DesiredNodes, true, nil
	}
	if g.desired > want.MaxNodes {
		return 0, false, fmt.Errorf("eks.%[1]sGroup.maxNodes: %[2]d: the group %[3]s has %[4]d "+
			"nodes, and `pulumi up` ends none: first run aws eks update-nodegroup-config with "+
			"desiredSize=%[2]d, or give %[4]d or more",
			want.Name, want.MaxNodes, g.id, g.desired)
	}
	return max(g.desired, want.MinNodes), false, nil
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
	return errors.Join(wrong...)
}
