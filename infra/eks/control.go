package eks

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/eks"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
)

// controlPlane makes the cluster without nodes.
func (b *builder) controlPlane(n *network) (*eks.Cluster, error) {
	role, attached, err := b.role("cluster", trusts("eks.amazonaws.com"), "AmazonEKSClusterPolicy")
	if err != nil {
		return nil, err
	}
	// Amazon makes this log group if it is not there, for ever, and leaves it when the cluster goes.
	logs, err := b.register("aws:cloudwatch/logGroup:LogGroup", "cluster", pulumi.Map{
		"name":            pulumi.String("/aws/eks/" + b.name + "/cluster"),
		"retentionInDays": pulumi.Int(b.eks.LogRetentionDays),
		"tags":            b.tags(b.name),
	}, pulumi.DeleteBeforeReplace(true))
	if err != nil {
		return nil, err
	}
	public := &eks.ClusterVpcConfigArgs{
		SubnetIds: append(n.subnets(), n.public...),
		// Nodes reach the API within the VPC, so the addresses that may reach it from outside need not have the NAT's.
		EndpointPrivateAccess: pulumi.Bool(true),
		EndpointPublicAccess:  pulumi.Bool(b.eks.PublicAccess),
	}
	if b.eks.PublicAccess {
		var cidrs pulumi.StringArray
		for _, n := range b.eks.AuthorizedNetworks {
			cidrs = append(cidrs, pulumi.String(n.CIDR))
		}
		public.PublicAccessCidrs = cidrs
	}
	supported, err := infra.NewHook(b.Context, "support of Kubernetes by Amazon", func(*pulumi.ResourceHookArgs) error {
		if b.eks.Unsupported != "" {
			return errors.New(b.eks.Unsupported)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return eks.NewCluster(b.Context, "cluster", &eks.ClusterArgs{
		Name:          pulumi.String(b.name),
		RoleArn:       role.Arn,
		Version:       pulumi.String(b.eks.Version),
		UpgradePolicy: &eks.ClusterUpgradePolicyArgs{SupportType: pulumi.String(cmp.Or(b.eks.SupportType, "STANDARD"))},
		VpcConfig:     public,
		AccessConfig: &eks.ClusterAccessConfigArgs{
			AuthenticationMode: pulumi.String("API"),
			// Not the one who happens to create it: access has entries of its own, here and not in Amazon's memory.
			BootstrapClusterCreatorAdminPermissions: pulumi.Bool(false),
		},
		BootstrapSelfManagedAddons: pulumi.Bool(false), // ours are addons
		EnabledClusterLogTypes:     pulumi.ToStringArray([]string{"api", "audit", "authenticator"}),
		Tags:                       b.tags(b.name),
	}, b.with(
		// Without its policy a cluster cannot delete what it made in the VPC.
		after(attached, []pulumi.Resource{logs}), infra.BeforeCreate(supported),
		pulumi.DeleteBeforeReplace(true), // the name is taken
		// EKS refuses subnets of other zones than those with which the cluster was made, and needs none: nodes may be in any
		// subnet of the VPC.
		pulumi.IgnoreChanges([]string{"accessConfig.bootstrapClusterCreatorAdminPermissions", "bootstrapSelfManagedAddons", "vpcConfig.subnetIds"}),
	))
}

// access lets the administrators in: those of the settings, or else who makes the stack. Entries for nodes are EKS's.
func (b *builder) access(c *eks.Cluster) (ready []pulumi.Resource, err error) {
	if len(b.eks.Admins) == 0 {
		return b.admin(c, nil, "creator", b.caller, pulumi.IgnoreChanges([]string{"principalArn"})) // who runs it later does not become it
	}
	if !slices.Contains(b.eks.Admins, b.caller) {
		b.Log.Warn("eks.admins has no "+b.caller+", who runs this: Kubernetes will refuse it", nil)
	}
	for _, arn := range b.eks.Admins {
		_, who, _ := strings.Cut(arn, "::") // "123456789012:role/x"; a "::" would end the name of a resource
		var opts []pulumi.ResourceOption
		if arn == b.caller {
			// Who made the stack keeps the entry, of which there may be only one, when a list that names it comes later.
			opts = append(opts, pulumi.Aliases([]pulumi.Alias{{Name: pulumi.String("creator")}}))
		}
		if ready, err = b.admin(c, ready, "admin-"+who, arn, opts...); err != nil {
			return nil, err
		}
	}
	return ready, nil
}

func (b *builder) admin(c *eks.Cluster, ready []pulumi.Resource, name, arn string, opts ...pulumi.ResourceOption) ([]pulumi.Resource, error) {
	entry, err := eks.NewAccessEntry(b.Context, name, &eks.AccessEntryArgs{
		ClusterName: c.Name, PrincipalArn: pulumi.String(arn), Type: pulumi.String("STANDARD"), Tags: b.tags(b.name),
	}, b.with(opts...))
	if err != nil {
		return nil, err
	}
	may, err := eks.NewAccessPolicyAssociation(b.Context, name, &eks.AccessPolicyAssociationArgs{
		ClusterName: c.Name, PrincipalArn: entry.PrincipalArn,
		PolicyArn:   pulumi.String("arn:" + b.partition.Partition + ":eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"),
		AccessScope: &eks.AccessPolicyAssociationAccessScopeArgs{Type: pulumi.String("cluster")},
	}, b.with(opts...))
	return append(ready, may), err
}

// addon makes one of Amazon's, in the version that EKS has for the cluster's when it is made.
func (b *builder) addon(c *eks.Cluster, name string, args eks.AddonArgs, wait ...[]pulumi.Resource) (pulumi.Resource, error) {
	args.ClusterName = c.Name
	args.AddonName = pulumi.String(name)
	args.ResolveConflictsOnCreate = pulumi.String("OVERWRITE")
	args.ResolveConflictsOnUpdate = pulumi.String("OVERWRITE")
	args.Tags = b.tags(b.name)
	return eks.NewAddon(b.Context, name, &args, b.with(after(wait...), pulumi.IgnoreChanges([]string{"addonVersion"})))
}
