package eks

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/ecr"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/efs"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/iam"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/vpc"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
)

// given returns the parts that exist already, a VPC before what must be in it.
func (p *parts) given() []infra.Part {
	all := []infra.Part{{Path: "eks.vpc.id", Name: p.e.VPC.ID, Find: p.lookUpVPC}}
	for i, id := range p.e.VPC.PrivateSubnets {
		all = append(all, infra.Part{Path: fmt.Sprintf("eks.vpc.privateSubnets[%d]", i), Name: id,
			Find: func(expect infra.Expect) error { return p.lookUpSubnet(id, true, expect) }})
	}
	for i, id := range p.e.VPC.PublicSubnets {
		all = append(all, infra.Part{Path: fmt.Sprintf("eks.vpc.publicSubnets[%d]", i), Name: id,
			Find: func(expect infra.Expect) error { return p.lookUpSubnet(id, false, expect) }})
	}
	all = append(all, infra.Part{Path: "eks.kmsKey", Name: p.e.KMSKey, Find: p.lookUpKey})
	if f := p.e.EFS; f != nil {
		all = append(all, infra.Part{Path: "eks.efs.id", Name: f.ID, Find: p.lookUpFiles})
	}
	if b := p.e.Bucket; b != nil {
		all = append(all, infra.Part{Path: "eks.bucket.name", Name: b.Name, Find: p.lookUpBucket})
	}
	all = append(all, infra.Part{Path: "eks.nodeRole", Name: p.e.NodeRole, Find: p.lookUpNodeRole})
	if e := p.e; e.Registry != "" {
		for _, image := range p.images() {
			all = append(all, infra.Part{Path: "eks.registry", Name: e.Registry + "/" + image,
				Find: func(expect infra.Expect) error { return p.lookUpRegistry(image, expect) }})
		}
	}
	return all
}

// lookUpVPC expects that files can be mounted in the VPC.
func (p *parts) lookUpVPC(expect infra.Expect) error {
	var vpc struct {
		EnableDNSSupport   bool `pulumi:"enableDnsSupport"`
		EnableDNSHostnames bool `pulumi:"enableDnsHostnames"`
	}
	err := p.invoke("aws:ec2/getVpc:getVpc", p.e.VPC.ID, &vpc)
	expect(err != nil || vpc.EnableDNSSupport && vpc.EnableDNSHostnames,
		"it does not resolve names: its enableDnsSupport and enableDnsHostnames must be true")
	return err
}

// lookUpSubnet expects a subnet of the VPC, and of private ones, which get nodes, one in a zone.
func (p *parts) lookUpSubnet(id string, private bool, expect infra.Expect) error {
	s, err := p.subnetOf(id)
	if err != nil {
		return err
	}
	expect(s.VPC == p.e.VPC.ID, "it is in %s, not in %s", s.VPC, p.e.VPC.ID)
	if !private {
		return nil
	}
	zone := s.AvailabilityZone
	if i := slices.IndexFunc(p.existing, func(o subnet) bool { return o.zone == zone }); i >= 0 {
		expect(false, "it is in zone %s, as %s is: one per zone is expected", zone, p.existing[i].id)
	}
	p.existing = append(p.existing, subnet{zone, pulumi.String(id)})
	return nil
}

// lookUpFiles expects an encrypted file system with a mount target in each zone of the nodes, and
// keeps the security groups that must let the nodes in.
func (p *parts) lookUpFiles(expect infra.Expect) error {
	id := p.e.EFS.ID
	fs, err := efs.LookupFileSystem(p.ctx, &efs.LookupFileSystemArgs{FileSystemId: &id}, p.invokes...)
	if err != nil {
		return fmt.Errorf("%w (elasticfilesystem:DescribeFileSystems)", err)
	}
	expect(fs.Encrypted, "it is not encrypted, which cannot change: copy the files to one that is")
	targets, err := p.mountTargets(id)
	if err != nil {
		return fmt.Errorf("%w (ec2:DescribeNetworkInterfaces)", err)
	}
	var zones, without []string
	for _, t := range targets {
		zones = append(zones, t.AvailabilityZone)
		if len(t.SecurityGroups) > 0 && !slices.Contains(p.doors, t.SecurityGroups[0]) {
			p.doors = append(p.doors, t.SecurityGroups[0])
		}
	}
	for _, s := range p.existing {
		if !slices.Contains(zones, s.zone) {
			without = append(without, s.zone)
		}
	}
	expect(len(without) == 0, "it has no mount target of %s in %s, where nodes are: make one, aws efs "+
		"create-mount-target --file-system-id %s --subnet-id SUBNET, or remove the subnet there", p.e.VPC.ID,
		strings.Join(without, ", "), id)
	return nil
}

// mount is the network interface of a mount target.
type mount struct {
	AvailabilityZone string   `pulumi:"availabilityZone"`
	SecurityGroups   []string `pulumi:"securityGroups"`
}

// mountTargets returns the mount targets of a file system in the VPC. Amazon's provider lists no
// mount targets, but the network interface of each names its file system.
func (p *parts) mountTargets(files string) (all []mount, err error) {
	var found struct {
		IDs []string `pulumi:"ids"`
	}
	filter := func(name, value string) map[string]any { return map[string]any{"name": name, "values": []any{value}} }
	err = p.ask("aws:ec2/getNetworkInterfaces:getNetworkInterfaces", map[string]any{"filters": []any{
		filter("vpc-id", p.e.VPC.ID), filter("description", "EFS mount target for "+files+" (*"),
	}}, &found)
	if err != nil {
		return nil, err
	}
	for _, id := range found.IDs {
		var m mount
		if err := p.invoke("aws:ec2/getNetworkInterface:getNetworkInterface", id, &m); err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
		all = append(all, m)
	}
	return all, nil
}

// openMounts lets the nodes reach the mount targets of a file system that exists already, by a rule
// of the stack's own in each of their security groups.
func (p *parts) openMounts() error {
	for _, group := range p.doors {
		if err := p.openNFS(group, pulumi.String(group)); err != nil {
			return err
		}
	}
	return nil
}

// openNFS lets the nodes reach mount targets that have a security group.
func (p *parts) openNFS(name string, group pulumi.StringInput) error {
	rule, err := vpc.NewSecurityGroupIngressRule(p.ctx, p.Child(name), &vpc.SecurityGroupIngressRuleArgs{
		SecurityGroupId: group, ReferencedSecurityGroupId: p.cluster.VpcConfig.ClusterSecurityGroupId(),
		IpProtocol: pulumi.String("tcp"), FromPort: pulumi.Int(nfs), ToPort: pulumi.Int(nfs),
		Tags: p.tags(p.name + "-efs"),
	}, p.options())
	p.mounted = append(p.mounted, rule)
	return err
}

// lookUpBucket expects a bucket in the region of the stack, where its objects are read without a
// price for traffic.
func (p *parts) lookUpBucket(expect infra.Expect) error {
	var is struct {
		ARN    string `pulumi:"arn"`
		Region string `pulumi:"region"`
	}
	err := p.ask("aws:s3/getBucket:getBucket", map[string]any{"bucket": p.e.Bucket.Name}, &is)
	if err != nil {
		return fmt.Errorf("%w (s3:ListBucket)", err)
	}
	expect(is.Region == p.e.Region, "it is in %s: expected a bucket in %s, where the nodes are", is.Region, p.e.Region)
	p.found = is.ARN
	return nil
}

// lookUpRegistry expects a repository to which images can be pushed again under the tag that their
// source has. The nodes may pull from all repositories of the account.
func (p *parts) lookUpRegistry(image string, expect infra.Expect) error {
	name := p.e.Registry + "/" + image
	is, err := ecr.LookupRepository(p.ctx, &ecr.LookupRepositoryArgs{Name: name}, p.invokes...)
	if err != nil {
		return fmt.Errorf("%w (ecr:DescribeRepositories); if there is none: aws ecr create-repository --region %s "+
			"--repository-name %s", err, p.e.Region, name)
	}
	expect(is.ImageTagMutability != "IMMUTABLE" || p.s.Image == nil, "a tag of it is pushed only once: aws ecr "+
		"put-image-tag-mutability --region %s --repository-name %s --image-tag-mutability MUTABLE", p.e.Region, name)
	p.foundRegistry = pulumi.String(strings.TrimSuffix(is.RepositoryUrl, "/"+image))
	return nil
}

// nodesNeed lists an action of each policy that nodes need; where there are any, one that is
// allowed for all resources or none. Nodes of Auto Mode need the first two.
var nodesNeed = []struct{ action, policy string }{
	{"ecr:GetAuthorizationToken", "AmazonEC2ContainerRegistryPullOnly"},
	{"eks-auth:AssumeRoleForPodIdentity", "AmazonEKSWorkerNodeMinimalPolicy"},
	{"ec2:DescribeInstances", "AmazonEKSWorkerNodePolicy"},
	{"ec2:DescribeNetworkInterfaces", "AmazonEKS_CNI_Policy"},
}

// lookUpNodeRole expects a role that instances may assume, with the rights of nodes.
func (p *parts) lookUpNodeRole(expect infra.Expect) error {
	name := path.Base(p.e.NodeRole)
	role, err := iam.LookupRole(p.ctx, &iam.LookupRoleArgs{Name: name}, p.invokes...)
	if err != nil {
		return fmt.Errorf("%w (iam:GetRole)", err)
	}
	expect(role.Arn == p.e.NodeRole, "the account has %s: expected that ARN", role.Arn)
	expect(strings.Contains(role.AssumeRolePolicy, `"ec2.amazonaws.com`), "instances may not assume it: its trust "+
		"policy has to name the service ec2.amazonaws.com")
	need := nodesNeed
	if p.e.Nodes == settings.NodesAuto {
		need = need[:2]
	}
	var actions []string
	for _, n := range need {
		actions = append(actions, n.action)
	}
	is, err := iam.LookupPrincipalPolicySimulation(p.ctx, &iam.LookupPrincipalPolicySimulationArgs{
		PolicySourceArn: p.e.NodeRole, ActionNames: actions}, p.invokes...)
	if err != nil {
		return fmt.Errorf("%w (iam:SimulatePrincipalPolicy)", err)
	}
	for _, n := range need {
		may := slices.ContainsFunc(is.Results, func(r iam.GetPrincipalPolicySimulationResult) bool {
			return r.ActionName == n.action && r.Allowed
		})
		expect(may, "it may not %s: aws iam attach-role-policy --role-name %s --policy-arn "+
			"arn:%s:iam::aws:policy/%s", n.action, name, p.partition.Partition, n.policy)
	}
	return nil
}
