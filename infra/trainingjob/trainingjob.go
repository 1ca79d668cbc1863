package trainingjob

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/platform"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// Type is the component's type.
const Type = "elasticdl:trainer:TrainingJob"

// Args has the job, and where it runs.
type Args struct {
	// Job is complete in a stack. In other programs it begins with [job.Default]: see
	// [platform.Platform.Complete].
	Job *job.Job
	// Platform has the namespace of the job, and the cluster on which it runs.
	Platform *platform.Platform
	// Pool is the pool of the workers: see [infra.Cluster]; "" = by what they request.
	Pool string
	// Identity is the one in the cloud; nil = one that the cluster makes, named after the job.
	Identity *infra.Identity
	// nil = the image that the job names
	Image pulumi.StringInput
	// pull policy of that image; "" = the job's
	PullPolicy string
	// how long an update waits for a new job to train; 0 = it does not
	Wait time.Duration
	// nil = nothing waits
	Pause Pause
}

// TrainingJob is the component of a job on a cluster.
type TrainingJob struct {
	pulumi.ResourceState
	guard     *infra.Guard
	hook      func(name string) string // its name for this job
	Master    pulumi.StringOutput      `pulumi:"master"`    // name of its Job
	Dashboard pulumi.StringOutput      `pulumi:"dashboard"` // address of its master within the cluster
	Logs      pulumi.StringOutput      `pulumi:"logs"`      // command that follows the master's log
	Status    pulumi.StringOutput      `pulumi:"status"`    // command that shows the progress
}

// Annotations that Pulumi's provider reads.
const (
	skipAwait           = "pulumi.com/skipAwait"
	patchForce          = "pulumi.com/patchForce"
	deletionPropagation = "pulumi.com/deletionPropagationPolicy"
)

// imageHole stands for the name of an image that is not known yet, and annotationHole for the value
// of an annotation.
const (
	imageHole      = "image.invalid/of/the:stack"
	annotationHole = "annotation.invalid/"
)

// New registers a job, after what its platform has. The dependencies among the options also apply
// to its objects.
func New(ctx *pulumi.Context, name string, args *Args, opts ...pulumi.ResourceOption) (*TrainingJob, error) {
	if args == nil || args.Job == nil || args.Platform == nil {
		return nil, fmt.Errorf("job %s: Args.Job or Args.Platform is missing", name)
	}
	if !args.Platform.Expects(args.Job.Name) {
		return nil, fmt.Errorf("job %s: the platform was made without it: add it to Jobs of platform.Args, by which "+
			"Pod Security and quotas are checked", args.Job.Name)
	}
	args, err := args.complete(ctx)
	if err != nil {
		return nil, err
	}
	on := args.Platform
	opts = append([]pulumi.ResourceOption{pulumi.DependsOn(on.Ready), pulumi.DependsOn(args.Identity.Ready),
		pulumi.DeletedWith(on.Cluster.Resource)}, opts...)
	if on.Provider != nil {
		opts = append(opts, pulumi.Provider(on.Provider))
	}
	j, holes, err := args.described()
	if err != nil {
		return nil, err
	}
	s, err := objects(j, args)
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", j.Name, err)
	}
	if len(args.Identity.Annotations) > 0 && s.ServiceAccount == nil {
		keys := strings.Join(slices.Sorted(maps.Keys(args.Identity.Annotations)), ", ")
		message := fmt.Sprintf("job.serviceAccount=%s is not made by the stack: the job has its "+
			"identity in the cloud if that is annotated with %s", j.ServiceAccount, keys)
		if err := ctx.Log.Warn(message, nil); err != nil {
			return nil, err
		}
	}
	t := &TrainingJob{guard: on.Guard, hook: func(hook string) string { return on.Hook(name, hook) }}
	if err := ctx.RegisterComponentResource(Type, name, t, opts...); err != nil {
		return nil, err
	}
	// Registration would create outputs for these fields that the engine never resolves: so they
	// are set before.
	t.Master = pulumi.String(s.Job.Name).ToStringOutput()
	t.Dashboard = pulumi.String(manifest.MasterAddress(j)).ToStringOutput()
	t.Logs = pulumi.Sprintf("kubectl logs -f %s -n %s", s.Job.Name, j.Namespace)
	t.Status = pulumi.Sprintf("elasticdl status %s --namespace=%s", j.Name, j.Namespace)
	var start *starter
	if args.Wait > 0 && args.Pause != nil && t.guard != nil && !j.Suspend {
		start = &starter{ctx: ctx, guard: t.guard, hook: t.hook, most: args.Wait, pause: args.Pause, name: j.Name,
			namespace: j.Namespace}
	}
	master, err := t.register(ctx, name, s, holes, start, opts)
	if err != nil {
		return nil, err
	}
	if start != nil {
		t.Status = start.after(master, t.Status)
	}
	return t, ctx.RegisterResourceOutputs(t, pulumi.Map{"master": t.Master, "dashboard": t.Dashboard,
		"logs": t.Logs, "status": t.Status})
}

// complete returns the arguments with a namespace and an identity.
func (a *Args) complete(ctx *pulumi.Context) (*Args, error) {
	c := *a
	j := *a.Job
	if a.Image != nil {
		*settings.BuiltImage(&j) = imageHole
	}
	is, notes, err := a.Platform.Complete(&j, a.Pool)
	if err != nil {
		return nil, err
	}
	for _, note := range notes {
		if err := ctx.Log.Warn(j.Name+": "+note, nil); err != nil {
			return nil, err
		}
	}
	c.Job = is
	if c.Identity != nil {
		return &c, nil
	}
	c.Identity = &infra.Identity{}
	if identify := a.Platform.Cluster.Identify; identify != nil {
		is, err := identify("job-"+c.Job.Name, Account(c.Job))
		if err != nil {
			return nil, fmt.Errorf("the identity of job %s: %w", c.Job.Name, err)
		}
		c.Identity = is
	}
	return &c, nil
}

// Pulled returns the image of the job's pods, and its pull policy; "" = any.
func (a *Args) Pulled() (image pulumi.StringInput, policy string) {
	if a.Image != nil {
		return a.Image, a.PullPolicy
	}
	return pulumi.String(cmp.Or(a.Job.AgentImage, a.Job.Image)), a.Job.ImagePullPolicy
}

// Account returns the ServiceAccount of a job.
func Account(j *job.Job) infra.Account {
	return infra.Account{Job: j.Name, Namespace: j.Namespace, Name: manifest.AccountName(j)}
}

// described returns the job with placeholders for values that are not known yet, and those values.
func (a *Args) described() (*job.Job, map[string]pulumi.StringInput, error) {
	j, err := Placed(a.Job, a.Platform.Cluster, a.Pool)
	if err != nil {
		return nil, nil, fmt.Errorf("job %s: %w", a.Job.Name, err)
	}
	if b := a.Platform.Cluster.Bucket; b != nil {
		j = settings.Located(j, b.Assumed, b.Name)
	}
	holes := make(map[string]pulumi.StringInput)
	if a.Image != nil {
		*settings.BuiltImage(j), holes[imageHole] = imageHole, a.Image
	}
	// for a program this policy does not apply to its own image
	if a.PullPolicy != "" && !j.Runs() {
		j.ImagePullPolicy = a.PullPolicy
	}
	for key, value := range a.Identity.Annotations {
		holes[annotationHole+key] = value
	}
	return j, holes, nil
}

// objects returns the objects of a job, and what Pulumi must do with them.
func objects(j *job.Job, args *Args) (*manifest.Submission, error) {
	s, err := manifest.Submit(j)
	if j.TTL != nil {
		err = errors.Join(err, fmt.Errorf(
			"job.ttl=%v: not supported in a stack: Pulumi would create the deleted job again; remove the setting",
			j.TTL))
	}
	if err != nil {
		return nil, err
	}
	v1.SetMetaDataAnnotation(&s.Job.ObjectMeta, skipAwait, "true")
	v1.SetMetaDataAnnotation(&s.Job.ObjectMeta, deletionPropagation, "background")
	// the hash is computed with the placeholder for the image
	if args.Image != nil {
		s.Job.Spec.Template.Annotations[manifest.AnnotationSpec] += " " + imageHole
	}
	v1.SetMetaDataAnnotation(&s.Spec.ObjectMeta, patchForce, "true")
	for _, service := range s.Services {
		v1.SetMetaDataAnnotation(&service.ObjectMeta, skipAwait, "true")
	}
	if s.ServiceAccount != nil {
		for key := range args.Identity.Annotations {
			v1.SetMetaDataAnnotation(&s.ServiceAccount.ObjectMeta, key, annotationHole+key)
		}
	}
	return s, nil
}

// register registers the Job, and returns it, after all objects that it needs, so that it is
// deleted before them.
func (t *TrainingJob) register(ctx *pulumi.Context, name string, s *manifest.Submission,
	holes map[string]pulumi.StringInput, start *starter, opts []pulumi.ResourceOption) (pulumi.Resource, error) {
	given, err := pulumi.NewResourceOptions(opts...)
	if err != nil {
		return nil, err
	}
	with := []pulumi.ResourceOption{pulumi.Parent(t), pulumi.DependsOn(given.DependsOn),
		pulumi.DeletedWith(given.DeletedWith)}
	for _, later := range given.DependsOnInputs {
		with = append(with, pulumi.DependsOnInputs(later))
	}
	of := manifest.SpecName(s.Job.Labels[manifest.LabelJob])
	register := func(o runtime.Object, more ...pulumi.ResourceOption) (pulumi.Resource, error) {
		// "test-mnist-ps-0" of elasticdl-test-mnist-ps-0
		short := name + strings.TrimPrefix(o.(v1.Object).GetName(), of)
		is := infra.Object{Name: short, Object: o, Holes: holes}
		// every change of the template changes the hash in its annotations, which replaces the Job
		if o == runtime.Object(s.Job) {
			is.Fixed = []string{"spec.template.metadata.annotations"}
		}
		return infra.Register(ctx, t.guard, is, slices.Concat(with, more)...)
	}
	var needed []pulumi.Resource
	var role pulumi.Resource
	for _, o := range s.Objects()[1:] { // the first is the Job
		var more []pulumi.ResourceOption
		switch {
		case o == runtime.Object(s.State) || o == runtime.Object(s.Identity): // the master writes these
			more = append(more, pulumi.IgnoreChanges([]string{"data"}))
		case o == runtime.Object(s.RoleBinding):
			// Kubernetes compares the rights of a user with those that the Role grants, unless the
			// user administers the cluster: so the Role must be there.
			more = append(more, pulumi.DependsOn([]pulumi.Resource{role}))
		}
		r, err := register(o, more...)
		if err != nil {
			return nil, err
		}
		if o == runtime.Object(s.Role) {
			role = r
		}
		needed = append(needed, r)
	}
	rails, err := t.rails(ctx, s)
	if err != nil {
		return nil, err
	}
	// The master writes the backoff limit when the job fails.
	with = append(with, pulumi.DependsOn(needed), pulumi.DeleteBeforeReplace(true),
		pulumi.IgnoreChanges([]string{"spec.backoffLimit"}), rails)
	if start != nil {
		created, err := start.option()
		if err != nil {
			return nil, err
		}
		with = append(with, created)
	}
	return register(s.Job)
}
