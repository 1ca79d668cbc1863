// Package dataset brings a public data set onto the volume of a stack, by `elasticdl dataset --to=claim:…`, so that the job
// which is made after it has its data.
//
// Laws:
//
//  1. It is brought once: again only if it is another data set, comes from elsewhere, goes elsewhere, or the volume is another.
//     A new image, kubeconfig or elasticdl brings nothing.
//  2. It is there whole or not at all, and what is there already stays as it is; so a copy that failed is tried again by the
//     next `pulumi up`.
//  3. The kubeconfig may have a key in it: it is a secret of the state, and goes through the environment into a file that only
//     its owner reads and that is gone at the end. It is in no command's arguments.
//
// To delete the command deletes nothing: the data is the volume's.
package dataset

import (
	"cmp"
	"fmt"
	"os"

	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/platform"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/infra/trainingjob"
)

// Name of the command.
const Name = "dataset"

// Values go into the command by the environment, so that none needs quotes. A signal ends a shell without its EXIT trap.
const bring = `t=$(mktemp) && trap 'rm -f "$t"' EXIT && trap 'exit 1' HUP INT TERM && printf '%s\n' "$CREDENTIALS" >"$t" && unset CREDENTIALS &&
"$ELASTICDL" dataset "$DATASET" --to="$TO" --namespace="$NAMESPACE" --image_name="$IMAGE" --kubeconfig="$t"`

// patience is for a node to come, an image to be pulled, and the data to be copied.
const patience = "30m"

// New registers what brings the data set of s.Data to the platform's claim, through a pod of the job's image.
func New(ctx *pulumi.Context, s *settings.Settings, cluster *infra.Cluster, on *platform.Platform, job *trainingjob.Args, opts ...pulumi.ResourceOption) (*local.Command, error) {
	args, err := command(s, cluster, on, job)
	if err != nil {
		return nil, fmt.Errorf("data.dataset=%s: %w", s.Data.Dataset, err)
	}
	return local.NewCommand(ctx, Name, args, append(opts,
		pulumi.DependsOn(on.Ready),
		pulumi.Timeouts(&pulumi.CustomTimeouts{Create: patience}),
		// What it is brought with. A command that is made anew for its triggers gets what there is then.
		pulumi.IgnoreChanges([]string{"environment"}),
	)...)
}

func command(s *settings.Settings, cluster *infra.Cluster, on *platform.Platform, job *trainingjob.Args) (*local.CommandArgs, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	elasticdl, err := infra.Program(s, s.Data.Command, dir)
	if err != nil {
		return nil, err
	}
	image, policy := job.Image, job.PullPolicy
	if image == nil {
		image, policy = pulumi.String(cmp.Or(job.Job.AgentImage, job.Job.Image)), job.Job.ImagePullPolicy
	}
	environment := pulumi.StringMap{
		"ELASTICDL": pulumi.String(elasticdl), "DATASET": pulumi.String(s.Data.Dataset),
		"TO": pulumi.Sprintf("claim:%s/%s", on.Claim, s.Data.Path), "NAMESPACE": pulumi.String(on.Namespace),
		"IMAGE": image, "CREDENTIALS": pulumi.ToSecret(cluster.Kubeconfig).(pulumi.StringOutput),
	}
	line, source := bring, s.Data.Source
	optional := func(name, flag, value string) {
		if value != "" {
			environment[name] = pulumi.String(value)
			line += fmt.Sprintf(` --%s="$%s"`, flag, name)
		}
	}
	if source != "" && !s.Data.Remote() {
		if source, err = infra.Here(s, source); err != nil {
			return nil, err
		}
	}
	optional("SOURCE", "source", source)
	optional("CONTEXT", "context", cluster.Context)
	optional("PULL_POLICY", "image_pull_policy", policy)
	return &local.CommandArgs{
		Create: pulumi.String(line + " >&2"), Update: pulumi.String(":"), // without it an update would create
		Environment: environment,
		Triggers:    pulumi.Array{pulumi.String(s.Data.Dataset), pulumi.String(s.Data.Path), pulumi.String(source), cluster.Volume.ID},
		Logging:     local.LoggingStderr, AddPreviousOutputInEnv: pulumi.Bool(false),
	}, nil
}
