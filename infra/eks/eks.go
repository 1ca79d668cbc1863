// Package eks makes a cluster of Amazon: network, control plane, groups of nodes, shared files, a bucket for code and a
// registry of images.
//
//	VPC ──> control plane ──> vpc-cni, kube-proxy, pod identity ──┐
//	 │           └──> access entries                              ├──> groups of nodes ──> coredns, EFS driver
//	 └──> EFS ──> a mount target per zone, open to the cluster ───┘
//
// The arrows say what waits for what, and in reverse what outlives what when the stack goes: nodes end, and pods with
// them, while files are still mounted; the network plugin and the way out of the network outlast the nodes.
//
// No autoscaler runs: a group has desiredNodes at first, and later as many as `aws eks update-nodegroup-config` sets.
package eks

import (
	"fmt"
	"slices"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/eks"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/iam"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/trainer/job"
)

// Claim is the name of the claim to the stack's EFS.
const Claim = "efs-claim"

// builder has what every part of the cluster needs.
type builder struct {
	*pulumi.Context
	s         *settings.Settings
	eks       *settings.EKS
	name      string // of the cluster, and within many others; also of its log group, which must be there before it
	partition *aws.GetPartitionResult
	account   string
	caller    string   // ARN of the role or user that runs this
	existing  []subnet // of a VPC that is there already
	live      *live    // what the account has of the cluster
	component pulumi.Resource
}

// New makes the cluster of s.EKS.
func New(ctx *pulumi.Context, s *settings.Settings) (*infra.Cluster, error) {
	b := &builder{Context: ctx, s: s, eks: s.EKS, name: s.Name(40)}
	if err := b.lookUp(); err != nil {
		return nil, err
	}
	var component pulumi.ResourceState
	if err := ctx.RegisterComponentResource("elasticdl:eks:Cluster", "eks", &component); err != nil {
		return nil, err
	}
	b.component = &component
	n, err := b.network()
	if err != nil {
		return nil, err
	}
	cluster, err := b.controlPlane(n)
	if err != nil {
		return nil, err
	}
	b.exportVPC(cluster)
	ready, err := b.access(cluster)
	if err != nil {
		return nil, err
	}
	volume, mounts, err := b.files(cluster, n)
	if err != nil {
		return nil, err
	}
	nodes, err := b.nodes(cluster, n, mounts)
	if err != nil {
		return nil, err
	}
	identity, err := b.code(cluster)
	if err != nil {
		return nil, err
	}
	registry, err := b.registry()
	if err != nil {
		return nil, err
	}
	c := b.value(cluster)
	c.Ready = slices.Concat(ready, mounts, nodes, identity)
	c.Volume, c.Registry = volume, registry
	return c, ctx.RegisterResourceOutputs(&component, pulumi.Map{"name": c.Name, "kubeconfig": c.Kubeconfig, "registry": c.Registry})
}

// value returns what others know of a cluster, but for what belongs to it.
func (b *builder) value(cluster *eks.Cluster) *infra.Cluster {
	c := &infra.Cluster{
		Name: cluster.Name,
		// The ARN stays when a cluster of the same name is made anew; what was in it does not. Endpoints are never used twice.
		ID:          cluster.Endpoint,
		Kubeconfig:  b.kubeconfig(cluster),
		Context:     b.name,
		Resource:    cluster,
		Login:       &infra.Login{User: "AWS", Command: "aws ecr get-login-password --region " + b.eks.Region},
		NetPolicies: true,
	}
	if b.eks.Profile != "" { // the provider's: another identity may be unknown to cluster and registry
		c.Login.Command += " --profile '" + b.eks.Profile + "'"
	}
	if b.eks.GPUGroup != nil {
		c.GPU = infra.GPU{NodeSelector: map[string]string{gpuLabel: "true"}, DevicePlugin: true}
	}
	if w := b.eks.WorkerGroup; w != nil && w.Spot {
		c.Spot = &infra.Spot{
			NodeSelector: map[string]string{spotKey: "true"},
			Tolerations:  []job.Toleration{{Key: spotKey, Operator: "Equal", Value: "true", Effect: "NoSchedule"}},
		}
	}
	return c
}

// lookUp asks Amazon what is to be known before any resource is asked for.
func (b *builder) lookUp() (err error) {
	if b.partition, err = aws.GetPartition(b.Context, nil); err != nil {
		return fmt.Errorf("look up the partition of %s: %w", b.eks.Region, err)
	}
	who, err := aws.GetCallerIdentity(b.Context, nil)
	if err != nil {
		return fmt.Errorf("look up who runs this: %w", err)
	}
	// Who has taken on a role is named by a session, which ends; access is the role's.
	session, err := iam.GetSessionContext(b.Context, &iam.GetSessionContextArgs{Arn: who.Arn})
	if err != nil {
		return fmt.Errorf("look up the role of %s: %w", who.Arn, err)
	}
	b.account, b.caller = who.AccountId, session.IssuerArn
	if b.eks.VPC.ID != "" {
		if b.existing, err = b.lookUpVPC(); err != nil {
			return err
		}
	}
	if b.live, err = b.lookUpLive(); err != nil {
		return err
	}
	return b.live.check(b.eks.VPC)
}

// exportVPC exports the cluster's VPC, and fails if that is not the one that the settings name now.
func (b *builder) exportVPC(c *eks.Cluster) {
	b.Export("vpc", c.VpcConfig.VpcId().Elem().ApplyT(func(is string) (string, error) {
		if want := b.eks.VPC.ID; want != "" && is != "" && is != want {
			return "", fmt.Errorf("eks.vpc.id: %s: the stack's cluster is in %s, and cannot move: make another stack", want, is)
		}
		return is, nil
	}))
}

// with returns the options of a resource of the cluster.
func (b *builder) with(more ...pulumi.ResourceOption) pulumi.ResourceOption {
	return pulumi.Composite(append(more, pulumi.Parent(b.component))...)
}

// after returns the option to wait for resources, and to go before them.
func after(all ...[]pulumi.Resource) pulumi.ResourceOption {
	var resources []pulumi.Resource
	for _, some := range all {
		resources = append(resources, some...)
	}
	return pulumi.DependsOn(resources)
}

// tags returns the stack's labels and a name, which consoles show.
func (b *builder) tags(name string, more ...string) pulumi.StringMap {
	m := pulumi.StringMap{}
	for k, v := range b.s.Labels {
		m[k] = pulumi.String(v)
	}
	m["Name"] = pulumi.String(name)
	for i := 0; i+1 < len(more); i += 2 {
		m[more[i]] = pulumi.String(more[i+1])
	}
	return m
}

// kubeconfig names a command that gets a token, and has none in it. The token is of the provider's profile, if it has one.
func (b *builder) kubeconfig(c *eks.Cluster) pulumi.StringOutput {
	env := ""
	if b.eks.Profile != "" {
		env = fmt.Sprintf("\n      env: [{name: AWS_PROFILE, value: %q}]", b.eks.Profile)
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
`, c.Name, c.Endpoint, c.CertificateAuthority.Data().Elem(), b.eks.Region, b.s.Platform.Namespace, env)
}
