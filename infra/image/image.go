package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
)

// Image is an image that the cluster's nodes can get.
type Image struct {
	Reference  pulumi.StringOutput
	PullPolicy string // the pull policy that it needs; "" = any
}

// defaultPlatform is the platform of the clouds' nodes, whatever the platform of the machine that
// builds.
const defaultPlatform = "linux/amd64"

// Values are passed to commands by the environment, so that none needs quotes. On its standard
// output a shell prints only the name of the image.
const (
	pushing = `%s "$SOURCE" >&2 &&
%s "$IMAGE"`
	// The command that prints the password may fail: then there is no password, which push reports.
	logged = `{ %s
} | "$ELASTICDL" zoo push --username="$REGISTRY_USER" --password_stdin`
	loading = `t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT && %s --output="$t/image.tar" "$SOURCE" >&2 &&
minikube -p "$PROFILE" image load "$t/image.tar" >&2 &&
{ minikube -p "$PROFILE" image ls | grep -F "$IMAGE" >&2 || { echo "minikube -p $PROFILE has not loaded $IMAGE" >&2; exit 1; }; } &&
echo "$IMAGE"`
)

// whatBuilds lists the inputs that define how an image is built, and not what is in it: a change of
// them builds nothing. When a trigger replaces the command, it uses their current values.
var whatBuilds = []string{"create", "dir", "environment"}

// Args has an image, and the cluster whose nodes get it.
type Args struct {
	settings.Image
	// Root is the directory to which paths are relative: that of Pulumi.yaml.
	Root    string
	Cluster *infra.Cluster
}

// New registers the command that builds an image.
func New(ctx *pulumi.Context, name string, args *Args, opts ...pulumi.ResourceOption) (*Image, error) {
	if args.Name == "" || args.Source == "" {
		return nil, fmt.Errorf("image %s: Args.Name or Args.Source is missing", name)
	}
	cluster := args.Cluster
	line, err := args.command(ctx.Context())
	if err != nil {
		return nil, fmt.Errorf("image.source=%s: %w", args.Source, err)
	}
	i := &Image{}
	if !hasRegistry(cluster) {
		i.PullPolicy = "Never"
		opts = append(opts, pulumi.DependsOn(cluster.Ready), pulumi.DeletedWith(cluster.Resource))
	}
	ignored := whatBuilds
	if args.Pin {
		// the hash; other triggers still count, because the image may not exist elsewhere
		ignored = append(slices.Clone(ignored), "triggers[0]")
	}
	made, err := local.NewCommand(ctx, name, line, append(opts, pulumi.IgnoreChanges(ignored))...)
	if err != nil {
		return nil, err
	}
	i.Reference = made.Stdout.ApplyT(func(out string) (string, error) {
		return reference(out, hasRegistry(cluster))
	}).(pulumi.StringOutput)
	return i, nil
}

func hasRegistry(cluster *infra.Cluster) bool { return cluster.Registry.OutputState != nil }

// command returns the command that builds an image and puts it where a cluster can get it.
func (a *Args) command(ctx context.Context) (*local.CommandArgs, error) {
	cluster, source := a.Cluster, a.Source
	if !filepath.IsAbs(source) {
		source = filepath.Join(a.Root, source)
	}
	source, err := filepath.Abs(source)
	if err != nil {
		return nil, err
	}
	platforms := a.Platforms
	if len(platforms) == 0 {
		platforms = []string{defaultPlatform}
	}
	hash, err := Hash(ctx, source, a.Base, platforms)
	if err != nil {
		return nil, err
	}
	// a binary is named relative to its own directory
	at, what := source, "."
	if info, err := os.Stat(source); err == nil && !info.IsDir() {
		at, what = filepath.Dir(source), "./"+filepath.Base(source)
	}
	dir, err := infra.LocalPath(a.Root, at)
	if err != nil {
		return nil, err
	}
	elasticdl, err := infra.Program(a.Root, a.Command, at)
	if err != nil {
		return nil, err
	}
	name, tag := a.Name, hash[:16]
	environment := pulumi.StringMap{
		"ELASTICDL": pulumi.String(elasticdl), "SOURCE": pulumi.String(what),
		"PLATFORMS": pulumi.String(strings.Join(platforms, ",")),
	}
	// not the SDK's default
	args := &local.CommandArgs{Dir: pulumi.String(dir), Environment: environment,
		AddPreviousOutputInEnv: pulumi.Bool(true)}
	building := `"$ELASTICDL" zoo build --image="$IMAGE" --platform="$PLATFORMS"`
	if a.Base != "" {
		environment["BASE"] = pulumi.String(a.Base)
		building += ` --base_image="$BASE"`
	}
	if !hasRegistry(cluster) {
		repository := "elasticdl/" + name
		environment["IMAGE"], environment["PROFILE"] = pulumi.String(repository+":"+tag), pulumi.String(cluster.Context)
		args.Create = pulumi.String(fmt.Sprintf(loading, building))
		// another minikube profile of the same name does not have the image
		args.Triggers = pulumi.Array{pulumi.String(hash), pulumi.String(repository), cluster.ID}
		return args, nil
	}
	repository := pulumi.Sprintf("%s/%s", cluster.Registry, name)
	environment["IMAGE"] = pulumi.Sprintf("%s:%s", repository, tag)
	push := `"$ELASTICDL" zoo push`
	if cluster.Login != nil {
		environment["REGISTRY_USER"] = pulumi.String(cluster.Login.User)
		push = fmt.Sprintf(logged, cluster.Login.Command)
	}
	args.Create = pulumi.String(fmt.Sprintf(pushing, building, push))
	args.Triggers = pulumi.Array{pulumi.String(hash), repository}
	return args, nil
}

// reference returns the name of an image that a command printed, with a digest. It drops the tag,
// which is derived from the source: so builds of different sources that give the same content have
// the same name.
func reference(out string, digest bool) (string, error) {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	name, sum, ok := strings.Cut(last, "@sha256:")
	if last == "" || strings.ContainsAny(last, " \t") || digest && !ok {
		return "", fmt.Errorf("image: expected the name of an image as the last line that elasticdl "+
			"prints, not %q", last)
	}
	if !ok {
		return last, nil
	}
	// the colon of a port is before a slash
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name = name[:colon]
	}
	return name + "@sha256:" + sum, nil
}
