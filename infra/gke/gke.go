// Package gke creates a cluster on Google Kubernetes Engine, and the Google resources that a
// training job needs: a network, node pools, a bucket, a Filestore instance, a registry of images,
// and the identities of the nodes and of the job.
//
//	services ─┬─> network ─> NAT ──────────┐
//	          ├─> node account, its roles ─┼─> cluster ─┬─> system pool ─> GPU pool
//	          ├─> registry ────────────────┘      ┌─────┼─> worker pool
//	          └─> bucket, Filestore ──────────────┘     └─> who may act as the job's account
//
// An arrow points to the resource that is created later; deletion runs in reverse: nodes are
// deleted before the volume that their pods have mounted, and before what they need to pull images.
//
// Laws:
//
//  1. What Google changes on its own, such as sizes of pools, versions and its own labels and
//     taints, is no difference for the stack.
//  2. No name is longer than Google allows, whatever the stack is called. A resource that is
//     replaced under the same name is deleted first.
//  3. Roles are granted one by one ([projects.IAMMember]), so that bindings of others are kept.
//  4. The bucket is never public, and the job's account has a role on this bucket alone.
//  5. A part that exists already is never changed, protected or deleted.
package gke

import (
	"errors"
	"fmt"
	"slices"

	"github.com/pulumi/pulumi-gcp/sdk/v7/go/gcp"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
)

// ClusterArgs are the arguments of a cluster. Fields that are not set have the defaults of a
// stack's file, except for those that are true there.
type ClusterArgs struct {
	infra.ClusterArgs
	settings.GKE
	// Network is one that the program makes; nil = GKE.Subnet, or one that the cluster makes.
	Network *Network
	// Key is the full name of a key that the program makes; nil = GKE.KMSKey.
	Key pulumi.StringInput
	// Provider has the settings by which Google's provider chooses an identity, such as
	// impersonateServiceAccount, for the budget, which needs a provider of its own.
	Provider map[string]string
}

// Network is a network for a cluster.
type Network struct {
	// IDs: "projects/acme/global/networks/training"
	Network, Subnetwork pulumi.StringInput
	// the short name of the network, by which Filestore knows it
	Name pulumi.StringInput
	// names of the secondary ranges of the subnet
	Pods, Services string
}

// section returns the settings of the cluster. A key whose name is not known yet has a name that
// stands for it, so that what follows from a key is checked.
func (a *ClusterArgs) section() *settings.GKE {
	g := a.GKE
	if region, _ := settings.Region(g.Location); a.Key != nil && region != "" {
		g.KMSKey = "projects/" + g.Project + "/locations/" + region + "/keyRings/RING/cryptoKeys/KEY"
	}
	return &g
}

// OfStack returns the arguments of the cluster of a stack's valid settings.
func OfStack(s *settings.Settings) *ClusterArgs {
	return &ClusterArgs{ClusterArgs: infra.OfStack(s), GKE: *s.GKE}
}

// check refuses parts of the cluster that are given twice.
func (a *ClusterArgs) check(name string) (err error) {
	refuse := func(given bool, path, other string) {
		if given {
			err = errors.Join(err, fmt.Errorf("%s:%s: the arguments have a %s, too: leave out one of the two", name,
				path, other))
		}
	}
	r := a.Ranges
	refuse(a.Network != nil && a.Subnet != nil, "gke.subnet", "Network")
	refuse(a.Network != nil && r.Nodes+r.Pods+r.Services != "", "gke.ranges", "Network")
	refuse(a.Key != nil && a.KMSKey != "", "gke.kmsKey", "Key")
	return err
}

// NewCluster creates a cluster. It requests no resource if the arguments have problems.
func NewCluster(ctx *pulumi.Context, name string, args *ClusterArgs,
	opts ...pulumi.ResourceOption) (*infra.Cluster, error) {
	if args == nil {
		args = &ClusterArgs{} // the settings say what is missing
	}
	s, err := args.Settings(ctx, name, settings.CloudGKE, func(s *settings.Settings) { s.GKE = args.section() })
	if err = errors.Join(args.check(name), err); err != nil {
		return nil, err
	}
	s.GKE.KMSKey = args.KMSKey
	p := &parts{ctx: ctx, s: s, g: s.GKE, args: args, Names: infra.NewNames(name, args.Alone)}
	if p.invokes, err = infra.InvokeOptions[*gcp.Provider](opts); err != nil {
		return nil, err
	}
	if err := p.expectProject(); err != nil {
		return nil, err
	}
	if err := infra.LookUp(s, p.given()); err != nil {
		return nil, err
	}
	if err := ctx.RegisterComponentResource("elasticdl:gke:Cluster", name, p, opts...); err != nil {
		return nil, err
	}
	if p.warns, err = p.warnOfDrains(); err != nil {
		return nil, err
	}
	notes := slices.Concat(s.GKE.QuotaNotes(), s.GKE.NodeNotes(), p.notes)
	if p.quotas, err = infra.WarnBeforeCreate(ctx, p.Hook("quotas of the project"), notes); err != nil {
		return nil, err
	}
	for _, step := range []func() error{
		p.addServices, p.addNetwork, p.addNodeAccount, p.addRegistry, p.addBucket, p.addFiles,
		p.addCluster, p.addNodes, p.addBudget,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	c := p.result()
	return c, ctx.RegisterResourceOutputs(p, pulumi.Map{"name": c.Name, "registry": c.Registry})
}

// parts collects the resources that have been created so far.
type parts struct {
	pulumi.ResourceState
	infra.Names
	ctx  *pulumi.Context
	s    *settings.Settings
	g    *settings.GKE
	args *ClusterArgs
	// options of look-ups
	invokes []pulumi.InvokeOption
	// what look-ups have found that may be wrong, for those who create nodes
	notes []string

	services []pulumi.Resource
	net      *network
	found    foundFiles
	nodes    nodeAccount
	// what nodes need: a route to the internet, roles, images
	beneath  []pulumi.Resource
	registry pulumi.StringOutput
	// or nil
	volume *infra.Volume
	// or nil
	bucket *infra.Bucket
	// the volume and the bucket; nodes are deleted before them
	mounted []pulumi.Resource
	cluster *controlPlane
	ready   []pulumi.Resource
	// ComputeClasses
	makers []infra.Object
	// the options that warn of updates that drain nodes, and of what new pools need
	warns  pulumi.ResourceOption
	quotas pulumi.ResourceOption
}

// result returns the cluster for the rest of the stack.
func (p *parts) result() *infra.Cluster {
	c := &infra.Cluster{
		Settings: p.s, Component: p,
		Name: p.cluster.Name, ID: p.cluster.ID(), Kubeconfig: p.kubeconfig(), Context: p.s.Name(maxCluster),
		Resource: p.cluster, Ready: p.ready,
		Registry: p.registry,
		Login:    &settings.Login{User: "oauth2accesstoken", Command: "gcloud auth print-access-token"},
		Identify: p.identify, NetPolicies: true, Bucket: p.bucket, Volume: p.volume,
	}
	p.place(c)
	return c
}

// expectProject compares the project of a program's arguments with that of the provider.
func (p *parts) expectProject() error {
	if p.args.IsStack() {
		return nil
	}
	var is struct {
		Project string `pulumi:"project"`
	}
	err := p.invoke("gcp:organizations/getClientConfig:getClientConfig", map[string]any{}, &is)
	if err != nil {
		return fmt.Errorf("look up the project of the provider of %s: %w", p.s.Project, err)
	}
	if is.Project != p.g.Project {
		return fmt.Errorf("%s: GKE.Project is %s, and the provider's %s: give that, or pulumi.Provider(one of %[2]s)",
			p.s.Project, p.g.Project, is.Project)
	}
	return nil
}

// options returns the options of a part of the cluster.
func (p *parts) options(more ...pulumi.ResourceOption) pulumi.ResourceOption {
	return pulumi.Composite(append(more, pulumi.Parent(p))...)
}

// named returns the options of a part with a fixed name: its replacement can only be created after
// it is deleted.
func (p *parts) named(more ...pulumi.ResourceOption) pulumi.ResourceOption {
	return p.options(append(more, pulumi.DeleteBeforeReplace(true))...)
}

// labels returns the labels of everything that is billed: the name of the stack, and the labels of
// the settings.
func (p *parts) labels() pulumi.StringMap {
	m := pulumi.StringMap{settings.LabelStack: pulumi.String(p.s.Name(maxLabel))}
	for k, v := range p.s.Labels {
		m[k] = pulumi.String(v)
	}
	return m
}

// patient returns timeouts for resources that may take longer than the provider waits by default.
func patient() pulumi.ResourceOption {
	return pulumi.Timeouts(&pulumi.CustomTimeouts{Create: "1h", Update: "1h", Delete: "1h"})
}
