// Package platform creates what every cluster of a stack has, on whatever cloud: the namespace of
// the job with its limits, PriorityClasses, the claim on the shared storage, NVIDIA's device plugin
// where the cloud has none, and Roles to bind.
//
//	Cluster ──> Provider ──> Kueue ──> Namespace ──> PersistentVolume ──> PersistentVolumeClaim
//	                                            ├──> ResourceQuota, NetworkPolicy, Roles
//	                                            ├──> PriorityClasses, StorageClass, device plugin
//	                                            └──> ResourceFlavor ──> ClusterQueue ──> LocalQueue
//
// Pure functions of the settings build the objects; [New] registers them.
//
// Laws:
//
//  1. Settings with which a job could not run are refused by [Check] before any resource is
//     requested, and not at run time, when the master creates its pods.
//  2. Every name is fixed, because jobs, users and claims refer to it. The name of a cluster-wide
//     object that belongs to one stack contains the stack's namespace.
//  3. No change of a setting deletes data: volumes are retained, and are replaced only if their
//     source changes.
package platform

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"

	core "k8s.io/api/core/v1"
	kube "k8s.io/apimachinery/pkg/runtime"

	"github.com/pulumi/pulumi-kubernetes/sdk/v4/go/kubernetes"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// Platform has what jobs of the stack need.
type Platform struct {
	pulumi.ResourceState

	Cluster *infra.Cluster
	// Settings has those of the cluster, with the platform's own section.
	Settings *settings.Settings
	// Guard guards all objects within; nil = they are neither marked nor looked up.
	Guard     *infra.Guard
	Provider  *kubernetes.Provider
	Namespace string
	// name of the claim on the shared storage; "" = none
	Claim string
	// resources that must exist before a job, and are deleted after it
	Ready []pulumi.Resource

	// those that it was made for; nil = any
	jobs []*job.Job
	// the program has this platform, and one job
	single bool
}

// Hook returns the name of a hook of a job: hooks of several jobs have several names.
func (p *Platform) Hook(job, name string) string {
	if p.single {
		return name
	}
	return job + ": " + name
}

// Expects reports whether the platform was made for a job of that name.
func (p *Platform) Expects(name string) bool {
	return p.jobs == nil || slices.ContainsFunc(p.jobs, func(j *job.Job) bool { return j.Name == name })
}

// Args has the cluster of a platform, and what runs there.
type Args struct {
	// its arguments have the settings of the platform
	Cluster *infra.Cluster
	// Jobs lists the jobs of the platform: their pods decide on Pod Security, and must fit quotas.
	Jobs []*job.Job
	// Alone says that the program has no other platform: then names of resources do not contain
	// that of the platform.
	Alone bool
	// Allow lists exceptions of package policy.
	Allow []string
	// Live reads the cluster before it is changed; nil = nothing is looked up.
	Live infra.Live
}

// Complete returns the job of a Go program with all defaults, and notes on it, or its problems on
// this platform: see [settings.Settings.Complete]. The jobs of stacks are complete.
func (p *Platform) Complete(j *job.Job, pool string) (is *job.Job, notes []string, err error) {
	return complete(p.Settings, j, pool)
}

func complete(s *settings.Settings, j *job.Job, pool string) (is *job.Job, notes []string, err error) {
	if s == nil || s.Base == "" {
		return j, nil, nil
	}
	return s.Complete(j, pool, runtime.GOARCH)
}

// settings returns the settings of the platform and its jobs, or their problems.
func (a *Args) settings() (of *settings.Settings, jobs []*job.Job, err error) {
	s := *a.Cluster.Settings
	s.Policy.Allow, s.Job = slices.Concat(s.Policy.Allow, a.Allow), nil
	said := map[string]bool{}
	say := func(wrong error) {
		// a problem of the platform is one of each job, too
		if wrong != nil && !said[wrong.Error()] {
			said[wrong.Error()] = true
			err = errors.Join(err, wrong)
		}
	}
	say(s.Verify(Check))
	for _, j := range a.Jobs {
		known := *j
		known.Image = cmp.Or(j.Image, manifest.App)               // the program may build it later
		j, _, wrong := complete(&s, &known, settings.PoolUnknown) // the job shows its notes
		if wrong == nil {
			with := s
			with.Job = j
			wrong = with.Verify(Check)
		}
		say(wrong)
		jobs = append(jobs, j)
	}
	return &s, jobs, err
}

// New registers the platform of a cluster, which has one.
func New(ctx *pulumi.Context, name string, args *Args, opts ...pulumi.ResourceOption) (*Platform, error) {
	if args == nil || args.Cluster == nil || args.Cluster.Settings == nil {
		return nil, fmt.Errorf("platform %s: Args.Cluster is missing: give what NewCluster has returned", name)
	}
	cluster := args.Cluster
	if cluster.Used {
		return nil, fmt.Errorf("platform %s: the cluster has a platform already, and its objects that are in no "+
			"namespace exist once: put the jobs on that platform", name)
	}
	cluster.Used = true
	s, jobs, err := args.settings()
	if err != nil {
		return nil, err
	}
	if s.Platform.NetworkPolicy && !cluster.NetPolicies {
		return nil, errors.New("platform.networkPolicy: true: this cluster's network does not obey NetworkPolicies")
	}
	for _, note := range together(s.Platform, jobs) {
		if err := ctx.Log.Warn(name+": "+note, nil); err != nil {
			return nil, err
		}
	}
	names := infra.NewNames(name, args.Alone)
	p := &Platform{Cluster: cluster, Settings: s, Namespace: s.Platform.Namespace,
		jobs: slices.Concat([]*job.Job{}, jobs), single: args.Alone && len(jobs) <= 1}
	if args.Live != nil {
		of := infra.Scope{Names: names, Platform: s.Platform, Jobs: jobs}
		if p.Guard, err = infra.NewGuard(ctx, of, cluster, args.Live); err != nil {
			return nil, err
		}
	}
	if err := checkShared(s, p.Guard, cluster); err != nil {
		return nil, err
	}
	if cluster.Volume != nil {
		p.Claim = cluster.Volume.Claim
	}
	rails, err := rails(ctx, s, p.Guard)
	if err != nil {
		return nil, err
	}
	if err := ctx.RegisterComponentResourceV2("elasticdl:platform:Platform", name,
		inputs(ctx, s, cluster), p, append(opts, rails,
			pulumi.IgnoreChanges([]string{"kubeconfig"}))...); err != nil {
		return nil, err
	}
	plan, err := objects(s, jobs, cluster)
	if err != nil {
		return nil, err
	}
	if p.Provider, err = p.provide(ctx, names, plan); err != nil {
		return nil, err
	}
	if err := p.register(ctx, names, plan); err != nil {
		return nil, err
	}
	return p, ctx.RegisterResourceOutputs(p, pulumi.Map{"namespace": pulumi.String(p.Namespace),
		"claim": pulumi.String(p.Claim)})
}

// provide creates the provider by which all objects in the cluster are managed. It does not set
// deleteUnreachable, with which Pulumi would forget all objects during a short failure of the
// network. A user who knows that the cluster is deleted sets PULUMI_K8S_DELETE_UNREACHABLE for one
// command.
func (p *Platform) provide(ctx *pulumi.Context, names infra.Names, plan []infra.Object) (*kubernetes.Provider, error) {
	cluster := p.Cluster
	args := pulumi.Map{
		// otherwise an unknown kubeconfig replaces all objects
		"clusterIdentifier": cluster.ID,
		// otherwise a change of numWorkers replaces the job's spec
		"enableConfigMapMutable": pulumi.Bool(true),
	}
	if !cluster.Local() {
		args["kubeconfig"] = cluster.Kubeconfig
	}
	if cluster.Context != "" {
		args["context"] = pulumi.String(cluster.Context)
	}
	var all []kube.Object
	for _, o := range plan {
		all = append(all, o.Object)
	}
	looks, err := p.Guard.First(all)
	if err != nil {
		return nil, err
	}
	// kubernetes.NewProvider would store the path of this machine's kubeconfig, which other
	// machines do not have; without one the provider reads the files that kubectl reads.
	made := &kubernetes.Provider{}
	return made, ctx.RegisterResource("pulumi:providers:kubernetes", names.Child("kubernetes"), args, made,
		pulumi.Parent(p), pulumi.DependsOn(cluster.Ready), pulumi.Version(sdkVersion), looks)
}

// sdkVersion is the version of pulumi-kubernetes in go.mod, and of its provider.
const sdkVersion = "4.24.0"

// Names of resources on which others depend.
const (
	nameNamespace    = "namespace"
	nameVolume       = "volume"
	nameClaim        = "claim"
	nameOfKueue      = "kueue-namespace"
	nameFlavor       = "queue-flavor"
	nameClusterQueue = "cluster-queue"
)

// objects returns the objects that a cluster gets, in the order in which they are registered: the
// namespace first, and the claim after its volume, because Pulumi waits for five minutes for a
// claim to be bound, and then fails. Only Kueue is before the namespace: pods there may have a
// finalizer of Kueue, which must not be deleted before them.
func objects(s *settings.Settings, jobs []*job.Job, cluster *infra.Cluster) ([]infra.Object, error) {
	of := s.Platform
	all := slices.Clone(cluster.Nodes)
	add := func(name string, o kube.Object) { all = append(all, infra.Object{Name: name, Object: o}) }
	if of.Queue != nil && of.Queue.Install {
		add(nameOfKueue, namespace(kueueNamespace, restricted))
	}
	if !of.ShareNamespace {
		add(nameNamespace, namespace(of.Namespace, podSecurity(of, jobs)))
	}
	classes := priorities(of.PriorityClasses)
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		if !slices.Contains(of.SharePriorityClasses, name) {
			all = append(all, infra.Object{Name: "priority-" + name,
				Object: priorityClass(name, classes[name]), Fixed: []string{"value", "preemptionPolicy"}})
		}
	}
	if of.QueuePriorities {
		for _, class := range manifest.WorkloadPriorities() {
			add("queue-priority-"+class.GetName(), class)
		}
	}
	switch v := cluster.Volume; {
	case v == nil || v.Shared:
	case v.OnDemand != nil:
		all = append(all, infra.Object{Name: nameClaim, Object: claimOnDemand(of.Namespace, v),
			Fixed: []string{"spec.storageClassName", "spec.accessModes"}})
	default:
		all = append(all,
			infra.Object{Name: nameVolume, Object: persistentVolume(of.Namespace, v), Holes: v.Holes,
				Fixed: []string{"spec.csi", "spec.hostPath"}},
			infra.Object{Name: nameClaim, Object: persistentVolumeClaim(of.Namespace, v)})
	}
	if of.StorageClass != "" {
		class, err := storageClass(of.StorageClass, cluster.Volume)
		if err != nil {
			return nil, err
		}
		all = append(all, infra.Object{Name: "storage-class", Object: class,
			Holes: cluster.Volume.Holes, Fixed: []string{"parameters", "reclaimPolicy", "volumeBindingMode"}})
	}
	if len(of.Quota) > 0 {
		add("quota", quota(of.Namespace, of.Quota))
	}
	if of.NetworkPolicy {
		add("network", networkPolicy(of.Namespace, s.Cloud))
	}
	if cluster.GPU.DevicePlugin {
		add("device-plugin", devicePlugin(of.DevicePluginImage, cluster.GPU.NodeSelector))
	}
	for _, role := range roles(of.Namespace) {
		add("role-"+role.Name, role)
	}
	if of.Queue != nil {
		all = append(all, queueObjects(of.Namespace, of.Queue)...)
	}
	return all, nil
}

// registrar registers the objects of a platform, one after the other.
type registrar struct {
	*Platform
	ctx   *pulumi.Context
	names infra.Names
	// what the next objects need
	first []pulumi.Resource
	// that of the claim
	volume pulumi.CustomResource
}

// register registers the charts of the cluster and the objects, and Kueue after its namespace.
func (p *Platform) register(ctx *pulumi.Context, names infra.Names, plan []infra.Object) error {
	r := &registrar{Platform: p, ctx: ctx, names: names}
	for _, c := range p.Cluster.Charts {
		if err := r.install(c); err != nil {
			return err
		}
	}
	for i, o := range plan {
		made, err := r.add(o)
		if err != nil {
			return fmt.Errorf("register %s: %w", o.Name, err)
		}
		switch {
		case o.Name == nameOfKueue:
			r.first = append(r.first, made)
			looks, err := alone(p.Guard)
			if err != nil {
				return err
			}
			if err := r.install(kueueRelease(p.Namespace, p.Settings.Platform.Queue), looks); err != nil {
				return err
			}
		case i < len(p.Cluster.Nodes) || o.Name == nameNamespace || o.Name == nameFlavor || o.Name == nameClusterQueue:
			// pods that wait need nodes, objects a namespace, and the next objects name these
			r.first = append(r.first, made)
		case o.Name == nameVolume:
			r.volume = made
		}
	}
	return nil
}

// options returns the options of the next resource.
func (r *registrar) options(more ...pulumi.ResourceOption) []pulumi.ResourceOption {
	return append([]pulumi.ResourceOption{pulumi.Parent(r.Platform), pulumi.Provider(r.Provider),
		pulumi.DeletedWith(r.Cluster.Resource), pulumi.DependsOn(slices.Clone(r.first))}, more...)
}

// install registers a chart, which the next objects need.
func (r *registrar) install(c infra.Chart, more ...pulumi.ResourceOption) error {
	made, err := c.Register(r.ctx, r.names.Child(c.Name), r.options(more...)...)
	if err != nil {
		return fmt.Errorf("register the chart %s: %w", c.Name, err)
	}
	r.first = append(r.first, made)
	r.Ready = append(r.Ready, made)
	return nil
}

// add registers an object.
func (r *registrar) add(o infra.Object) (*pulumi.CustomResourceState, error) {
	opts := r.options(pulumi.IgnoreChanges(o.Kept))
	switch {
	case o.Name == nameClaim && r.volume == nil:
		onDemand, err := r.keeps()
		if err != nil {
			return nil, err
		}
		opts = append(opts, onDemand)
	case o.Name == nameClaim:
		// The name is known before; by using the volume's output instead, a new volume also
		// replaces the claim.
		name := o.Object.(*core.PersistentVolumeClaim).Spec.VolumeName
		o.Object.(*core.PersistentVolumeClaim).Spec.VolumeName = holeVolume
		o.Holes = map[string]pulumi.StringInput{holeVolume: r.volume.ID().ApplyT(func(pulumi.ID) string {
			return name
		}).(pulumi.StringOutput)}
		unused, err := claimIsUnused(r.ctx, r.Guard)
		if err != nil {
			return nil, err
		}
		// The engine must delete the claim before the volume, which cannot be deleted while a
		// claim is bound to it.
		opts = append(opts, unused, pulumi.ReplaceOnChanges([]string{"spec"}), pulumi.DeleteBeforeReplace(true))
	case o.Name != nameVolume && len(o.Fixed) > 0:
		// for volumes, Pulumi's provider knows which fields the API refuses to change
		opts = append(opts, pulumi.ReplaceOnChanges(o.Fixed), pulumi.DeleteBeforeReplace(true))
	}
	o.Name = r.names.Child(o.Name)
	made, err := infra.Register(r.ctx, r.Guard, o, opts...)
	r.Ready = append(r.Ready, made)
	return made, err
}
