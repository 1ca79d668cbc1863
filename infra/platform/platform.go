// Package platform is what every cluster of a stack gets, whoever runs it: the namespace of the job with its limits,
// PriorityClasses, the claim on the shared storage, NVIDIA's device plugin where the cloud has none, and Roles to bind.
//
//	Cluster ──> Provider ──> Namespace ──> PersistentVolume ──> PersistentVolumeClaim
//	                                  ├──> ResourceQuota, NetworkPolicy, Roles
//	                                  └──> PriorityClasses, StorageClass, device plugin
//
// Objects are made by functions of settings alone; [New] registers them.
//
// Laws:
//
//  1. What a job could not run with is refused by [Check] before any resource, and not at run time, when the master makes its pods.
//  2. Every name is fixed, since jobs, users and claims go by it. What is of the whole cluster and one stack's has the namespace in its name.
//  3. No change of a setting deletes data: volumes are retained, and are not made anew but with another source.
package platform

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pulumi/pulumi-kubernetes/sdk/v4/go/kubernetes"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
)

// Platform is what jobs of the stack stand on.
type Platform struct {
	pulumi.ResourceState

	Provider  *kubernetes.Provider
	Namespace string
	Claim     string            // of the shared storage; "" = none
	Ready     []pulumi.Resource // what must be there before a job, and goes after it
}

// New registers the platform on a cluster.
func New(ctx *pulumi.Context, s *infra.Settings, cluster *infra.Cluster) (*Platform, error) {
	if err := Check(s); err != nil {
		return nil, err
	}
	if s.Platform.NetworkPolicy && !cluster.NetPolicies {
		return nil, errors.New("platform.networkPolicy: true: this cluster's network does not obey NetworkPolicies")
	}
	p := &Platform{Namespace: s.Platform.Namespace}
	if err := ctx.RegisterComponentResource("elasticdl:platform:Platform", "platform", p); err != nil {
		return nil, err
	}
	provider, err := provide(ctx, p, cluster)
	if err != nil {
		return nil, err
	}
	p.Provider = provider
	r := registrar{ctx: ctx, platform: p, cluster: cluster}
	r.all(s)
	if r.err != nil {
		return nil, r.err
	}
	return p, ctx.RegisterResourceOutputs(p, pulumi.Map{"namespace": pulumi.String(p.Namespace), "claim": pulumi.String(p.Claim)})
}

// provide is how everything within the cluster is reached. It does not say deleteUnreachable, with which a network that
// is down for a moment would make Pulumi forget what is there: who knows that a cluster is gone sets
// PULUMI_K8S_DELETE_UNREACHABLE for one command.
func provide(ctx *pulumi.Context, p *Platform, cluster *infra.Cluster) (*kubernetes.Provider, error) {
	args := &kubernetes.ProviderArgs{
		Kubeconfig:             cluster.Kubeconfig,
		ClusterIdentifier:      cluster.ID.ToStringOutput().ToStringPtrOutput(), // else a kubeconfig that is not known yet replaces all within
		EnableConfigMapMutable: pulumi.Bool(true),                               // else a change of numWorkers replaces the job's spec
	}
	if cluster.Context != "" {
		args.Context = pulumi.String(cluster.Context)
	}
	return kubernetes.NewProvider(ctx, "kubernetes", args, pulumi.Parent(p), pulumi.DependsOn(cluster.Ready))
}

// registrar registers objects until one fails.
type registrar struct {
	ctx       *pulumi.Context
	platform  *Platform
	cluster   *infra.Cluster
	namespace pulumi.Resource
	err       error
}

func (r *registrar) all(s *infra.Settings) {
	of := s.Platform
	r.namespace = r.add("namespace", namespace(of.Namespace, podSecurity(s)), nil)
	classes := priorities(of.PriorityClasses)
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		// The API refuses to change them, and Pulumi's provider does not know that.
		r.add("priority-"+name, priorityClass(name, classes[name]), nil, pulumi.ReplaceOnChanges([]string{"value", "preemptionPolicy"}), pulumi.DeleteBeforeReplace(true))
	}
	if v := r.cluster.Volume; v != nil {
		r.volume(of.Namespace, v)
	}
	if of.StorageClass != "" && r.err == nil {
		class, err := storageClass(of.StorageClass, r.cluster.Volume)
		if r.err = err; err == nil {
			r.add("storage-class", class, r.cluster.Volume.Holes, pulumi.ReplaceOnChanges([]string{"parameters", "reclaimPolicy", "volumeBindingMode"}), pulumi.DeleteBeforeReplace(true))
		}
	}
	if len(of.Quota) > 0 {
		r.add("quota", quota(of.Namespace, of.Quota), nil)
	}
	if of.NetworkPolicy {
		r.add("network", networkPolicy(of.Namespace, s.Cloud), nil)
	}
	if r.cluster.GPU.DevicePlugin {
		r.add("device-plugin", devicePlugin(of.DevicePluginImage, r.cluster.GPU.NodeSelector), nil)
	}
	for _, role := range roles(of.Namespace) {
		r.add("role-"+role.Name, role, nil)
	}
}

// volume registers a static volume and the claim that is bound to it, in that order: Pulumi waits for five minutes for a
// claim to be bound, and then fails.
func (r *registrar) volume(in string, v *infra.Volume) {
	pv := r.add("volume", persistentVolume(in, v), v.Holes)
	if r.err != nil {
		return
	}
	// The name is known, but that the claim takes it from the volume makes a new volume a new claim, too.
	name := pv.ID().ApplyT(func(pulumi.ID) string { return volumeName(in, v.Claim) }).(pulumi.StringOutput)
	r.add("claim", persistentVolumeClaim(in, v), map[string]pulumi.StringInput{holeVolume: name})
	r.platform.Claim = v.Claim
}

func (r *registrar) add(name string, o runtime.Object, holes map[string]pulumi.StringInput, opts ...pulumi.ResourceOption) *pulumi.CustomResourceState {
	if r.err != nil {
		return nil
	}
	opts = append(opts, pulumi.Parent(r.platform), pulumi.Provider(r.platform.Provider), pulumi.DeletedWith(r.cluster.Resource))
	if r.namespace != nil {
		opts = append(opts, pulumi.DependsOn([]pulumi.Resource{r.namespace}))
	}
	made, err := infra.Register(r.ctx, name, o, holes, opts...)
	if err != nil {
		r.err = fmt.Errorf("register %s: %w", name, err)
		return nil
	}
	r.platform.Ready = append(r.platform.Ready, made)
	return made
}
