// Package eks creates a cluster on Amazon EKS: network, control plane, groups of nodes, a bucket
// for data and one for code, shared files and a registry of images.
//
//	VPC ──> control plane ──> vpc-cni, kube-proxy, pod identity ──┐
//	 │           └──> access entries                              ├──> groups of nodes ──> coredns,
//	 └──> EFS ──> a mount target per zone, open to the cluster ───┤                    EFS driver
//	bucket for data ──────────────────────────────────────────────┘
//
// An arrow points to the resource that is created later; deletion runs in reverse. So nodes, and
// the pods on them, end while their files are still mounted; the network plugin and the network's
// way out outlast the nodes.
//
// In Auto Mode the bucket comes before the control plane, with which the nodes end.
//
// With eks.nodes: groups no autoscaler runs: a group starts with desiredNodes, and later has the
// number that `aws eks update-nodegroup-config` sets. With auto, Amazon makes nodes for pods that
// wait, and there are no groups and no addons but the EFS driver. With karpenter, Karpenter does
// so, on the nodes of the system group.
package eks

import (
	"errors"
	"fmt"
	"maps"
	"reflect"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/eks"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/iam"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
)

// ClusterArgs are the arguments of a cluster. Fields that are not set have the defaults of a
// stack's file, except for those that are true there.
type ClusterArgs struct {
	infra.ClusterArgs
	settings.EKS
	// Network is one that the program makes; nil = EKS.VPC.
	Network *Network
	// Key is the ARN of a key that the program makes; nil = EKS.KMSKey.
	Key pulumi.StringInput
}

// Network is a network for a cluster: its subnets reach the internet, and its VPC resolves names.
type Network struct {
	VPC pulumi.StringInput
	// for nodes and mount targets, one in each zone
	Private []Subnet
	// IDs of subnets for load balancers
	Public pulumi.StringArray
}

// Subnet is a subnet in a zone: "us-west-2a".
type Subnet struct {
	Zone string
	ID   pulumi.StringInput
}

// section returns the settings of the cluster; those of a given network are only its zones. A key
// whose ARN is not known yet has one that stands for it, so that what follows from a key is
// checked.
func (a *ClusterArgs) section() *settings.EKS {
	e := a.EKS
	if a.Network != nil {
		e.VPC = settings.VPC{}
		for _, s := range a.Network.Private {
			e.VPC.Zones = append(e.VPC.Zones, s.Zone)
		}
	}
	if a.Key != nil && e.Region != "" {
		e.KMSKey = "arn:aws:kms:" + e.Region + ":000000000000:key/key"
	}
	return &e
}

// OfStack returns the arguments of the cluster of a stack's valid settings.
func OfStack(s *settings.Settings) *ClusterArgs {
	return &ClusterArgs{ClusterArgs: infra.OfStack(s), EKS: *s.EKS}
}

// check refuses parts of the cluster that are given twice.
func (a *ClusterArgs) check(name string) (err error) {
	if a.Network != nil && !reflect.DeepEqual(a.VPC, settings.VPC{}) {
		err = fmt.Errorf("%s:eks.vpc: the arguments have a Network, too: leave out one of the two", name)
	}
	if a.Key != nil && a.KMSKey != "" {
		const why = "%s:eks.kmsKey: the arguments have a Key, too: leave out one of the two"
		err = errors.Join(err, fmt.Errorf(why, name))
	}
	return err
}

// NewCluster creates a cluster. It requests no resource if the arguments have problems.
func NewCluster(ctx *pulumi.Context, name string, args *ClusterArgs,
	opts ...pulumi.ResourceOption) (*infra.Cluster, error) {
	if args == nil {
		args = &ClusterArgs{} // the settings say what is missing
	}
	s, err := args.Settings(ctx, name, settings.CloudEKS, func(s *settings.Settings) { s.EKS = args.section() })
	if err = errors.Join(args.check(name), err); err != nil {
		return nil, err
	}
	s.EKS.KMSKey = args.KMSKey
	p := &parts{ctx: ctx, s: s, e: s.EKS, args: args, name: s.Name(maxCluster),
		Names: infra.NewNames(name, args.Alone), outputs: pulumi.Map{}}
	if p.invokes, err = infra.InvokeOptions[*aws.Provider](opts); err != nil {
		return nil, err
	}
	if err := p.lookUp(); err != nil {
		return nil, err
	}
	if err := ctx.RegisterComponentResource("elasticdl:eks:Cluster", name, p, opts...); err != nil {
		return nil, err
	}
	for _, step := range []func() error{
		p.addNetwork, p.addData, p.addCluster, p.addAccess, p.addFiles, p.addNodes, p.addCode, p.addRegistry,
		p.addBudget,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	c := p.result()
	all := pulumi.Map{"name": c.Name, "kubeconfig": c.Kubeconfig, "registry": c.Registry}
	maps.Copy(all, c.Outputs)
	return c, ctx.RegisterResourceOutputs(p, all)
}

// maxCluster is the greatest length of the name of a cluster: longer names are derived from it.
const maxCluster = 40

// parts collects the resources that have been created so far.
type parts struct {
	pulumi.ResourceState
	infra.Names
	ctx  *pulumi.Context
	s    *settings.Settings
	e    *settings.EKS
	args *ClusterArgs
	// options of look-ups
	invokes []pulumi.InvokeOption
	outputs pulumi.Map

	// name of the cluster, and a part of many other names; also of its log group, which must exist
	// before it
	name      string
	partition *aws.GetPartitionResult
	account   string
	// ARN of the role or user that runs the program
	caller string
	// subnets of an existing VPC
	existing []subnet
	// security groups of the mount targets of an existing file system
	doors []string
	// what exists of the cluster in the account
	live    *live
	version wanted

	net     *network
	cluster *eks.Cluster
	// the shared file system, or nil
	volume *infra.Volume
	// the bucket for data, or nil
	bucket *infra.Bucket
	// its ARN, or nil; found is the ARN of one that exists already
	data  pulumi.StringInput
	found string
	// the ARN of the bucket for code, or nil
	code pulumi.StringInput
	// the mounts of the volume, and the bucket; nodes are deleted before them
	mounted  []pulumi.Resource
	registry pulumi.StringOutput
	// one that exists already
	foundRegistry pulumi.String
	ready         []pulumi.Resource
	// the role of the nodes, and the attachments of its policies, if the stack makes it
	nodeRole   nodeRole
	attached   []pulumi.Resource
	quotaNotes pulumi.ResourceOption
	// what makes nodes for pods that wait
	charts []infra.Chart
	makers []infra.Object
}

// result returns the cluster for the rest of the stack.
func (p *parts) result() *infra.Cluster {
	c := &infra.Cluster{
		Settings: p.s, Component: p, Name: p.cluster.Name,
		// The ARN stays the same when a cluster of the same name is created again, although its
		// objects are lost. Endpoints are never used twice.
		ID: p.cluster.Endpoint, Kubeconfig: p.kubeconfig(), Context: p.name,
		Resource: p.cluster, Ready: p.ready, Volume: p.volume, Bucket: p.bucket,
		Registry:    p.registry,
		Login:       &settings.Login{User: "AWS", Command: "aws ecr get-login-password --region " + p.e.Region},
		NetPolicies: true, WorkersOn: p.workersOn, Outputs: p.outputs,
	}
	// the provider's profile: another identity may have no access to the cluster and the registry
	if p.e.Profile != "" {
		c.Login.Command += " --profile '" + p.e.Profile + "'"
		c.Environment = map[string]string{"AWS_PROFILE": p.e.Profile}
	}
	if p.code != nil || p.data != nil || len(p.e.JobPolicies) > 0 {
		c.Identify = p.identify
	}
	if p.hasGPUs() {
		// Auto Mode has a device plugin of its own
		c.GPU = infra.GPU{NodeSelector: map[string]string{gpuLabel: "true"},
			DevicePlugin: p.e.Nodes != settings.NodesAuto}
	}
	for _, g := range p.pools() {
		if g.Name == settings.CorePool && p.e.Nodes == settings.NodesKarpenter {
			c.Tolerations = settings.Tolerations(taintsOf(g, p.e.Nodes))
		}
	}
	c.Charts, c.Nodes = p.charts, p.makers
	if p.e.Nodes == settings.NodesKarpenter || p.e.Nodes == settings.NodesAuto && p.e.EFS != nil {
		// Nodes that Karpenter has made are not the cluster's: they end only with the objects in
		// it. Those of Auto Mode end with the cluster, and must end before the mounts of their
		// files.
		c.Resource = nil
	}
	return c
}

// lookUp asks Amazon for what the program must know before it requests any resource.
func (p *parts) lookUp() (err error) {
	if err := p.expectRegion(); err != nil {
		return err
	}
	if p.partition, err = aws.GetPartition(p.ctx, nil, p.invokes...); err != nil {
		return fmt.Errorf("look up the partition of %s: %w", p.e.Region, err)
	}
	who, err := aws.GetCallerIdentity(p.ctx, nil, p.invokes...)
	if err != nil {
		return fmt.Errorf("look up who runs this: %w", err)
	}
	// An assumed role is named by a session, which ends; access must be given to the role.
	session, err := iam.GetSessionContext(p.ctx, &iam.GetSessionContextArgs{Arn: who.Arn}, p.invokes...)
	if err != nil {
		return fmt.Errorf("look up the role of %s: %w", who.Arn, err)
	}
	p.account, p.caller = who.AccountId, session.IssuerArn
	if err := infra.LookUp(p.s, p.given()); err != nil {
		return err
	}
	if p.live, err = p.lookUpLive(); err != nil {
		return err
	}
	versions, err := p.lookUpVersions()
	if err == nil {
		p.version = choose(versions, p.e, p.live.version, p.s.Now)
	} else if p.version, err = unchecked(err, p.e, p.live.version); err != nil {
		return err
	}
	if p.version.note != "" {
		if err := p.ctx.Log.Warn(p.version.note, nil); err != nil {
			return err
		}
	}
	if p.args.Network != nil {
		return nil
	}
	return p.live.check(p.e.VPC)
}

// expectRegion compares the region of a program's arguments with that of the provider.
func (p *parts) expectRegion() error {
	if p.args.IsStack() {
		return nil
	}
	is, err := aws.GetRegion(p.ctx, nil, p.invokes...)
	if err != nil {
		return fmt.Errorf("look up the region of the provider of %s: %w", p.s.Project, err)
	}
	if is.Name != p.e.Region {
		return fmt.Errorf("%s: EKS.Region is %s, and the provider's %s: give that, or pulumi.Provider(one of %[2]s)",
			p.s.Project, p.e.Region, is.Name)
	}
	return nil
}

// options returns the options of a part of the cluster.
func (p *parts) options(more ...pulumi.ResourceOption) pulumi.ResourceOption {
	return pulumi.Composite(append(more, pulumi.Parent(p))...)
}

// after returns the option to be created after resources, and deleted before them.
func after(all ...[]pulumi.Resource) pulumi.ResourceOption {
	var resources []pulumi.Resource
	for _, some := range all {
		resources = append(resources, some...)
	}
	return pulumi.DependsOn(resources)
}

// tags returns the stack's labels and the tag Name, which consoles show.
func (p *parts) tags(name string, more ...string) pulumi.StringMap {
	m := pulumi.StringMap{}
	for k, v := range p.s.Labels {
		m[k] = pulumi.String(v)
	}
	m["Name"] = pulumi.String(name)
	for i := 0; i+1 < len(more); i += 2 {
		m[more[i]] = pulumi.String(more[i+1])
	}
	return m
}
