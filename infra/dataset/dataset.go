// Package dataset copies a public data set to the volume of a stack, by `elasticdl dataset
// --to=claim:…`, so that the job, which is created after it, has its data.
//
// Laws:
//
//  1. The data is copied once. It is copied again only if the data set, its source, its path or the
//     volume changes. A new image, kubeconfig or elasticdl copies nothing.
//  2. The data is complete or absent, and files that exist already stay unchanged; so the next
//     `pulumi up` retries a copy that failed.
//  3. The kubeconfig may contain a key: it is a secret of the state, and is passed by the
//     environment into a file that only its owner can read and that is deleted at the end. It is in
//     no command's arguments.
//
// Deleting the command deletes no data: the data belongs to the volume.
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

// Name is the name of the command's resource.
const Name = "dataset"

// Values are passed to the command by the environment, so that none needs quotes. A shell that a
// signal ends does not run its EXIT trap, hence the second trap.
const bring = `t=$(mktemp) && trap 'rm -f "$t"' EXIT && trap 'exit 1' HUP INT TERM && printf '%s\n' "$CREDENTIALS" >"$t" && unset CREDENTIALS &&
` + own + ` --kubeconfig="$t"`

const own = `"$ELASTICDL" dataset "$DATASET" --to="$TO" --namespace="$NAMESPACE" --image_name="$IMAGE"`

// patience is the time limit for a node to start, an image to be pulled, and the data to be copied.
const patience = "30m"

// New registers the command that copies the data set of s.Data to the platform's claim, through a
// pod of the job's image.
func New(ctx *pulumi.Context, s *settings.Settings, cluster *infra.Cluster, on *platform.Platform,
	job *trainingjob.Args, opts ...pulumi.ResourceOption) (*local.Command, error) {
	args, err := command(s, cluster, on, job)
	if err != nil {
		return nil, fmt.Errorf("data.dataset=%s: %w", s.Data.Dataset, err)
	}
	return local.NewCommand(ctx, Name, args, append(opts,
		pulumi.DependsOn(on.Ready),
		pulumi.Timeouts(&pulumi.CustomTimeouts{Create: patience}),
		// The environment does not trigger a copy. When a trigger replaces the command, the copy
		// uses the current environment.
		pulumi.IgnoreChanges([]string{"environment"}),
	)...)
}

func command(s *settings.Settings, cluster *infra.Cluster, on *platform.Platform,
	job *trainingjob.Args) (*local.CommandArgs, error) {
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
		"IMAGE": image,
	}
	line, source := own, s.Data.Source
	if !cluster.Local() {
		environment["CREDENTIALS"] = pulumi.ToSecret(cluster.Kubeconfig).(pulumi.StringOutput)
		line = bring
	}
	optional := func(name, flag, value string) {
		if value != "" {
			environment[name] = pulumi.String(value)
			line += fmt.Sprintf(` --%s="$%s"`, flag, name)
		}
	}
	if source != "" && !s.Data.Remote() {
		if source, err = infra.LocalPath(s, source); err != nil {
			return nil, err
		}
	}
	optional("SOURCE", "source", source)
	optional("CONTEXT", "context", cluster.Context)
	optional("PULL_POLICY", "image_pull_policy", policy)
	return &local.CommandArgs{
		// without an update command, an update would run the create command
		Create: pulumi.String(line + " >&2"), Update: pulumi.String(":"),
		Environment: environment,
		Triggers: pulumi.Array{pulumi.String(s.Data.Dataset), pulumi.String(s.Data.Path),
			pulumi.String(source), cluster.Volume.ID},
		Logging: local.LoggingStderr, AddPreviousOutputInEnv: pulumi.Bool(false),
	}, nil
}
