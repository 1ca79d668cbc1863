package eks

import (
	"cmp"
	"slices"
	"time"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/eks"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
)

// quotasHook warns, before the first group is created, against which quotas the nodes count.
const quotasHook = "quotas of the account"

// gpuLabel is the label that is "true" on nodes with GPUs. The device plugin selects nodes by it;
// no other component sets it.
const gpuLabel = "nvidia.com/gpu.present"

// spotKey is the key of a label and a taint of spot nodes, which the cloud may take back at any
// time: masters and parameter servers run elsewhere.
const spotKey = "elasticdl.org/spot"

// addNodes creates the groups of nodes and the addons that come before and after them. The mount
// targets of the file system are deleted after the nodes.
func (p *parts) addNodes() error {
	if p.e.Nodes == settings.NodesAuto {
		return p.addAuto()
	}
	if err := p.addNodeRole("node", "AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly",
		"AmazonEKS_CNI_Policy"); err != nil {
		return err
	}
	quotas, err := p.quotas()
	if err != nil {
		return err
	}
	// No node is ready without a network plugin. When a node is deleted, its plugin releases the
	// node's addresses, so the plugin must be deleted after the nodes.
	var first []pulumi.Resource
	for _, name := range []string{"vpc-cni", "kube-proxy", "eks-pod-identity-agent"} {
		var args eks.AddonArgs
		if name == "vpc-cni" {
			args.ConfigurationValues = pulumi.String(`{"enableNetworkPolicy":"true"}`)
		}
		addon, err := p.addon(name, args)
		if err != nil {
			return err
		}
		first = append(first, addon)
	}
	wait := pulumi.Composite(after(first, p.attached, p.net.ways, p.mounted), quotas)
	var all []pulumi.Resource
	for _, g := range p.e.Groups() {
		group, err := p.group(g, wait)
		if err != nil {
			return err
		}
		all = append(all, group)
	}
	// The addons' pods tolerate no taint: they wait for nodes without taints.
	system := all[:1]
	more := []string{"coredns"}
	if slices.ContainsFunc(p.e.Groups(), func(g settings.NamedGroup) bool { return g.GPUs > 0 }) {
		// EKS repairs nodes with broken GPUs only if this addon reports them
		more = append(more, "eks-node-monitoring-agent")
	}
	for _, name := range more {
		addon, err := p.addon(name, eks.AddonArgs{}, after(system))
		if err != nil {
			return err
		}
		all = append(all, addon)
	}
	if p.e.EFS != nil {
		driver, err := p.driver(system)
		if err != nil {
			return err
		}
		all = append(all, driver)
	}
	p.ready = slices.Concat(p.ready, first, all)
	if p.e.Nodes == settings.NodesKarpenter {
		return p.addKarpenter(system)
	}
	return nil
}

// quotas returns the option that warns, once and before the first of the resources that have it is
// created, against which quotas nodes count, and how long these last.
func (p *parts) quotas() (_ pulumi.ResourceOption, err error) {
	if p.quotaNotes == nil {
		notes := slices.Concat(p.e.QuotaNotes(), p.e.NodeNotes())
		p.quotaNotes, err = infra.WarnBeforeCreate(p.ctx, p.Hook(quotasHook), notes)
	}
	return p.quotaNotes, err
}

// group creates the nodes of one kind.
func (p *parts) group(g settings.NamedGroup, wait pulumi.ResourceOption) (*eks.NodeGroup, error) {
	in, subnets, err := p.placesFor(g)
	if err != nil {
		return nil, err
	}
	desired, ignore, err := p.live.desired(g, in)
	if err != nil {
		return nil, err
	}
	if why := p.live.replaced(g, in); why != "" {
		if err := p.ctx.Log.Warn(why, nil); err != nil {
			return nil, err
		}
	}
	opts := []pulumi.ResourceOption{wait,
		pulumi.Timeouts(&pulumi.CustomTimeouts{Update: updateTime(g.MaxNodes).String()})}
	if ignore {
		opts = append(opts, pulumi.IgnoreChanges([]string{"scalingConfig.desiredSize"}))
	}
	template, err := p.template(g)
	if err != nil {
		return nil, err
	}
	var taints eks.NodeGroupTaintArray
	for _, t := range taintsOf(g, settings.NodesGroups) {
		taints = append(taints, &eks.NodeGroupTaintArgs{Key: pulumi.String(t.Key),
			Value: pulumi.String(t.Value), Effect: pulumi.String(t.CloudEffect())})
	}
	types := pulumi.ToStringArray(g.InstanceTypes)
	if g.CapacityBlock {
		types = nil // it is in the template
	}
	image, capacity := "AL2023_x86_64_STANDARD", "ON_DEMAND"
	switch {
	case g.GPUs > 0:
		image = "AL2023_x86_64_NVIDIA"
	case g.Arm():
		image = "AL2023_ARM_64_STANDARD"
	}
	switch {
	case g.Spot:
		capacity = "SPOT"
	case g.CapacityBlock:
		capacity = "CAPACITY_BLOCK"
	}
	return eks.NewNodeGroup(p.ctx, p.Child(g.Name), &eks.NodeGroupArgs{
		ClusterName: p.cluster.Name, NodeRoleArn: p.nodeRole.arn, SubnetIds: subnets, Version: p.cluster.Version,
		AmiType:       pulumi.String(image),
		CapacityType:  pulumi.String(capacity),
		InstanceTypes: types,
		LaunchTemplate: &eks.NodeGroupLaunchTemplateArgs{Id: template.ID(),
			Version: pulumi.Sprintf("%d", template.LatestVersion)},
		ScalingConfig: &eks.NodeGroupScalingConfigArgs{
			MinSize: pulumi.Int(g.MinNodes), MaxSize: pulumi.Int(g.MaxNodes), DesiredSize: pulumi.Int(desired),
		},
		UpdateConfig:     updateConfig(g.MaxNodes),
		NodeRepairConfig: &eks.NodeGroupNodeRepairConfigArgs{Enabled: pulumi.Bool(true)},
		Labels:           pulumi.ToStringMap(labelsOf(g)),
		Taints:           taints,
		Tags:             p.tags(p.name + "-" + g.Name),
		// Pulumi chooses the name, so that a replacement can be created before the old group is
		// deleted.
	}, p.options(opts...))
}

// A group of more than fewNodes nodes is updated a third of its nodes at a time, else node by node.
const (
	fewNodes  = 6
	atOncePct = 33
)

// A pod that cannot be evicted fails the update after this time.
const evictionLimit = 15 * time.Minute

// updateConfig returns how many nodes of a group EKS may replace at a time.
func updateConfig(maxNodes int) *eks.NodeGroupUpdateConfigArgs {
	if maxNodes <= fewNodes {
		return &eks.NodeGroupUpdateConfigArgs{MaxUnavailable: pulumi.Int(1)}
	}
	return &eks.NodeGroupUpdateConfigArgs{MaxUnavailablePercentage: pulumi.Int(atOncePct)}
}

// updateTime returns how long an update of a group may take: the start of additional nodes, and for
// each step the eviction of the pods and the end of the nodes. The provider's own limit is one
// hour, in which EKS replaces four nodes, one after the other.
func updateTime(maxNodes int) time.Duration {
	return 30*time.Minute + time.Duration(updateSteps(maxNodes))*(evictionLimit+5*time.Minute)
}

// updateSteps returns the greatest number of steps in which EKS replaces up to maxNodes nodes.
func updateSteps(maxNodes int) (most int) {
	for nodes := 1; nodes <= maxNodes; nodes++ {
		step := 1
		if maxNodes > fewNodes {
			step = max(1, nodes*atOncePct/100)
		}
		most = max(most, (nodes+step-1)/step)
	}
	return most
}

// template creates the launch template of a group. EKS adds image, instance type, role and security
// group, which the template must not set.
func (p *parts) template(g settings.NamedGroup) (*untyped, error) {
	full := p.name + "-" + g.Name
	opts := []pulumi.ResourceOption{pulumi.DeleteBeforeReplace(true)}
	// a new version of a template would replace every node of its group only to change a label
	if !p.e.LabelNodes {
		opts = append(opts, pulumi.IgnoreChanges([]string{"tagSpecifications"}))
	}
	var tags pulumi.Array
	// these are billed, and do not inherit the tags of the group
	for _, kind := range []string{"instance", "volume", "network-interface"} {
		tags = append(tags, pulumi.Map{"resourceType": pulumi.String(kind),
			"tags": p.tags(full)})
	}
	inputs := pulumi.Map{
		"name": pulumi.String(p.s.Name(100, g.Name)),
		"blockDeviceMappings": pulumi.Array{pulumi.Map{
			"deviceName": pulumi.String("/dev/xvda"),
			"ebs": encrypted(pulumi.Map{
				"volumeType": pulumi.String("gp3"), "encrypted": pulumi.String("true"),
				"deleteOnTermination": pulumi.String("true"),
				// images with CUDA do not fit on the 20 GiB that EKS gives by default
				"volumeSize": pulumi.Int(cmp.Or(g.DiskGB, 100)),
			}, "kmsKeyId", p.key()),
		}},
		// With one hop the metadata service answers nodes, but not pods: pods do not get the role
		// of the nodes.
		"metadataOptions": pulumi.Map{
			"httpEndpoint": pulumi.String("enabled"), "httpTokens": pulumi.String("required"),
			"httpPutResponseHopLimit": pulumi.Int(1),
		},
		"tagSpecifications": tags,
		"tags":              p.tags(full),
	}
	if g.Reservation != "" {
		inputs["capacityReservationSpecification"] = pulumi.Map{"capacityReservationTarget": pulumi.Map{
			"capacityReservationId": pulumi.String(g.Reservation)}}
	}
	if g.CapacityBlock {
		inputs["instanceMarketOptions"] = pulumi.Map{"marketType": pulumi.String("capacity-block")}
		inputs["instanceType"] = pulumi.String(g.InstanceTypes[0])
	}
	return p.register("aws:ec2/launchTemplate:LaunchTemplate", g.Name, inputs, opts...)
}
