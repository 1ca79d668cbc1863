// Package dataset copies a public data set to the volume or the bucket of a stack, by `elasticdl
// dataset --to=…`, so that the job, which is created after it, has its data. A pod writes to the
// volume; this machine writes to the bucket, with the credentials that Pulumi has.
//
// Laws:
//
//  1. The data is copied once. It is copied again only if the data set, its source, its path, or
//     the volume or bucket changes. A new image, kubeconfig or elasticdl copies nothing.
//  2. The data is complete or absent, and files that exist already stay unchanged; so the next
//     `pulumi up` retries a copy that failed.
//  3. The kubeconfig may contain a key: it is a secret of the state, and is passed by the
//     environment into a file that only its owner can read and that is deleted at the end. It is in
//     no command's arguments.
//
// Deleting the command deletes no data: the data belongs to the volume or the bucket.
package dataset

import (
	"fmt"
	"os"

	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/platform"
	"github.com/elasticdl/elasticdl/infra/settings"
)

// Values are passed to the command by the environment, so that none needs quotes. A shell that a
// signal ends does not run its EXIT trap, hence the second trap.
const bring = `t=$(mktemp) && trap 'rm -f "$t"' EXIT && trap 'exit 1' HUP INT TERM && printf '%s\n' "$CREDENTIALS" >"$t" && unset CREDENTIALS &&
` + own + ` --kubeconfig="$t"`

const toBucket = `"$ELASTICDL" dataset "$DATASET" --to="$TO"`

const own = `"$ELASTICDL" dataset "$DATASET" --to="$TO" --namespace="$NAMESPACE" --image_name="$IMAGE"`

// patience is the time limit for a node to start, an image to be pulled, and the data to be copied.
const patience = "30m"

// Args has a data set, and where it is copied to.
type Args struct {
	settings.Data
	// Root is the directory to which paths are relative: that of Pulumi.yaml.
	Root     string
	Platform *platform.Platform
	// Image is that of the pod that copies to a claim, and PullPolicy its pull policy; "" = any.
	Image      pulumi.StringInput
	PullPolicy string
}

// check refuses data that has no place.
func (a *Args) check(name string) error {
	_, bucket := a.InBucket()
	switch {
	case a.Dataset == "" || a.Path == "":
		return fmt.Errorf("data %s: Args.Dataset or Args.Path is missing", name)
	case bucket && a.Platform.Cluster.Bucket == nil:
		return fmt.Errorf("data %s: %s: the cluster has no bucket", name, a.Path)
	case !bucket && (a.Platform.Cluster.Volume == nil || a.Image == nil):
		return fmt.Errorf("data %s: %s: a pod brings it to the claim: the cluster has no volume, or Args.Image, the "+
			"image of the pod, is missing", name, a.Path)
	}
	return a.Platform.Settings.Verify(a.CheckKept)
}

// New registers the command that copies a data set to the platform's claim, through a pod, or to
// the bucket of its cluster.
func New(ctx *pulumi.Context, name string, args *Args, opts ...pulumi.ResourceOption) (*local.Command, error) {
	if err := args.check(name); err != nil {
		return nil, err
	}
	c, err := args.begin()
	if err != nil {
		return nil, fmt.Errorf("data.dataset=%s: %w", args.Dataset, err)
	}
	var line *local.CommandArgs
	ready := args.Platform.Ready
	if dir, ok := args.InBucket(); ok {
		bucket := args.Platform.Cluster.Bucket
		line, ready = c.toBucket(bucket, dir), bucket.Ready
	} else {
		line = c.toClaim()
	}
	return local.NewCommand(ctx, name, line, append(opts,
		pulumi.DependsOn(ready),
		pulumi.Timeouts(&pulumi.CustomTimeouts{Create: patience}),
		// The environment does not trigger a copy. When a trigger replaces the command, the copy
		// uses the current environment.
		pulumi.IgnoreChanges([]string{"environment"}),
	)...)
}

// command is a command line whose values are in its environment.
type command struct {
	*Args
	environment pulumi.StringMap
	// directory, relative to the program's, or URL of the data set's files; "" = the public mirrors
	source string
}

// begin returns what the commands have in common.
func (a *Args) begin() (*command, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	elasticdl, err := infra.Program(a.Root, a.Command, dir)
	if err != nil {
		return nil, err
	}
	source := a.Source
	if source != "" && !a.Remote() {
		if source, err = infra.LocalPath(a.Root, source); err != nil {
			return nil, err
		}
	}
	return &command{a, pulumi.StringMap{"ELASTICDL": pulumi.String(elasticdl),
		"DATASET": pulumi.String(a.Dataset)}, source}, nil
}

// optional returns a flag with its value in the environment, or nothing if the value is empty.
func (c *command) optional(name, flag, value string) string {
	if value == "" {
		return ""
	}
	c.environment[name] = pulumi.String(value)
	return fmt.Sprintf(` --%s="$%s"`, flag, name)
}

// toClaim returns the command that writes through a pod.
func (c *command) toClaim() *local.CommandArgs {
	on := c.Platform
	cluster := on.Cluster
	c.environment["TO"] = pulumi.Sprintf("claim:%s/%s", on.Claim, c.Path)
	c.environment["NAMESPACE"], c.environment["IMAGE"] = pulumi.String(on.Namespace), c.Image
	line := own
	if !cluster.Local() {
		c.environment["CREDENTIALS"] = pulumi.ToSecret(cluster.Kubeconfig).(pulumi.StringOutput)
		line = bring
	}
	line += c.optional("SOURCE", "source", c.source) + c.optional("CONTEXT", "context", cluster.Context) +
		c.optional("PULL_POLICY", "image_pull_policy", c.PullPolicy)
	return c.args(line, cluster.Volume.ID)
}

// toBucket returns the command that writes from this machine. A profile of Amazon is the
// provider's: another identity may have no access to the bucket.
func (c *command) toBucket(bucket *infra.Bucket, dir string) *local.CommandArgs {
	c.environment["TO"] = pulumi.String(bucket.URL(dir))
	for name, value := range c.Platform.Cluster.Environment {
		c.environment[name] = pulumi.String(value)
	}
	return c.args(toBucket+c.optional("SOURCE", "source", c.source), bucket.ID)
}

// args returns the command of a line that copies to storage with an ID.
func (c *command) args(line string, storage pulumi.StringInput) *local.CommandArgs {
	return &local.CommandArgs{
		// without an update command, an update would run the create command
		Create: pulumi.String(line + " >&2"), Update: pulumi.String(":"),
		Environment: c.environment,
		Triggers: pulumi.Array{pulumi.String(c.Dataset), pulumi.String(c.Path),
			pulumi.String(c.source), storage},
		Logging: local.LoggingStderr, AddPreviousOutputInEnv: pulumi.Bool(false),
	}
}
