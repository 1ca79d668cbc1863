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
// With eks.nodes: groups no autoscaler runs: a group starts with desiredNodes, and later has the
// number that `aws eks update-nodegroup-config` sets. With auto, Amazon makes nodes for pods that
// wait, and there are no groups and no addons but the EFS driver. With karpenter, Karpenter does
// so, on the nodes of the system group.
package eks

import (
	"fmt"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/eks"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/iam"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
)

// New creates the cluster of valid settings.
func New(ctx *pulumi.Context, s *settings.Settings) (*infra.Cluster, error) {
	p := &parts{ctx: ctx, s: s, e: s.EKS, name: s.Name(maxCluster)}
	if err := p.lookUp(); err != nil {
		return nil, err
	}
	if err := ctx.RegisterComponentResource("elasticdl:eks:Cluster", "eks", p); err != nil {
		return nil, err
	}
	for _, step := range []func() error{
		p.addNetwork, p.addCluster, p.addAccess, p.addFiles, p.addData, p.addNodes, p.addJobRole, p.addRegistry,
		p.addBudget,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	c := p.result()
	return c, ctx.RegisterResourceOutputs(p, pulumi.Map{"name": c.Name, "kubeconfig": c.Kubeconfig,
		"registry": c.Registry})
}

// maxCluster is the greatest length of the name of a cluster: longer names are derived from it.
const maxCluster = 40

// parts collects the resources that have been created so far.
type parts struct {
	pulumi.ResourceState
	ctx *pulumi.Context
	s   *settings.Settings
	e   *settings.EKS

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
	// the mounts of the volume, and the bucket; nodes are deleted before them
	mounted  []pulumi.Resource
	registry pulumi.StringOutput
	// one that exists already
	foundRegistry pulumi.String
	ready         []pulumi.Resource
	// the role of the nodes, and the attachments of its policies, if the stack makes it
	nodeRole nodeRole
	attached []pulumi.Resource
	// what makes nodes for pods that wait
	charts []infra.Chart
	makers []infra.Object
}

// result returns the cluster for the rest of the stack.
func (p *parts) result() *infra.Cluster {
	c := &infra.Cluster{
		Name: p.cluster.Name,
		// The ARN stays the same when a cluster of the same name is created again, although its
		// objects are lost. Endpoints are never used twice.
		ID: p.cluster.Endpoint, Kubeconfig: p.kubeconfig(), Context: p.name,
		Resource: p.cluster, Ready: p.ready, Volume: p.volume, Bucket: p.bucket,
		Registry:    p.registry,
		Login:       &settings.Login{User: "AWS", Command: "aws ecr get-login-password --region " + p.e.Region},
		NetPolicies: true,
	}
	// the provider's profile: another identity may have no access to the cluster and the registry
	if p.e.Profile != "" {
		c.Login.Command += " --profile '" + p.e.Profile + "'"
	}
	if p.hasGPUs() {
		// Auto Mode has a device plugin of its own
		c.GPU = infra.GPU{NodeSelector: map[string]string{gpuLabel: "true"},
			DevicePlugin: p.e.Nodes != settings.NodesAuto}
	}
	for _, g := range p.pools() {
		switch {
		case g.Name != p.s.WorkersOn():
		case p.s.WorkerPool != "" || p.s.AsksForGPUs():
			c.Pool = p.nodesOf(g)
		default:
			c.Workers = p.nodesOf(g)
		}
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
	if p.partition, err = aws.GetPartition(p.ctx, nil); err != nil {
		return fmt.Errorf("look up the partition of %s: %w", p.e.Region, err)
	}
	who, err := aws.GetCallerIdentity(p.ctx, nil)
	if err != nil {
		return fmt.Errorf("look up who runs this: %w", err)
	}
	// An assumed role is named by a session, which ends; access must be given to the role.
	session, err := iam.GetSessionContext(p.ctx, &iam.GetSessionContextArgs{Arn: who.Arn})
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
	return p.live.check(p.e.VPC)
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
