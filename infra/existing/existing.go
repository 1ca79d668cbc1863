// Package existing describes a cluster that was there before the stack: one of the contexts of a
// kubeconfig, on whatever cloud.
//
// Laws:
//
//  1. It creates no resource. `pulumi destroy` deletes the stack's objects one by one, and nothing
//     else.
//  2. The cluster is known by an identity of its own, not by the name of a context: a stack does
//     not go to another cluster because the current context has changed.
//  3. No credential is stored: the provider reads the kubeconfig of the machine that it runs on.
package existing

import (
	"errors"
	"fmt"

	core "k8s.io/api/core/v1"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/live"
	"github.com/elasticdl/elasticdl/infra/settings"
)

// ClusterArgs are the arguments of a cluster. Fields that are not set have the defaults of a
// stack's file.
type ClusterArgs struct {
	infra.ClusterArgs
	settings.Existing
	// Live reads the cluster; nil = the reader of package live.
	Live infra.Live
}

// OfStack returns the arguments of the cluster of a stack's valid settings.
func OfStack(s *settings.Settings) *ClusterArgs {
	return &ClusterArgs{ClusterArgs: infra.OfStack(s), Existing: *s.Existing}
}

// NewCluster returns the cluster of a context. It asks the cluster for its identity.
func NewCluster(ctx *pulumi.Context, name string, args *ClusterArgs) (*infra.Cluster, error) {
	if args == nil {
		args = &ClusterArgs{}
	}
	set := func(s *settings.Settings) { s.Existing = &args.Existing }
	s, err := args.Settings(ctx, name, settings.CloudExisting, set)
	if err != nil {
		return nil, err
	}
	is, err := live.ContextOf(s.Existing.Context)
	if err != nil {
		return nil, fmt.Errorf("%s:existing.context: %w: choose one: kubectl config use-context NAME, or "+
			"pulumi config set --path existing.context NAME", s.Project, err)
	}
	there := args.Live
	if there == nil {
		there = live.Reader{}
	}
	id, err := identity(ctx, is, there)
	if err != nil {
		return nil, fmt.Errorf("%s:existing: the cluster of context %s, %s, does not answer: %w",
			s.Project, is.Name, is.Server, err)
	}
	return cluster(s, is, id), nil
}

// identity returns the UID of kube-system, which is unique to a cluster and stays as long as it
// does. For users who may not read that namespace it is [ByAddress], and a hash of what their
// kubeconfig says.
func identity(ctx *pulumi.Context, is *live.Context, there infra.Live) (string, error) {
	system, err := there.Get(ctx.Context(), "", is.Name, infra.KindNamespace, "", "kube-system")
	if errors.Is(err, infra.ErrForbidden) {
		return infra.ByAddress + is.Hash, nil
	}
	if err != nil {
		return "", err
	}
	metadata, _ := system["metadata"].(map[string]any)
	uid, _ := metadata["uid"].(string)
	if uid == "" {
		return "", errors.New("it has no namespace kube-system")
	}
	return uid, nil
}

func cluster(s *settings.Settings, is *live.Context, id string) *infra.Cluster {
	x := s.Existing
	c := &infra.Cluster{
		Settings: s, Name: pulumi.Sprintf("%s, %s", is.Name, is.Server), ID: pulumi.String(id),
		Context: is.Name, Adopted: true,
		// whether its network enforces them is not known here
		NetPolicies: true,
	}
	if x.Registry != "" {
		c.Registry = pulumi.String(x.Registry).ToStringOutput()
	}
	c.Login = x.Login
	if n := x.GPUNodes; n != nil {
		c.GPU = infra.GPU{NodeSelector: n.Selector, Tolerations: n.Tolerations}
	}
	if n := x.SpotNodes; n != nil {
		spot := &infra.Nodes{NodeSelector: n.Selector, Tolerations: n.Tolerations}
		c.WorkersOn = func(_ string, gpus bool) *infra.Nodes {
			if gpus {
				return nil
			}
			return spot
		}
	}
	if v := x.Volume; v != nil {
		c.Volume = &infra.Volume{
			Claim: v.Name, ID: pulumi.String(id + " " + s.Platform.Namespace + "/" + v.Name),
			CapacityGB: v.CapacityGB, Shared: v.CapacityGB == 0,
		}
		if !c.Volume.Shared {
			c.Volume.OnDemand = &infra.OnDemand{StorageClass: v.StorageClass,
				AccessMode: core.PersistentVolumeAccessMode(v.AccessMode), Protect: s.ProtectStorage}
		}
	}
	return c
}
