package eks

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/eks"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/karpenter"
	"github.com/elasticdl/elasticdl/infra/settings"
)

// Placeholders in classes of nodes.
const (
	holeGroup    = "{security-group}"
	holeIdentity = "{identity-of-nodes}"
	holeKey      = "{key-of-disks}"
)

// autoPolicies lists Amazon's policies of the cluster's role in Auto Mode, besides the one of each
// cluster.
var autoPolicies = []string{"AmazonEKSComputePolicy", "AmazonEKSBlockStoragePolicy",
	"AmazonEKSLoadBalancingPolicy", "AmazonEKSNetworkingPolicy"}

// autoRole creates the role of the nodes of Auto Mode, before the cluster, which names it. EKS
// gives it access to the cluster, of another kind than that of the nodes of groups: a role has one
// kind.
func (p *parts) autoRole() error {
	return p.addNodeRole("auto-node", "AmazonEKSWorkerNodeMinimalPolicy", "AmazonEC2ContainerRegistryPullOnly")
}

// setAuto sets Auto Mode in the arguments of a cluster. EKS takes its three parts together. The
// built-in pool is for addons: they become healthy before the stack's own pools exist.
func (p *parts) setAuto(args *eks.ClusterArgs) {
	args.ComputeConfig = &eks.ClusterComputeConfigArgs{Enabled: pulumi.Bool(true),
		NodePools: pulumi.ToStringArray([]string{"system"}), NodeRoleArn: p.nodeRole.arn}
	args.KubernetesNetworkConfig = &eks.ClusterKubernetesNetworkConfigArgs{
		ElasticLoadBalancing: &eks.ClusterKubernetesNetworkConfigElasticLoadBalancingArgs{
			Enabled: pulumi.Bool(true)}}
	args.StorageConfig = &eks.ClusterStorageConfigArgs{
		BlockStorage: &eks.ClusterStorageConfigBlockStorageArgs{Enabled: pulumi.Bool(true)}}
}

// mayTag returns the policy that lets Auto Mode give the nodes the stack's tags, which Amazon's own
// policies do not.
func (p *parts) mayTag() string {
	var made []string
	for _, kind := range []string{"fleet", "instance", "volume", "network-interface", "launch-template",
		"spot-instances-request"} {
		made = append(made, fmt.Sprintf("arn:%s:ec2:%s:*:%s/*", p.partition.Partition, p.e.Region, kind))
	}
	own := map[string]string{"aws:RequestTag/eks:eks-cluster-name": "${aws:PrincipalTag/eks:eks-cluster-name}"}
	return document(statement{Effect: "Allow",
		Action: []string{"ec2:CreateNetworkInterface"}, Resource: []string{
			fmt.Sprintf("arn:%s:ec2:%s:*:network-interface/*", p.partition.Partition, p.e.Region)},
		Condition: map[string]any{"StringEquals": own,
			"StringLike": map[string]string{"aws:RequestTag/eks:kubernetes-cni-node-name": "*"}},
	}, statement{Effect: "Allow",
		Action: []string{"ec2:CreateFleet", "ec2:RunInstances", "ec2:CreateLaunchTemplate"}, Resource: made,
		Condition: map[string]any{
			"StringEquals": own,
			"StringLike": map[string]string{"aws:RequestTag/eks:kubernetes-node-class-name": "*",
				"aws:RequestTag/eks:kubernetes-node-pool-name": "*"},
		}})
}

// addAuto adds what a cluster in Auto Mode needs besides: the driver of EFS, and the pools.
func (p *parts) addAuto() error {
	if p.e.EFS != nil {
		driver, err := p.driver(p.mounted)
		if err != nil {
			return err
		}
		p.ready = append(p.ready, driver)
	}
	if p.live.version == "" || p.live.auto {
		// a cluster that had groups has an addon with this object, until the update that removes it
		p.makers = []infra.Object{{Name: "network-policies", Object: policyController()}}
	}
	return p.addPools(karpenter.Auto, p.nodeRole.name)
}

// addPools adds the class and the NodePool of each pool. The identity is the name of the nodes'
// role or instance profile.
func (p *parts) addPools(kind karpenter.Kind, identity pulumi.StringInput) error {
	quotas, err := p.quotas()
	if err != nil {
		return err
	}
	for _, g := range p.e.NodePools() {
		_, subnets, err := p.placesFor(g)
		if err != nil {
			return err
		}
		holes := map[string]pulumi.StringInput{
			holeGroup: p.cluster.VpcConfig.ClusterSecurityGroupId().Elem(), holeIdentity: identity}
		class := karpenter.Class{Name: g.Name, Kind: kind, Identity: holeIdentity, Group: holeGroup, DiskGB: g.DiskGB,
			Tags: p.nodeTags(g), Reservation: g.Reservation, Image: "al2023@latest"}
		if key := p.key(); key != nil {
			class.KMSKey, holes[holeKey] = holeKey, key
		}
		for i, id := range subnets {
			hole := fmt.Sprintf("{subnet-%d}", i)
			class.Subnets, holes[hole] = append(class.Subnets, hole), id
		}
		made := infra.Object{Name: "class-" + g.Name, Object: karpenter.NodeClass(class), Holes: holes}
		if !p.e.LabelNodes {
			// another tag would replace the nodes
			made.Kept = []string{"spec.tags"}
		}
		p.makers = append(p.makers, made, infra.Object{Name: "pool-" + g.Name,
			Object: karpenter.NodePool(poolOf(g, p.e.Nodes, kind)), Options: []pulumi.ResourceOption{quotas},
			Fixed: []string{"spec.template.spec.nodeClassRef.group", "spec.template.spec.nodeClassRef.kind"}})
	}
	return nil
}

// nodeTags returns the tags of instances, disks and network interfaces of a pool.
func (p *parts) nodeTags(g settings.NamedGroup) map[string]string {
	tags := map[string]string{"Name": p.name + "-" + g.Name}
	maps.Copy(tags, p.s.Labels)
	return tags
}

// NodePools returns the pools of valid settings, with a kind of class of nodes.
func NodePools(e *settings.EKS, kind karpenter.Kind) (all []karpenter.Pool) {
	for _, g := range e.NodePools() {
		all = append(all, poolOf(g, e.Nodes, kind))
	}
	return all
}

// poolOf returns a pool of valid settings.
func poolOf(g settings.NamedGroup, nodes string, kind karpenter.Kind) karpenter.Pool {
	idle, _ := time.ParseDuration(g.IdleAfter) // settings have checked it
	of := karpenter.Pool{
		Name: g.Name, Class: kind, Types: g.InstanceTypes, Arch: "amd64", Zones: g.Zones,
		Capacity: []string{"on-demand"}, Limit: g.MaxNodes, CPUs: g.MaxCPUs(), Labels: labelsOf(g),
		IdleAfter: max(idle, time.Second), Core: g.Name == settings.CorePool,
	}
	if g.Arm() {
		of.Arch = "arm64"
	}
	switch {
	case g.Reservation != "":
		of.Capacity = []string{"reserved"}
	case g.Spot && g.OnDemand:
		of.Capacity = []string{"spot", "on-demand"}
	case g.Spot:
		of.Capacity = []string{"spot"}
	}
	for _, t := range taintsOf(g, nodes) {
		of.Taints = append(of.Taints, karpenter.Taint(t))
	}
	if kind == karpenter.Auto {
		of.Expire = karpenter.AutoExpire
	}
	return of
}

// The version of Karpenter that the stack installs, and where its charts are.
const (
	karpenterVersion = "1.14.1"
	karpenterCharts  = "oci://public.ecr.aws/karpenter/"
	karpenterAccount = "karpenter" // its ServiceAccount, in kube-system
)

// addKarpenter installs Karpenter on the nodes of the system group, with the rights to make nodes
// for this cluster only, and a queue of Amazon's notices: spot nodes that are about to be taken
// back are drained first.
func (p *parts) addKarpenter(system []pulumi.Resource) error {
	queue, err := p.addNotices()
	if err != nil {
		return err
	}
	profile, err := p.register("aws:iam/instanceProfile:InstanceProfile", "node", pulumi.Map{
		"name": pulumi.String(p.s.Name(64, "profile")), "role": p.nodeRole.name, "tags": p.tags(p.name + "-node"),
	}, pulumi.DeleteBeforeReplace(true))
	if err != nil {
		return err
	}
	role, err := p.newRole("karpenter", trusts(pods))
	if err != nil {
		return err
	}
	may, err := p.register("aws:iam/rolePolicy:RolePolicy", "karpenter", pulumi.Map{"role": role.Name,
		"policy": pulumi.All(queue.Arn, p.nodeRole.arn, orNone(p.key())).ApplyT(func(arns []any) string {
			all := p.launches(arns[0].(string), arns[1].(string))
			return document(append(all, diskRights(arns[2].(string))...)...)
		}).(pulumi.StringOutput)})
	if err != nil {
		return err
	}
	is, err := eks.NewPodIdentityAssociation(p.ctx, p.Child("karpenter"), &eks.PodIdentityAssociationArgs{
		ClusterName: p.cluster.Name, Namespace: pulumi.String("kube-system"),
		ServiceAccount: pulumi.String(karpenterAccount), RoleArn: role.Arn, Tags: p.tags(p.name),
	}, p.options(after([]pulumi.Resource{may}, system)))
	if err != nil {
		return err
	}
	p.ready = append(p.ready, is)
	replicas := 1
	if p.e.SystemGroup.MinNodes > 1 {
		replicas = 2 // the chart spreads them over nodes
	}
	p.charts = []infra.Chart{
		{Name: "karpenter-crd", Chart: karpenterCharts + "karpenter-crd", Version: karpenterVersion,
			Namespace: "kube-system"},
		{Name: "karpenter", Chart: karpenterCharts + "karpenter", Version: karpenterVersion, Namespace: "kube-system",
			SkipDefinitions: true, Values: map[string]any{
				"replicas":       replicas,
				"serviceAccount": map[string]any{"name": karpenterAccount},
				"settings":       map[string]any{"clusterName": p.name, "interruptionQueue": p.s.Name(80, "notices")},
			}},
	}
	return p.addPools(karpenter.EC2, profile.ID())
}

// addNotices creates the queue of what Amazon says about instances, in advance.
func (p *parts) addNotices() (*untyped, error) {
	name := p.s.Name(64, "notices")
	inputs := encrypted(pulumi.Map{
		"name": pulumi.String(p.s.Name(80, "notices")), "messageRetentionSeconds": pulumi.Int(300),
		"tags": p.tags(p.name + "-notices"),
	}, "kmsMasterKeyId", p.key())
	if p.key() == nil {
		inputs["sqsManagedSseEnabled"] = pulumi.Bool(true) // Amazon refuses both
	}
	queue, err := p.register("aws:sqs/queue:Queue", "notices", inputs, pulumi.DeleteBeforeReplace(true))
	if err != nil {
		return nil, err
	}
	pattern, err := json.Marshal(map[string]any{"source": []string{"aws.ec2", "aws.health"}, "detail-type": []string{
		"EC2 Spot Instance Interruption Warning", "EC2 Instance Rebalance Recommendation",
		"EC2 Instance State-change Notification", "EC2 Capacity Reservation Instance Interruption Warning",
		"AWS Health Event"}})
	if err != nil {
		return nil, err
	}
	rule, err := p.register("aws:cloudwatch/eventRule:EventRule", "notices", pulumi.Map{
		"name": pulumi.String(name), "eventPattern": pulumi.String(string(pattern)), "tags": p.tags(p.name +
			"-notices"),
	}, pulumi.DeleteBeforeReplace(true))
	if err != nil {
		return nil, err
	}
	if _, err := p.register("aws:sqs/queuePolicy:QueuePolicy", "notices", pulumi.Map{"queueUrl": queue.ID(),
		"policy": pulumi.All(queue.Arn, rule.Arn).ApplyT(func(arns []any) string {
			return document(statement{Effect: "Allow", Principal: map[string]string{"Service": "events.amazonaws.com"},
				Action: []string{"sqs:SendMessage"}, Resource: []string{arns[0].(string)},
				// no rule of others sends notices
				Condition: map[string]any{"ArnEquals": map[string]any{"aws:SourceArn": arns[1]}}})
		}).(pulumi.StringOutput)}); err != nil {
		return nil, err
	}
	_, err = p.register("aws:cloudwatch/eventTarget:EventTarget", "notices", pulumi.Map{
		"rule": rule.ID(), "arn": queue.Arn,
	})
	return queue, err
}

// launches returns the rights of Karpenter: to look, and to make, tag and end instances and launch
// templates with the tag of this cluster.
//
// Source: https://karpenter.sh/docs/reference/cloudformation/, of version 1.
func (p *parts) launches(queue, nodeRole string) []statement {
	arn := func(service, account, rest string) string {
		return fmt.Sprintf("arn:%s:%s:%s:%s:%s", p.partition.Partition, service, p.e.Region, account, rest)
	}
	made := []string{"fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request"}
	ours := func(kinds ...string) (all []string) {
		for _, kind := range kinds {
			all = append(all, arn("ec2", "*", kind+"/*"))
		}
		return all
	}
	type equals = map[string]any
	owned := "kubernetes.io/cluster/" + p.name
	requested := equals{"aws:RequestTag/" + owned: "owned", "aws:RequestTag/eks:eks-cluster-name": p.name}
	has := map[string]any{"StringEquals": equals{"aws:ResourceTag/" + owned: "owned"}}
	allow := func(condition any, actions []string, resources ...string) statement {
		return statement{Effect: "Allow", Action: actions, Resource: resources, Condition: condition}
	}
	starts := []string{"ec2:RunInstances", "ec2:CreateFleet"}
	return []statement{
		allow(map[string]any{"StringEquals": equals{"aws:RequestedRegion": p.e.Region}}, []string{
			"ec2:DescribeCapacityReservations", "ec2:DescribeImages", "ec2:DescribeInstanceStatus",
			"ec2:DescribeInstanceTypeOfferings", "ec2:DescribeInstanceTypes", "ec2:DescribeInstances",
			"ec2:DescribeLaunchTemplates", "ec2:DescribeSecurityGroups", "ec2:DescribeSpotPriceHistory",
			"ec2:DescribeSubnets"}, "*"),
		allow(nil, []string{"pricing:GetProducts"}, "*"),
		allow(nil, []string{"ssm:GetParameter"}, arn("ssm", "", "parameter/aws/service/*")),
		allow(nil, []string{"eks:DescribeCluster"}, arn("eks", p.account, "cluster/"+p.name)),
		allow(nil, []string{"iam:GetInstanceProfile", "iam:ListInstanceProfiles"},
			fmt.Sprintf("arn:%s:iam::%s:instance-profile/*", p.partition.Partition, p.account)),
		allow(nil, starts, arn("ec2", "", "image/*"), arn("ec2", "", "snapshot/*"), arn("ec2", "*", "security-group/*"),
			arn("ec2", "*", "subnet/*"), arn("ec2", "*", "capacity-reservation/*")),
		allow(has, starts, ours("launch-template")...),
		allow(map[string]any{"StringEquals": requested,
			"StringLike": equals{"aws:RequestTag/karpenter.sh/nodepool": "*"}},
			append(slices.Clone(starts), "ec2:CreateLaunchTemplate"), ours(made...)...),
		allow(map[string]any{"StringEquals": equals{"aws:RequestTag/" + owned: "owned",
			"ec2:CreateAction": []string{"RunInstances", "CreateFleet", "CreateLaunchTemplate"}}},
			[]string{"ec2:CreateTags"}, ours(made...)...),
		allow(map[string]any{"StringEquals": equals{"aws:ResourceTag/" + owned: "owned"},
			"ForAllValues:StringEquals": equals{"aws:TagKeys": []string{"eks:eks-cluster-name",
				"karpenter.sh/nodeclaim", "Name"}}},
			[]string{"ec2:CreateTags"}, ours("instance")...),
		allow(has, []string{"ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"}, ours("instance",
			"launch-template")...),
		allow(map[string]any{"StringEquals": equals{"iam:PassedToService": "ec2.amazonaws.com"}},
			[]string{"iam:PassRole"}, nodeRole),
		// an account that never had spot instances has no such role
		allow(map[string]any{"StringEquals": equals{"iam:AWSServiceName": "spot.amazonaws.com"}},
			[]string{"iam:CreateServiceLinkedRole"},
			fmt.Sprintf("arn:%s:iam::%s:role/aws-service-role/spot.amazonaws.com/*",
				p.partition.Partition, p.account)),
		allow(nil, []string{"sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"}, queue),
	}
}

// policyController returns the setting by which nodes of Auto Mode enforce NetworkPolicies.
func policyController() *core.ConfigMap {
	return &core.ConfigMap{
		TypeMeta:   meta.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: meta.ObjectMeta{Name: "amazon-vpc-cni", Namespace: "kube-system"},
		Data:       map[string]string{"enable-network-policy-controller": "true"},
	}
}
