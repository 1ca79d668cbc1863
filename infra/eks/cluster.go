package eks

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/eks"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/iam"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
)

// addCluster creates the control plane.
func (p *parts) addCluster() error {
	role, first, err := p.clusterRole()
	if err != nil {
		return err
	}
	// Amazon creates this log group if it does not exist, without expiry, and keeps it when the
	// cluster is deleted.
	logs, err := p.register("aws:cloudwatch/logGroup:LogGroup", "cluster", encrypted(pulumi.Map{
		"name":            pulumi.String("/aws/eks/" + p.name + "/cluster"),
		"retentionInDays": pulumi.Int(p.e.LogRetentionDays),
		"tags":            p.tags(p.name),
	}, "kmsKeyId", p.key()), pulumi.DeleteBeforeReplace(true))
	if err != nil {
		return err
	}
	name := p.Hook("support of Kubernetes by Amazon")
	supported, err := infra.NewHook(p.ctx, name, func(*pulumi.ResourceHookArgs) error {
		if p.version.refused != "" {
			return errors.New(p.version.refused)
		}
		return nil
	})
	if err != nil {
		return err
	}
	// EKS refuses subnets in zones other than those with which the cluster was created, and needs
	// none: nodes may be in any subnet of the VPC.
	ignored := []string{"accessConfig.bootstrapClusterCreatorAdminPermissions", "bootstrapSelfManagedAddons",
		"vpcConfig.subnetIds"}
	if p.e.Version == "" {
		// Amazon may have upgraded it, and refuses an update to the version that it has.
		ignored = append(ignored, "version")
	}
	args, notes := p.clusterArgs(role), pulumi.Composite()
	ignored = append(ignored, p.encryptSecrets(args)...)
	if p.e.Nodes == settings.NodesAuto {
		p.setAuto(args)
		first = append(first, p.mounted...) // nodes end with the cluster
		if notes, err = p.quotas(); err != nil {
			return err
		}
	}
	if p.cluster, err = eks.NewCluster(p.ctx, p.Child("cluster"), args, p.options(
		after(first, []pulumi.Resource{logs}), infra.BeforeCreate(supported), notes,
		// the name is taken until the old cluster is deleted
		pulumi.DeleteBeforeReplace(true),
		pulumi.IgnoreChanges(ignored),
	)); err != nil {
		return err
	}
	p.addVPC()
	return nil
}

// clusterRole creates the role of the control plane, and returns what must exist before the cluster
// and outlast it: without the role's policy a cluster cannot delete what it has created in the VPC.
func (p *parts) clusterRole() (role *iam.Role, first []pulumi.Resource, err error) {
	policies := []string{"AmazonEKSClusterPolicy"}
	auto := p.e.Nodes == settings.NodesAuto
	if auto {
		if err := p.autoRole(); err != nil {
			return nil, nil, err
		}
		policies = append(policies, autoPolicies...)
	}
	role, first, err = p.role("cluster", trusts("eks.amazonaws.com"), policies...)
	if err != nil {
		return nil, nil, err
	}
	rights, err := p.mayUseKey(role)
	first = append(first, rights...)
	if err != nil || !auto {
		return role, first, err
	}
	may, err := p.register("aws:iam/rolePolicy:RolePolicy", "cluster-tags", pulumi.Map{"role": role.Name,
		"policy": pulumi.String(p.mayTag())})
	// nodes end with the cluster, and before their way out
	return role, slices.Concat(first, []pulumi.Resource{may}, p.attached, p.net.ways), err
}

// clusterArgs returns the arguments of a control plane.
func (p *parts) clusterArgs(role *iam.Role) *eks.ClusterArgs {
	public := &eks.ClusterVpcConfigArgs{
		SubnetIds: append(p.net.subnets(), p.net.public...),
		// Nodes reach the API within the VPC, so the list of addresses that may reach it from
		// outside need not contain those of the NAT.
		EndpointPrivateAccess: pulumi.Bool(true),
		EndpointPublicAccess:  pulumi.Bool(p.e.PublicAccess),
	}
	if p.e.PublicAccess {
		var cidrs pulumi.StringArray
		for _, n := range p.e.AuthorizedNetworks {
			cidrs = append(cidrs, pulumi.String(n.CIDR))
		}
		public.PublicAccessCidrs = cidrs
	}
	return &eks.ClusterArgs{
		Name:          pulumi.String(p.name),
		RoleArn:       role.Arn,
		Version:       pulumi.String(p.version.version),
		UpgradePolicy: &eks.ClusterUpgradePolicyArgs{SupportType: pulumi.String(cmp.Or(p.e.SupportType, "STANDARD"))},
		VpcConfig:     public,
		AccessConfig: &eks.ClusterAccessConfigArgs{
			AuthenticationMode: pulumi.String("API"),
			// The creator gets no implicit access: access is given by entries of the stack, which
			// its state shows.
			BootstrapClusterCreatorAdminPermissions: pulumi.Bool(false),
		},
		BootstrapSelfManagedAddons: pulumi.Bool(false), // the stack installs them as addons
		EnabledClusterLogTypes:     pulumi.ToStringArray([]string{"api", "audit", "authenticator"}),
		Tags:                       p.tags(p.name),
	}
}

// addVPC adds the cluster's VPC to the outputs, which fails if it is not the one that the settings
// name now.
func (p *parts) addVPC() {
	p.outputs["vpc"] = p.cluster.VpcConfig.VpcId().Elem().ApplyT(func(is string) (string, error) {
		if want := p.e.VPC.ID; want != "" && is != "" && is != want {
			return "", fmt.Errorf("eks.vpc.id: %s: the stack's cluster is in %s, and cannot move: "+
				"make another stack", want, is)
		}
		return is, nil
	}).(pulumi.StringOutput)
}

// addAccess gives access to the administrators of the settings, or else to the identity that
// creates the stack. EKS creates the entries for nodes.
func (p *parts) addAccess() error {
	if len(p.e.Admins) == 0 {
		// an identity that runs `pulumi up` later does not replace the creator
		return p.addAdmin("creator", p.caller, pulumi.IgnoreChanges([]string{"principalArn"}))
	}
	if !slices.Contains(p.e.Admins, p.caller) {
		p.ctx.Log.Warn("eks.admins has no "+p.caller+", who runs this: Kubernetes will refuse it", nil)
	}
	for _, arn := range p.e.Admins {
		// "123456789012:role/x"; a "::" would end the name of a resource
		_, who, _ := strings.Cut(arn, "::")
		var opts []pulumi.ResourceOption
		if arn == p.caller {
			// EKS allows one entry for an identity: the creator's entry is kept when a list that
			// names the creator is added later.
			opts = append(opts, pulumi.Aliases([]pulumi.Alias{{Name: pulumi.String(p.Child("creator"))}}))
		}
		if err := p.addAdmin("admin-"+who, arn, opts...); err != nil {
			return err
		}
	}
	return nil
}

// addAdmin gives one role or user administrator access.
func (p *parts) addAdmin(name, arn string, opts ...pulumi.ResourceOption) error {
	entry, err := eks.NewAccessEntry(p.ctx, p.Child(name), &eks.AccessEntryArgs{
		ClusterName: p.cluster.Name, PrincipalArn: pulumi.String(arn), Type: pulumi.String("STANDARD"),
		Tags: p.tags(p.name),
	}, p.options(opts...))
	if err != nil {
		return err
	}
	may, err := eks.NewAccessPolicyAssociation(p.ctx, p.Child(name), &eks.AccessPolicyAssociationArgs{
		ClusterName: p.cluster.Name, PrincipalArn: entry.PrincipalArn,
		PolicyArn: pulumi.String("arn:" + p.partition.Partition +
			":eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"),
		AccessScope: &eks.AccessPolicyAssociationAccessScopeArgs{Type: pulumi.String("cluster")},
	}, p.options(opts...))
	p.ready = append(p.ready, may)
	return err
}

// addon creates one of Amazon's addons, in the version that is EKS's default for the cluster's
// version when the addon is created.
func (p *parts) addon(name string, args eks.AddonArgs, wait ...pulumi.ResourceOption) (pulumi.Resource, error) {
	args.ClusterName = p.cluster.Name
	args.AddonName = pulumi.String(name)
	args.ResolveConflictsOnCreate = pulumi.String("OVERWRITE")
	args.ResolveConflictsOnUpdate = pulumi.String("OVERWRITE")
	args.Tags = p.tags(p.name)
	opts := append(wait, pulumi.IgnoreChanges([]string{"addonVersion"}))
	return eks.NewAddon(p.ctx, p.Child(name), &args, p.options(opts...))
}

// kubeconfig returns a kubeconfig that names a command that gets a token, and contains no token.
// The command uses the provider's AWS profile, if it has one.
func (p *parts) kubeconfig() pulumi.StringOutput {
	env := ""
	if p.e.Profile != "" {
		env = fmt.Sprintf("\n      env: [{name: AWS_PROFILE, value: %q}]", p.e.Profile)
	}
	return pulumi.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: %[1]s
  cluster:
    server: %[2]s
    certificate-authority-data: %[3]s
users:
- name: %[1]s
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1beta1
      command: aws
      args: [--region, %[4]s, eks, get-token, --cluster-name, %[1]s, --output, json]%[6]s
      interactiveMode: IfAvailable
      provideClusterInfo: false
      installHint: "the AWS CLI, version 2: https://docs.aws.amazon.com/cli/"
contexts:
- name: %[1]s
  context: {cluster: %[1]s, user: %[1]s, namespace: %[5]q}
current-context: %[1]s
`, p.cluster.Name, p.cluster.Endpoint, p.cluster.CertificateAuthority.Data().Elem(), p.e.Region,
		p.s.Platform.Namespace, env)
}
