package eks

import (
	"cmp"
	"errors"
	"sync"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/ec2"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/eks"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/iam"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
)

// gpuLabel is "true" on nodes with GPUs. The device plugin selects them by it, and nobody else sets it.
const gpuLabel = "nvidia.com/gpu.present"

// spotKey is a label and a taint of nodes that may be taken back at any time: masters and parameter servers are elsewhere.
const spotKey = "elasticdl.org/spot"

// nodes makes the groups and the addons around them; the files' mount targets go after the nodes.
func (b *builder) nodes(c *eks.Cluster, n *network, mounts []pulumi.Resource) ([]pulumi.Resource, error) {
	role, attached, err := b.role("node", trusts("ec2.amazonaws.com"), "AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly", "AmazonEKS_CNI_Policy")
	if err != nil {
		return nil, err
	}
	quotas, err := b.quotas()
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
	wait := pulumi.Composite(after(first, attached, n.ways, mounts), quotas)
	var all []pulumi.Resource
	for _, g := range b.eks.Groups() {
		group, err := b.group(c, n, role, g, wait)
		if err != nil {
			return nil, err
		}
		all = append(all, group)
	}
	// Their pods tolerate no taint: they wait for nodes that have none.
	system := all[:1]
	more := []string{"coredns"}
	if b.eks.GPUGroup != nil {
		more = append(more, "eks-node-monitoring-agent") // EKS repairs nodes with broken GPUs only if this reports them
	}
	for _, name := range more {
		addon, err := b.addon(c, name, eks.AddonArgs{}, system)
		if err != nil {
			return nil, err
		}
		all = append(all, addon)
	}
	if b.eks.EFS != nil {
		driver, err := b.driver(c, system)
		if err != nil {
			return nil, err
		}
		all = append(all, driver)
	}
	return append(first, all...), nil
}

// quotas returns the option that tells once, before the first group is made, which quotas its nodes count against.
func (b *builder) quotas() (pulumi.ResourceOption, error) {
	var once sync.Once
	hook, err := infra.NewHook(b.Context, "quotas of the account", func(*pulumi.ResourceHookArgs) (err error) {
		once.Do(func() {
			for _, q := range b.eks.Quotas() {
				err = errors.Join(err, b.Log.Warn(q.Note(b.eks.Region), nil))
			}
		})
		return err
	})
	return infra.BeforeCreate(hook), err
}

// group makes the nodes of one kind.
func (b *builder) group(c *eks.Cluster, n *network, role *iam.Role, g settings.NamedGroup, wait pulumi.ResourceOption) (*eks.NodeGroup, error) {
	desired, ignore, err := b.live.desired(g, len(n.private))
	if err != nil {
		return nil, err
	}
	opts := []pulumi.ResourceOption{wait}
	if ignore {
		opts = append(opts, pulumi.IgnoreChanges([]string{"scalingConfig.desiredSize"}))
	}
	template, err := b.template(g)
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
	case g.Name == "gpu":
		image = "AL2023_x86_64_NVIDIA"
		labels[gpuLabel] = pulumi.String("true")
		taint("nvidia.com/gpu", "present") // EKS sets none, and pods without need for GPUs would fill the nodes
	case g.Spot:
		labels[spotKey] = pulumi.String("true")
		taint(spotKey, "true")
	}
	return eks.NewNodeGroup(b.Context, g.Name, &eks.NodeGroupArgs{
		ClusterName: c.Name, NodeRoleArn: role.Arn, SubnetIds: n.subnets(), Version: c.Version,
		AmiType:        pulumi.String(image),
		CapacityType:   pulumi.String(capacity),
		InstanceTypes:  pulumi.ToStringArray(g.InstanceTypes),
		LaunchTemplate: &eks.NodeGroupLaunchTemplateArgs{Id: template.ID(), Version: pulumi.Sprintf("%d", template.LatestVersion)},
		ScalingConfig: &eks.NodeGroupScalingConfigArgs{
			MinSize: pulumi.Int(g.MinNodes), MaxSize: pulumi.Int(g.MaxNodes), DesiredSize: pulumi.Int(desired),
		},
		UpdateConfig:     &eks.NodeGroupUpdateConfigArgs{MaxUnavailable: pulumi.Int(1)},
		NodeRepairConfig: &eks.NodeGroupNodeRepairConfigArgs{Enabled: pulumi.Bool(true)},
		Labels:           labels,
		Taints:           taints,
		Tags:             b.tags(b.name + "-" + g.Name),
		// Pulumi chooses the name, so that a successor can be made before this is deleted.
	}, b.with(opts...))
}

// template makes the launch template of a group. EKS adds image, type, role and security group, which a template must not have.
func (b *builder) template(g settings.NamedGroup) (*ec2.LaunchTemplate, error) {
	full := b.name + "-" + g.Name
	opts := []pulumi.ResourceOption{pulumi.DeleteBeforeReplace(true)}
	if !b.eks.LabelNodes { // a new version of a template replaces every node of its group, for a label on a bill
		opts = append(opts, pulumi.IgnoreChanges([]string{"tagSpecifications"}))
	}
	var tags ec2.LaunchTemplateTagSpecificationArray
	for _, kind := range []string{"instance", "volume", "network-interface"} { // they cost, and have no tags of the group
		tags = append(tags, &ec2.LaunchTemplateTagSpecificationArgs{ResourceType: pulumi.String(kind), Tags: b.tags(full)})
	}
	return ec2.NewLaunchTemplate(b.Context, g.Name, &ec2.LaunchTemplateArgs{
		Name: pulumi.String(b.s.Name(100, g.Name)),
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
	}, b.with(opts...))
}
