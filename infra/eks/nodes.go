package eks

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/ec2"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/eks"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/iam"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// gpuLabel is the label that is "true" on nodes with GPUs. The device plugin selects nodes by it;
// no other component sets it.
const gpuLabel = "nvidia.com/gpu.present"

// spotKey is the key of a label and a taint of spot nodes, which the cloud may take back at any
// time: masters and parameter servers run elsewhere.
const spotKey = "elasticdl.org/spot"

// spot returns what workers must select and tolerate to run on spot nodes.
func spot() *infra.Spot {
	return &infra.Spot{
		NodeSelector: map[string]string{spotKey: "true"},
		Tolerations:  []job.Toleration{{Key: spotKey, Operator: "Equal", Value: "true", Effect: "NoSchedule"}},
	}
}

// addNodes creates the groups of nodes and the addons that come before and after them. The mount
// targets of the file system are deleted after the nodes.
func (p *parts) addNodes() error {
	role, attached, err := p.role("node", trusts("ec2.amazonaws.com"), "AmazonEKSWorkerNodePolicy",
		"AmazonEC2ContainerRegistryPullOnly", "AmazonEKS_CNI_Policy")
	if err != nil {
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
	wait := pulumi.Composite(after(first, attached, p.net.ways, p.mounted), quotas)
	var all []pulumi.Resource
	for _, g := range p.e.Groups() {
		group, err := p.group(role, g, wait)
		if err != nil {
			return err
		}
		all = append(all, group)
	}
	// The addons' pods tolerate no taint: they wait for nodes without taints.
	system := all[:1]
	more := []string{"coredns"}
	if p.e.GPUGroup != nil {
		// EKS repairs nodes with broken GPUs only if this addon reports them
		more = append(more, "eks-node-monitoring-agent")
	}
	for _, name := range more {
		addon, err := p.addon(name, eks.AddonArgs{}, system)
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
	return nil
}

// quotas returns the option that logs once, before the first group is created, against which quotas
// its nodes count.
func (p *parts) quotas() (pulumi.ResourceOption, error) {
	var once sync.Once
	hook, err := infra.NewHook(p.ctx, "quotas of the account", func(*pulumi.ResourceHookArgs) (err error) {
		once.Do(func() {
			for _, q := range p.e.Quotas() {
				err = errors.Join(err, p.ctx.Log.Warn(q.Note(p.e.Region), nil))
			}
		})
		return err
	})
	return infra.BeforeCreate(hook), err
}

// group creates the nodes of one kind.
func (p *parts) group(role *iam.Role, g settings.NamedGroup, wait pulumi.ResourceOption) (*eks.NodeGroup, error) {
	desired, ignore, err := p.live.desired(g, len(p.net.private))
	if err != nil {
		return nil, err
	}
	opts := []pulumi.ResourceOption{wait}
	if ignore {
		opts = append(opts, pulumi.IgnoreChanges([]string{"scalingConfig.desiredSize"}))
	}
	template, err := p.template(g)
	if err != nil {
		return nil, err
	}
	labels := pulumi.ToStringMap(g.Labels)
	var taints eks.NodeGroupTaintArray
	taint := func(key, value string) {
		taints = append(taints, &eks.NodeGroupTaintArgs{Key: pulumi.String(key),
			Value: pulumi.String(value), Effect: pulumi.String("NO_SCHEDULE")})
	}
	image, capacity := "AL2023_x86_64_STANDARD", "ON_DEMAND"
	if g.Spot {
		capacity = "SPOT"
	}
	switch {
	case g.Name == "gpu":
		image = "AL2023_x86_64_NVIDIA"
		labels[gpuLabel] = pulumi.String("true")
		// EKS sets no taint, and pods that need no GPU would fill the nodes
		taint("nvidia.com/gpu", "present")
	case g.Spot:
		labels[spotKey] = pulumi.String("true")
		taint(spotKey, "true")
	}
	return eks.NewNodeGroup(p.ctx, g.Name, &eks.NodeGroupArgs{
		ClusterName: p.cluster.Name, NodeRoleArn: role.Arn, SubnetIds: p.net.subnets(), Version: p.cluster.Version,
		AmiType:       pulumi.String(image),
		CapacityType:  pulumi.String(capacity),
		InstanceTypes: pulumi.ToStringArray(g.InstanceTypes),
		LaunchTemplate: &eks.NodeGroupLaunchTemplateArgs{Id: template.ID(),
			Version: pulumi.Sprintf("%d", template.LatestVersion)},
		ScalingConfig: &eks.NodeGroupScalingConfigArgs{
			MinSize: pulumi.Int(g.MinNodes), MaxSize: pulumi.Int(g.MaxNodes), DesiredSize: pulumi.Int(desired),
		},
		UpdateConfig:     &eks.NodeGroupUpdateConfigArgs{MaxUnavailable: pulumi.Int(1)},
		NodeRepairConfig: &eks.NodeGroupNodeRepairConfigArgs{Enabled: pulumi.Bool(true)},
		Labels:           labels,
		Taints:           taints,
		Tags:             p.tags(p.name + "-" + g.Name),
		// Pulumi chooses the name, so that a replacement can be created before the old group is
		// deleted.
	}, p.options(opts...))
}

// template creates the launch template of a group. EKS adds image, instance type, role and security
// group, which the template must not set.
func (p *parts) template(g settings.NamedGroup) (*ec2.LaunchTemplate, error) {
	full := p.name + "-" + g.Name
	opts := []pulumi.ResourceOption{pulumi.DeleteBeforeReplace(true)}
	// a new version of a template would replace every node of its group only to change a label
	if !p.e.LabelNodes {
		opts = append(opts, pulumi.IgnoreChanges([]string{"tagSpecifications"}))
	}
	var tags ec2.LaunchTemplateTagSpecificationArray
	// these are billed, and do not inherit the tags of the group
	for _, kind := range []string{"instance", "volume", "network-interface"} {
		tags = append(tags, &ec2.LaunchTemplateTagSpecificationArgs{ResourceType: pulumi.String(kind),
			Tags: p.tags(full)})
	}
	return ec2.NewLaunchTemplate(p.ctx, g.Name, &ec2.LaunchTemplateArgs{
		Name: pulumi.String(p.s.Name(100, g.Name)),
		BlockDeviceMappings: ec2.LaunchTemplateBlockDeviceMappingArray{&ec2.LaunchTemplateBlockDeviceMappingArgs{
			DeviceName: pulumi.String("/dev/xvda"),
			Ebs: &ec2.LaunchTemplateBlockDeviceMappingEbsArgs{
				VolumeType: pulumi.String("gp3"), Encrypted: pulumi.String("true"),
				DeleteOnTermination: pulumi.String("true"),
				// images with CUDA do not fit on the 20 GiB that EKS gives by default
				VolumeSize: pulumi.Int(cmp.Or(g.DiskGB, 100)),
			},
		}},
		// With one hop the metadata service answers nodes, but not pods: pods do not get the role
		// of the nodes.
		MetadataOptions: &ec2.LaunchTemplateMetadataOptionsArgs{
			HttpEndpoint: pulumi.String("enabled"), HttpTokens: pulumi.String("required"),
			HttpPutResponseHopLimit: pulumi.Int(1),
		},
		TagSpecifications: tags,
		Tags:              p.tags(full),
	}, p.options(opts...))
}
