package eks

import (
	"cmp"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/ec2"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/eks"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/iam"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
)

// gpuLabel is "true" on nodes with GPUs. The device plugin selects them by it, and nobody else sets it.
const gpuLabel = "nvidia.com/gpu.present"

// spotKey is a label and a taint of nodes that may be taken back at any time: masters and parameter servers are elsewhere.
const spotKey = "elasticdl.org/spot"

// nodes are the groups and the addons around them; the files' mount targets go after the nodes.
func (b *builder) nodes(c *eks.Cluster, n *network, mounts []pulumi.Resource) ([]pulumi.Resource, error) {
	role, attached, err := b.role("node", trusts("ec2.amazonaws.com"), "AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly", "AmazonEKS_CNI_Policy")
	if err != nil {
		return nil, err
	}
	// No node is ready without a network plugin; and the last one on a node that goes gives back its addresses, so it must not go first.
	var first []pulumi.Resource
	for _, name := range []string{"vpc-cni", "kube-proxy", "eks-pod-identity-agent"} {
		var args eks.AddonArgs
		if name == "vpc-cni" {
			args.ConfigurationValues = pulumi.String(`{"enableNetworkPolicy":"true"}`)
		}
		addon, err := b.addon(c, name, args)
		if err != nil {
			return nil, err
		}
		first = append(first, addon)
	}
	wait := after(first, attached, n.ways, mounts)
	var all []pulumi.Resource
	for _, g := range []*infra.EKSGroup{&b.eks.SystemGroup, b.eks.WorkerGroup, b.eks.GPUGroup} {
		if g == nil {
			continue
		}
		group, err := b.group(c, n, role, g, wait)
		if err != nil {
			return nil, err
		}
		all = append(all, group)
	}
	// Their pods tolerate no taint: they wait for nodes that have none.
	system := all[:1]
	dns, err := b.addon(c, "coredns", eks.AddonArgs{}, system)
	if err != nil {
		return nil, err
	}
	all = append(all, dns)
	if b.eks.EFS != nil {
		driver, err := b.driver(c, system)
		if err != nil {
			return nil, err
		}
		all = append(all, driver)
	}
	return append(first, all...), nil
}

// group is nodes of one kind.
func (b *builder) group(c *eks.Cluster, n *network, role *iam.Role, g *infra.EKSGroup, wait pulumi.ResourceOption) (*eks.NodeGroup, error) {
	name := "system"
	switch g {
	case b.eks.WorkerGroup:
		name = "worker"
	case b.eks.GPUGroup:
		name = "gpu"
	}
	template, err := b.template(name, g)
	if err != nil {
		return nil, err
	}
	labels := pulumi.ToStringMap(g.Labels)
	var taints eks.NodeGroupTaintArray
	taint := func(key, value string) {
		taints = append(taints, &eks.NodeGroupTaintArgs{Key: pulumi.String(key), Value: pulumi.String(value), Effect: pulumi.String("NO_SCHEDULE")})
	}
	image, capacity := "AL2023_x86_64_STANDARD", "ON_DEMAND"
	if g.Spot {
		capacity = "SPOT"
	}
	switch {
	case name == "gpu":
		image = "AL2023_x86_64_NVIDIA"
		labels[gpuLabel] = pulumi.String("true")
		taint("nvidia.com/gpu", "present") // EKS sets none, and pods without need for GPUs would fill the nodes
	case g.Spot:
		labels[spotKey] = pulumi.String("true")
		taint(spotKey, "true")
	}
	return eks.NewNodeGroup(b.Context, name, &eks.NodeGroupArgs{
		ClusterName: c.Name, NodeRoleArn: role.Arn, SubnetIds: n.subnets(), Version: c.Version,
		AmiType:        pulumi.String(image),
		CapacityType:   pulumi.String(capacity),
		InstanceTypes:  pulumi.ToStringArray(g.InstanceTypes),
		LaunchTemplate: &eks.NodeGroupLaunchTemplateArgs{Id: template.ID(), Version: pulumi.Sprintf("%d", template.LatestVersion)},
		ScalingConfig: &eks.NodeGroupScalingConfigArgs{
			MinSize: pulumi.Int(g.MinNodes), MaxSize: pulumi.Int(g.MaxNodes), DesiredSize: pulumi.Int(g.DesiredNodes),
		},
		UpdateConfig:     &eks.NodeGroupUpdateConfigArgs{MaxUnavailable: pulumi.Int(1)},
		NodeRepairConfig: &eks.NodeGroupNodeRepairConfigArgs{Enabled: pulumi.Bool(true)},
		Labels:           labels,
		Taints:           taints,
		Tags:             b.tags(b.name + "-" + name),
		// Pulumi gives its name, so that another can take its place while it is there. The number of nodes changes while
		// jobs run; an `up` that sets it back would end workers.
	}, b.with(wait, pulumi.IgnoreChanges([]string{"scalingConfig.desiredSize"})))
}

// template is what EKS launches: it adds image, type, role and security group itself, which a template must not have.
func (b *builder) template(name string, g *infra.EKSGroup) (*ec2.LaunchTemplate, error) {
	full := b.name + "-" + name
	var tags ec2.LaunchTemplateTagSpecificationArray
	for _, kind := range []string{"instance", "volume", "network-interface"} { // they cost, and have no tags of the group
		tags = append(tags, &ec2.LaunchTemplateTagSpecificationArgs{ResourceType: pulumi.String(kind), Tags: b.tags(full)})
	}
	return ec2.NewLaunchTemplate(b.Context, name, &ec2.LaunchTemplateArgs{
		Name: pulumi.String(b.s.Name(100, name)),
		BlockDeviceMappings: ec2.LaunchTemplateBlockDeviceMappingArray{&ec2.LaunchTemplateBlockDeviceMappingArgs{
			DeviceName: pulumi.String("/dev/xvda"),
			Ebs: &ec2.LaunchTemplateBlockDeviceMappingEbsArgs{
				VolumeType: pulumi.String("gp3"), Encrypted: pulumi.String("true"), DeleteOnTermination: pulumi.String("true"),
				VolumeSize: pulumi.Int(cmp.Or(g.DiskGB, 100)), // images with CUDA fill the 20 GiB that EKS gives
			},
		}},
		// One hop: nodes have their role, and pods do not.
		MetadataOptions: &ec2.LaunchTemplateMetadataOptionsArgs{
			HttpEndpoint: pulumi.String("enabled"), HttpTokens: pulumi.String("required"), HttpPutResponseHopLimit: pulumi.Int(1),
		},
		TagSpecifications: tags,
		Tags:              b.tags(full),
	}, b.with(pulumi.DeleteBeforeReplace(true)))
}
