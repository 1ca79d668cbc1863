package eks

import (
	"fmt"
	"maps"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
)

// gpuTaint is the key of the taint that keeps pods without GPUs off nodes with GPUs.
const gpuTaint = "nvidia.com/gpu"

// pools returns all groups of nodes, and all pools of Karpenter.
func (p *parts) pools() []settings.NamedGroup { return slices.Concat(p.e.Groups(), p.e.NodePools()) }

// hasGPUs reports whether any nodes have GPUs.
func (p *parts) hasGPUs() bool {
	return slices.ContainsFunc(p.pools(), func(g settings.NamedGroup) bool { return g.GPUs > 0 })
}

// labelsOf returns the labels of the nodes of a group.
func labelsOf(g settings.NamedGroup) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, g.Labels)
	labels[settings.LabelPool] = g.Name
	if g.GPUs > 0 {
		labels[gpuLabel] = "true"
	}
	if !g.Listed && g.Spot {
		labels[spotKey] = "true"
	}
	return labels
}

// taintsOf returns the taints of the nodes of a group, by the value of eks.nodes.
func taintsOf(g settings.NamedGroup, nodes string) []settings.Taint {
	follow := nodes == settings.NodesAuto || nodes == settings.NodesKarpenter
	taints := slices.Clone(g.Taints)
	own := func(key, value string) {
		taints = append(taints, settings.Taint{Key: key, Value: value, Effect: "NoSchedule"})
	}
	switch {
	case g.GPUs > 0:
		// EKS sets no taint, and pods that need no GPU would fill the nodes
		own(gpuTaint, "present")
	case g.Name == settings.CorePool && nodes == settings.NodesKarpenter:
		// the cluster's own pods stay on the system group, and so empty nodes end
		own(settings.LabelPool, g.Name)
	case !g.ForWorkers(follow):
	case g.Listed || follow:
		own(settings.LabelPool, g.Name)
	default:
		own(spotKey, "true")
	}
	return taints
}

// workersOn returns the nodes of workers.
func (p *parts) workersOn(pool string, gpus bool) *infra.Nodes {
	on := p.s.PoolFor(pool, gpus)
	for _, g := range p.pools() {
		if g.Name == on {
			return p.nodesOf(g)
		}
	}
	return nil
}

// nodesOf returns what workers must select and tolerate to run on the nodes of a group. They
// tolerate the taint of GPUs anyway if they request any.
func (p *parts) nodesOf(g settings.NamedGroup) *infra.Nodes {
	taints := taintsOf(g, p.e.Nodes)
	selected := map[string]string{settings.LabelPool: g.Name}
	if len(taints) == 1 && taints[0].Key == spotKey {
		selected = map[string]string{spotKey: "true"}
	}
	taints = slices.DeleteFunc(taints, func(t settings.Taint) bool { return t.Key == gpuTaint })
	return &infra.Nodes{NodeSelector: selected, Tolerations: settings.Tolerations(taints)}
}

// placesFor returns where a group has its nodes: as [group] has it, and the IDs of the subnets.
func (p *parts) placesFor(g settings.NamedGroup) (in []string, subnets pulumi.StringArray, err error) {
	for _, zone := range g.Zones {
		if !slices.ContainsFunc(p.net.private, func(s subnet) bool { return s.zone == zone }) {
			return nil, nil, fmt.Errorf("%s.zones: %s: eks.vpc.privateSubnets has no subnet in this zone", g.Path, zone)
		}
	}
	for i, s := range p.net.private {
		if len(g.Zones) > 0 && !slices.Contains(g.Zones, s.zone) {
			continue
		}
		subnets = append(subnets, s.id)
		place := s.zone
		if p.e.VPC.ID != "" {
			place = p.e.VPC.PrivateSubnets[i]
		}
		in = append(in, place)
	}
	slices.Sort(in)
	return in, subnets, nil
}
