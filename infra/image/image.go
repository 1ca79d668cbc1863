package image

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
)

// Image is one that the cluster's nodes can get.
type Image struct {
	Reference  pulumi.StringOutput
	PullPolicy string // that it needs; "": any
}

// defaultPlatform is that of the clouds' nodes, whatever the machine is that it is built on.
const defaultPlatform = "linux/amd64"

// Values go into commands by the environment, so that none needs quotes. What a shell prints on its standard output is the
// name of the image, and nothing else.
const (
	pushing = `%s "$SOURCE" >&2 &&
%s "$IMAGE"`
	// What prints the password may fail: then there is none, which push reports.
	logged = `{ %s
} | "$ELASTICDL" zoo push --username="$REGISTRY_USER" --password_stdin`
	loading = `t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT && %s --output="$t/image.tar" "$SOURCE" >&2 &&
minikube -p "$PROFILE" image load "$t/image.tar" >&2 &&
{ minikube -p "$PROFILE" image ls | grep -F "$IMAGE" >&2 || { echo "minikube -p $PROFILE has not loaded $IMAGE" >&2; exit 1; }; } &&
echo "$IMAGE"`
)

// New registers what builds the image of s.Image.
func New(ctx *pulumi.Context, s *infra.Settings, cluster *infra.Cluster, opts ...pulumi.ResourceOption) (*Image, error) {
	args, err := command(s, cluster)
	if err != nil {
		return nil, fmt.Errorf("image.source=%s: %w", s.Image.Source, err)
	}
	i := &Image{}
	if !hasRegistry(cluster) {
		i.PullPolicy = "Never"
		opts = append(opts, pulumi.DependsOn(cluster.Ready), pulumi.DeletedWith(cluster.Resource))
	}
	made, err := local.NewCommand(ctx, "image", args, opts...)
	if err != nil {
		return nil, err
	}
	i.Reference = made.Stdout.ApplyT(func(out string) (string, error) { return reference(out, hasRegistry(cluster)) }).(pulumi.StringOutput)
	return i, nil
}

func hasRegistry(cluster *infra.Cluster) bool { return cluster.Registry.OutputState != nil }

// command is what builds an image and brings it to a cluster.
func command(s *infra.Settings, cluster *infra.Cluster) (*local.CommandArgs, error) {
	source, err := filepath.Abs(s.Path(s.Image.Source))
	if err != nil {
		return nil, err
	}
	platforms := s.Image.Platforms
	if len(platforms) == 0 {
		platforms = []string{defaultPlatform}
	}
	hash, err := Hash(source, s.Image.Base, platforms)
	if err != nil {
		return nil, err
	}
	dir, err := s.Here(s.Image.Source)
	if err != nil {
		return nil, err
	}
	elasticdl, err := s.Program(s.Image.Command, source)
	if err != nil {
		return nil, err
	}
	name, tag := s.Image.Name, hash[:16]
	if name == "" && s.Job != nil {
		name = s.Job.Name
	}
	environment := pulumi.StringMap{
		"ELASTICDL": pulumi.String(elasticdl), "SOURCE": pulumi.String("."),
		"PLATFORMS": pulumi.String(strings.Join(platforms, ",")),
	}
	args := &local.CommandArgs{Dir: pulumi.String(dir), Environment: environment, AddPreviousOutputInEnv: pulumi.Bool(true)} // said, so that it is no SDK's default
	building := `"$ELASTICDL" zoo build --image="$IMAGE" --platform="$PLATFORMS"`
	if s.Image.Base != "" {
		environment["BASE"] = pulumi.String(s.Image.Base)
		building += ` --base_image="$BASE"`
	}
	if !hasRegistry(cluster) {
		environment["IMAGE"], environment["PROFILE"] = pulumi.Sprintf("elasticdl/%s:%s", name, tag), pulumi.String(cluster.Context)
		args.Create = pulumi.String(fmt.Sprintf(loading, building))
		args.Triggers = pulumi.Array{pulumi.String(hash), cluster.ID} // another minikube of that name has no image
		return args, nil
	}
	environment["IMAGE"] = pulumi.Sprintf("%s/%s:%s", cluster.Registry, name, tag)
	push := `"$ELASTICDL" zoo push`
	if cluster.Login != nil {
		environment["REGISTRY_USER"] = pulumi.String(cluster.Login.User)
		push = fmt.Sprintf(logged, cluster.Login.Command)
	}
	args.Create = pulumi.String(fmt.Sprintf(pushing, building, push))
	args.Triggers = pulumi.Array{pulumi.String(hash)}
	return args, nil
}

// reference is the name of an image that a command printed.
func reference(out string, digest bool) (string, error) {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	if last == "" || strings.ContainsAny(last, " \t") || digest && !strings.Contains(last, "@sha256:") {
		return "", fmt.Errorf("image: expected the name of an image as the last line that elasticdl prints, not %q", last)
	}
	return last, nil
}
