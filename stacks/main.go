// Command stacks is the program of the Pulumi project in Pulumi.yaml: it creates the cluster that
// Pulumi.<stack>.yaml describes, with all that a training job needs, and the job on it.
//
//	Pulumi.<stack>.yaml ──> gke | eks | minikube | existing ──> platform
//	platform ──> image ──> dataset ──> trainingjob
package main

import (
	"context"
	"os"
	"os/exec"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/constant"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/dataset"
	"github.com/elasticdl/elasticdl/infra/eks"
	"github.com/elasticdl/elasticdl/infra/existing"
	"github.com/elasticdl/elasticdl/infra/gke"
	"github.com/elasticdl/elasticdl/infra/image"
	"github.com/elasticdl/elasticdl/infra/live"
	"github.com/elasticdl/elasticdl/infra/minikube"
	"github.com/elasticdl/elasticdl/infra/platform"
	"github.com/elasticdl/elasticdl/infra/policy"
	"github.com/elasticdl/elasticdl/infra/price"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/infra/trainingjob"
)

// world has the program's dependencies, which tests simulate.
type world struct {
	now  func() time.Time
	live infra.Live
	find func(program string) (path string, err error) // finds a program, as exec.LookPath does

	// pause waits; if nil, no update waits for its job.
	pause trainingjob.Pause
	// refuse ends a program whose settings are not valid; if nil, the program returns the error.
	refuse func(*pulumi.Context, error) error
}

func main() {
	pulumi.Run(program(world{now: time.Now, live: live.Reader{}, find: exec.LookPath, refuse: refuse, pause: pause}))
}

// pause waits for some time, or until the program ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// refuse prints the problems without the text that the SDK adds to an error of a program.
func refuse(ctx *pulumi.Context, err error) error {
	if ctx.Log.Error(err.Error(), nil) == nil {
		os.Exit(constant.ExitStatusLoggedError)
	}
	return err
}

// clouds returns the functions that create the cluster of a stack, or find it. Its name in the
// program says which cloud it has.
func (w world) clouds() map[string]func(*pulumi.Context, *settings.Settings) (*infra.Cluster, error) {
	return map[string]func(*pulumi.Context, *settings.Settings) (*infra.Cluster, error){
		settings.CloudGKE: func(ctx *pulumi.Context, s *settings.Settings) (*infra.Cluster, error) {
			args := gke.OfStack(s)
			args.Provider = googleIdentity(ctx)
			return gke.NewCluster(ctx, s.Cloud, args)
		},
		settings.CloudEKS: func(ctx *pulumi.Context, s *settings.Settings) (*infra.Cluster, error) {
			return eks.NewCluster(ctx, s.Cloud, eks.OfStack(s))
		},
		settings.CloudMinikube: func(ctx *pulumi.Context, s *settings.Settings) (*infra.Cluster, error) {
			return minikube.NewCluster(ctx, s.Cloud, minikube.OfStack(s))
		},
		settings.CloudExisting: func(ctx *pulumi.Context, s *settings.Settings) (*infra.Cluster, error) {
			args := existing.OfStack(s)
			args.Live = w.live
			return existing.NewCluster(ctx, s.Cloud, args)
		},
	}
}

// googleIdentity returns the settings of a stack by which Google's provider chooses an identity.
func googleIdentity(ctx *pulumi.Context) map[string]string {
	all := map[string]string{}
	for _, key := range gke.IdentityKeys {
		if value, ok := ctx.GetConfig("gcp:" + key); ok {
			all[key] = value
		}
	}
	return all
}

// program returns the whole stack as a program for Pulumi.
func program(w world) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error { return w.run(ctx) }
}

// run registers the whole stack. It reports the problems of the settings before it requests any
// resource.
func (w world) run(ctx *pulumi.Context) error {
	s, err := load(ctx, w.now(), settings.Programs(w.find), platform.Check, policy.Known)
	if err != nil {
		if w.refuse != nil {
			return w.refuse(ctx, err)
		}
		return err
	}
	if err := policy.Enforce(ctx, s); err != nil {
		return err
	}
	if err := w.cost(ctx, s); err != nil {
		return err
	}
	cluster, err := w.clouds()[s.Cloud](ctx, s)
	if err != nil {
		if s.Existing != nil && w.refuse != nil { // nothing is requested yet
			return w.refuse(ctx, err)
		}
		return err
	}
	ctx.Export("cluster", cluster.Name)
	if !cluster.Local() {
		ctx.Export("kubeconfig", pulumi.ToSecret(cluster.Kubeconfig))
	}
	if cluster.Registry.OutputState != nil {
		ctx.Export("registry", cluster.Registry)
	}
	for name, value := range cluster.Outputs {
		ctx.Export(name, value)
	}
	args := &platform.Args{Cluster: cluster, Alone: true, Live: w.live}
	if s.Job != nil {
		args.Jobs = append(args.Jobs, s.Job)
	}
	on, err := platform.New(ctx, "platform", args)
	if err != nil {
		return err
	}
	ctx.Export("namespace", pulumi.String(on.Namespace))
	if on.Claim != "" {
		ctx.Export("claim", pulumi.String(on.Claim))
	}
	if b := cluster.Bucket; b != nil {
		ctx.Export("bucket", pulumi.Sprintf("%s://%s", b.Scheme, b.ID))
	}
	return w.train(ctx, s, on)
}

// cost prints what the stack costs, and exports it. A stack on this machine costs nothing.
func (world) cost(ctx *pulumi.Context, s *settings.Settings) error {
	if s.Cloud == settings.CloudMinikube {
		return nil
	}
	e := price.Of(s)
	ctx.Export("costIdle", pulumi.Float64(e.Idle()))
	ctx.Export("costNow", pulumi.Float64(e.Now()))
	ctx.Export("costMost", pulumi.Float64(e.Most()))
	if lack := e.Lacks(); len(lack) > 0 {
		ctx.Export("costLacks", pulumi.ToStringArray(lack))
	}
	if s.Budget != nil {
		if over := e.Over(s.Budget.Monthly); over != "" {
			if err := ctx.Log.Warn(s.Project+":budget.monthly: "+over, nil); err != nil {
				return err
			}
		}
	}
	return ctx.Log.Info(e.String(), nil)
}

// train submits the stack's job, if it has one, after its image is built and its data is copied, if
// the stack does that.
func (w world) train(ctx *pulumi.Context, s *settings.Settings, on *platform.Platform) error {
	args := &trainingjob.Args{Job: s.Job, Platform: on, Pool: s.WorkerPool, Wait: s.Patience(), Pause: w.pause}
	if s.Image != nil {
		built, err := image.New(ctx, "image", &image.Args{Image: *s.Image, Root: s.Root, Cluster: on.Cluster})
		if err != nil {
			return err
		}
		args.Image, args.PullPolicy = built.Reference, built.PullPolicy
		ctx.Export("image", built.Reference)
	}
	if identify := on.Cluster.Identify; s.Job != nil && identify != nil {
		is, err := identify("job", trainingjob.Account(s.Job))
		if err != nil {
			return err
		}
		args.Identity = is
	}
	var opts []pulumi.ResourceOption
	if s.Data != nil {
		copies := &dataset.Args{Data: *s.Data, Root: s.Root, Platform: on}
		if s.Image != nil || s.Job != nil { // otherwise to the bucket, without a pod
			copies.Image, copies.PullPolicy = args.Pulled()
		}
		brought, err := dataset.New(ctx, "dataset", copies)
		if err != nil {
			return err
		}
		opts = append(opts, pulumi.DependsOn([]pulumi.Resource{brought}))
	}
	if s.Job == nil {
		return nil
	}
	job, err := trainingjob.New(ctx, s.Job.Name, args, opts...)
	if err != nil {
		return err
	}
	ctx.Export("master", job.Master)
	ctx.Export("dashboard", job.Dashboard)
	ctx.Export("logs", job.Logs)
	ctx.Export("status", job.Status)
	return nil
}
