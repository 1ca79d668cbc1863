// Package gke makes a cluster of Google Kubernetes Engine, and around it what a training job needs of Google: a network,
// node pools, a Filestore instance, a registry of images, and the identities of the nodes and of the job.
//
//	services ─┬─> network ─> NAT ──────────┐
//	          ├─> node account, its roles ─┼─> cluster ─┬─> system pool ─> GPU pool
//	          ├─> registry ────────────────┘      ┌─────┼─> worker pool
//	          └─> Filestore ──────────────────────┘     └─> who may be the job's account
//
// Arrows are also the order of destruction, against them: nodes go before the volume that their pods have mounted, and
// before what lets them reach their images.
//
// Laws:
//
//  1. What Google changes by itself, as sizes of pools, versions and its own labels and taints, is no change of the stack.
//  2. No name is longer than Google takes, whatever the stack is called. What is replaced under its own name goes first.
//  3. Roles are given one by one ([projects.IAMMember]), so that roles of others are kept.
package gke

import (
	"github.com/pulumi/pulumi-gcp/sdk/v7/go/gcp/artifactregistry"
	"github.com/pulumi/pulumi-gcp/sdk/v7/go/gcp/container"
	"github.com/pulumi/pulumi-gcp/sdk/v7/go/gcp/filestore"
	"github.com/pulumi/pulumi-gcp/sdk/v7/go/gcp/serviceaccount"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
)

// New makes the cluster of settings that are valid.
func New(ctx *pulumi.Context, s *settings.Settings) (*infra.Cluster, error) {
	p := &parts{ctx: ctx, s: s, g: s.GKE}
	if err := ctx.RegisterComponentResource("elasticdl:gke:Cluster", "gke", p); err != nil {
		return nil, err
	}
	var err error
	if p.warns, err = p.warnOfDrains(); err != nil {
		return nil, err
	}
	for _, step := range []func() error{
		p.addServices, p.addNetwork, p.addNodeAccount, p.addRegistry, p.addFiles,
		p.addCluster, p.addNodes, p.addJobAccount,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	c := p.result()
	return c, ctx.RegisterResourceOutputs(p, pulumi.Map{"name": c.Name, "registry": c.Registry})
}

// parts is what there is so far.
type parts struct {
	pulumi.ResourceState
	ctx *pulumi.Context
	s   *settings.Settings
	g   *settings.GKE

	services []pulumi.Resource
	net      *computed
	subnet   *computed
	nodes    *serviceaccount.Account
	beneath  []pulumi.Resource // what nodes need: a way out, roles, images
	registry *artifactregistry.Repository
	volume   *filestore.Instance // or nil
	mounted  []pulumi.Resource   // it: nodes go before it
	cluster  *container.Cluster
	ready    []pulumi.Resource
	warns    pulumi.ResourceOption // of updates that drain nodes
	identity map[string]pulumi.StringOutput
}

// result returns what the rest of the stack knows of the cluster.
func (p *parts) result() *infra.Cluster {
	c := &infra.Cluster{
		Name: p.cluster.Name, ID: p.cluster.ID(), Kubeconfig: p.kubeconfig(), Context: p.s.Name(maxCluster),
		Resource: p.cluster, Ready: p.ready,
		Registry: pulumi.Sprintf("%s-docker.pkg.dev/%s/%s", region(p.g.Location), p.g.Project, p.registry.RepositoryId),
		Login:    &infra.Login{User: "oauth2accesstoken", Command: "gcloud auth print-access-token"},
		Identity: p.identity, NetPolicies: true,
	}
	if p.g.GPUPool != nil {
		c.GPU.NodeSelector = map[string]string{gpuLabel: "true"}
	}
	if w := p.g.WorkerPool; w != nil && w.Spot {
		c.Spot = spot()
	}
	if p.volume != nil {
		c.Volume = p.claim()
	}
	return c
}

// options returns the options of a part of the cluster.
func (p *parts) options(more ...pulumi.ResourceOption) pulumi.ResourceOption {
	return pulumi.Composite(append(more, pulumi.Parent(p))...)
}

// named returns the options of a part whose name is given here: another of that name can only be made when it is gone.
func (p *parts) named(more ...pulumi.ResourceOption) pulumi.ResourceOption {
	return p.options(append(more, pulumi.DeleteBeforeReplace(true))...)
}

// labels returns those of whatever costs: which stack it is of, and what the settings say.
func (p *parts) labels() pulumi.StringMap {
	m := pulumi.StringMap{settings.LabelStack: pulumi.String(p.s.Name(maxLabel))}
	for k, v := range p.s.Labels {
		m[k] = pulumi.String(v)
	}
	return m
}

// patient returns timeouts for what may take longer than the provider would wait.
func patient() pulumi.ResourceOption {
	return pulumi.Timeouts(&pulumi.CustomTimeouts{Create: "1h", Update: "1h", Delete: "1h"})
}
