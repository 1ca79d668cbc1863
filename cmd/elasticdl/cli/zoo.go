package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/elasticdl/elasticdl/cmd/elasticdl/command"
	"github.com/elasticdl/elasticdl/trainer/runtime/image"
	"github.com/elasticdl/elasticdl/trainer/runtime/local"
)

func zooCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "zoo",
		Short: "Create a module for your own models, and build and push images for a cluster",
		Example: "  elasticdl zoo init --model_zoo=model_zoo\n" +
			"  elasticdl zoo build --image=REGISTRY/elasticdl:mnist .\n" +
			"  elasticdl zoo push REGISTRY/elasticdl:mnist",
		Args: subcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(zooInitCommand(), zooBuildCommand(), zooPushCommand())
	return cmd
}

// zooBuild holds the arguments of zoo build.
type zooBuild struct {
	path, image, base, output string
	platforms, binary         []string
	insecure                  bool
}

func zooBuildCommand() *cobra.Command {
	var b zooBuild
	cmd := &cobra.Command{
		Use:   "build [PATH]",
		Short: "Build an image of a model zoo, or of a program's files",
		Long: `Build an image of a model zoo, or of a program's files, for the pods of a cluster. Docker is not needed.

PATH (default: the current directory) is a directory in which zoo init was run, a Go module with
such a main package, or a static binary of ElasticDL, such as build/elasticdl with the built-in
models. The image has the binary at /elasticdl and, without --base_image, only certificate
authorities and /tmp. It is stored in the state directory, where ` + "`elasticdl zoo push`" + ` finds it.
The same input gives the same digest.

PATH may also be a directory of other files, such as Python or shell scripts, for elasticdl run.
Then --base_image must contain their dependencies, such as Python and its packages. The new image
has the directory at ` + image.WorkDir + `, the working directory, and elasticdl at /elasticdl. It
excludes .git, Python caches, virtual environments, .env files, and files listed in the directory's
.dockerignore. Base layers are pulled once.

minikube and kind load an image without a registry, from the file of --output:
  minikube image load FILE    kind load image-archive FILE
  docker load -i FILE         ctr -n k8s.io images import FILE
Jobs then need --image_pull_policy=IfNotPresent or Never. In a shell with ` + "`eval $(minikube " +
			"docker-env)`" + ` the
image is loaded into that minikube, as with docker build.`,
		Example: "  elasticdl zoo build --image=gcr.io/my-project/elasticdl:mnist .\n" +
			"  elasticdl zoo build --image=registry/elasticdl:mnist --platform=linux/amd64,linux/arm64\n" +
			"  elasticdl zoo build --image=registry/mine:1 " +
			"--base_image=pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime .\n" +
			"  elasticdl zoo build --image=elasticdl:mnist --output=mnist.tar && minikube image load mnist.tar",
		Args: func(_ *cobra.Command, args []string) error {
			if b.path = "."; len(args) > 0 {
				b.path = args[0]
			}
			return errors.Join(atMost(1, args), b.check())
		},
		RunE: command.Does(func(cmd *cobra.Command, _ []string) error { return b.run(cmd) }),
	}
	flags := cmd.Flags()
	flags.StringVar(&b.image, "image", "", "REGISTRY/NAME:TAG of the image (required)")
	flags.StringSliceVar(&b.platforms, "platform", []string{"linux/" + runtime.GOARCH},
		"platforms of the image; one image for each")
	flags.StringVar(&b.base, "base_image", "",
		"base image, built here or in a registry; default: that of zoo init, else none")
	flags.StringSliceVar(&b.binary, "binary", nil,
		"for scripts: static elasticdl binaries for Linux, one per platform; default: this binary")
	flags.BoolVar(&b.insecure, "insecure", false,
		"allow plain HTTP to the registry of --base_image (always allowed on this machine)")
	flags.StringVar(&b.output, "output", "", "file for the image, too, for docker load and similar commands")
	dockerFlags(flags)
	return cmd
}

func atMost(n int, args []string) error {
	if len(args) > n {
		return fmt.Errorf("unexpected argument %q", args[n])
	}
	return nil
}

// check returns all mistakes in the flags.
func (b *zooBuild) check() error {
	var problems []error
	if b.image == "" {
		problems = append(problems,
			errors.New("--image: expected REGISTRY/NAME:TAG"))
	} else if err := image.CheckName(b.image); err != nil {
		problems = append(problems, fmt.Errorf("--image=%s: %w", b.image, err))
	}
	for _, p := range b.platforms {
		if err := image.CheckPlatform(p); err != nil {
			problems = append(problems, fmt.Errorf("--platform=%s: %w", p, err))
		}
	}
	if len(b.platforms) == 0 {
		problems = append(problems, errors.New("--platform: expected linux/ARCHITECTURE, as linux/amd64"))
	}
	if b.output != "" && len(b.platforms) > 1 {
		problems = append(problems,
			fmt.Errorf("--output=%s: requires one platform, but --platform=%s are several", b.output,
				strings.Join(b.platforms, ",")))
	}
	if b.base != "" {
		if err := image.CheckReference(b.base); err != nil {
			problems = append(problems, fmt.Errorf("--base_image=%s: %w", b.base, err))
		}
	}
	if _, err := os.Stat(b.path); err != nil {
		problems = append(problems,
			fmt.Errorf("PATH %s: expected the directory of a model zoo, or a binary: %w", b.path, errors.Unwrap(err)))
	}
	return errors.Join(problems...)
}

func (b *zooBuild) run(cmd *cobra.Command) error {
	ctx := cmd.Context()
	noteDocker(cmd)
	show := &steps{out: cmd.ErrOrStderr()}
	defer show.close()
	progress := func(p image.Progress) { show.show(stepProgress(p)) }
	store, err := images()
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "elasticdl-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := b.follow(); err != nil {
		return err
	}
	c := image.Config{Name: b.image, Insecure: b.insecure, Built: store}
	if err := b.contents(cmd, &c, work, progress); err != nil {
		return err
	}
	c.Base = b.base
	if c.Base == "" {
		if c.Certificates = image.Certificates(); c.Certificates == "" {
			fmt.Fprintln(cmd.ErrOrStderr(),
				"note: the image has no certificate authorities: none were found on this machine "+
					"(SSL_CERT_FILE can name their file)")
		}
	}
	made, err := image.Assemble(ctx, c, work, progress)
	if err != nil {
		return err
	}
	if err := store.Save(ctx, made, progress); err != nil {
		return err
	}
	next, err := b.pass(ctx, store, made, progress)
	if err != nil {
		return err
	}
	show.close()
	code := ""
	if c.Code != nil {
		code = ", with " + count(int64(c.Code.Files()), "file") + " at " + image.WorkDir
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s built: %s, %.1f MB, for %s%s; now: %s\n",
		b.image, made.Digest, float64(made.Size)/1e6, strings.Join(made.Platforms, ", "), code, next)
	return err
}

// pass writes a saved image to --output, and loads it into the minikube that this shell's
// environment names. It returns the next command for the user.
func (b *zooBuild) pass(ctx context.Context, store image.Store, made *image.Image,
	progress func(image.Progress)) (next string, err error) {
	kept, err := store.Open(b.image) // with layers that are files of the store
	if err != nil {
		return "", err
	}
	kept.Platforms = made.Platforms
	if b.output != "" {
		if err := image.WriteArchive(kept, b.output); err != nil {
			return "", err
		}
	}
	node := image.ActiveNode(os.Getenv)
	switch {
	case node != nil && len(made.Platforms) > 1:
		return "", fmt.Errorf("%s is saved, but not loaded into minikube's profile %s, which %s "+
			"names: expected one --platform", b.image, node.Profile, node.By)
	case node != nil:
		progress(image.Progress{Step: "load into minikube's profile " + node.Profile})
		return "elasticdl train --image_name=" + b.image + " --image_pull_policy=Never …", node.Load(ctx, kept)
	case b.output != "":
		return "minikube image load " + b.output, nil
	}
	return "elasticdl zoo push " + b.image, nil
}

// follow replaces PATH and --base_image by those that zoo init has written into PATH, if any.
func (b *zooBuild) follow() error {
	if info, err := os.Stat(b.path); err != nil || !info.IsDir() {
		return err
	}
	r, err := readRecipe(b.path)
	if err != nil || r == nil {
		return command.Usage(err)
	}
	if b.path = filepath.Join(b.path, filepath.FromSlash(r.ModelZoo)); filepath.IsAbs(r.ModelZoo) {
		b.path = r.ModelZoo
	}
	if b.base == "" {
		b.base = r.BaseImage
	}
	return nil
}

func zooPushCommand() *cobra.Command {
	var p zooPush
	cmd := &cobra.Command{
		Use:   "push IMAGE",
		Short: "Push an image of zoo build to its registry",
		Long: `Push an image of zoo build to its registry.

Credentials are those of Docker, in ~/.docker/config.json or its credential helpers, as written by
"docker login REGISTRY" or "gcloud auth configure-docker"; or --username with a password on
standard input. The command prints the immutable name of the image, REGISTRY/NAME:TAG@sha256:….`,
		Example: "  elasticdl zoo push gcr.io/my-project/elasticdl:mnist\n" +
			"  gcloud auth print-access-token | elasticdl zoo push --username=oauth2accesstoken " +
			"--password-stdin us-central1-docker.pkg.dev/my-project/models/mnist:1\n" +
			"  aws ecr get-login-password | elasticdl zoo push --username=AWS --password-stdin " +
			"123456789012.dkr.ecr.us-west-2.amazonaws.com/mnist:1",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("expected the name of an image, as: elasticdl zoo push REGISTRY/elasticdl:mnist")
			}
			err := image.CheckName(args[0])
			if err != nil {
				err = fmt.Errorf("IMAGE %s: %w", args[0], err)
			}
			return errors.Join(atMost(1, args), err, p.check(cmd))
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			store, _ := images() // nothing to offer without one
			return store.Names(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: command.Does(func(cmd *cobra.Command, args []string) error { return p.run(cmd, args[0]) }),
	}
	cmd.Flags().BoolVar(&p.insecure, "insecure", false,
		"allow plain HTTP to the registry (always allowed on this machine)")
	cmd.Flags().StringVar(&p.user, "username", "", "user of the registry, with --password_stdin")
	cmd.Flags().BoolVar(&p.password, "password_stdin", false, "read the user's password from standard input")
	dockerFlags(cmd.Flags())
	return cmd
}

// dockerFlags defines the flags with which ElasticDL's commands selected Docker. They have no
// effect.
func dockerFlags(flags *pflag.FlagSet) {
	for _, name := range ofDocker {
		flags.String(name, "", "no effect: no Docker is needed")
		flags.MarkHidden(name)
	}
}

var ofDocker = []string{"docker_base_url", "docker_tlscert", "docker_tlskey"}

// noteDocker prints a note about given flags of Docker.
func noteDocker(cmd *cobra.Command) {
	var given []string
	for _, name := range ofDocker {
		if cmd.Flags().Changed(name) {
			given = append(given, "--"+name)
		}
	}
	if len(given) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: no effect: %s; no Docker is needed\n", strings.Join(given, ", "))
	}
}

// zooPush holds the arguments of zoo push.
type zooPush struct {
	user               string
	password, insecure bool
}

func (p *zooPush) check(cmd *cobra.Command) error {
	switch {
	case p.password && p.user == "":
		return errors.New("--password_stdin requires --username")
	case cmd.Flags().Changed("username") && !p.password:
		return fmt.Errorf("--username=%s requires --password_stdin, with the password on standard input", p.user)
	}
	return nil
}

// login returns the user and password for a push; nil: those of Docker's configuration are used.
// The line end after the password on standard input is removed.
func (p *zooPush) login(in io.Reader) (*image.Login, error) {
	if !p.password {
		return nil, nil
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, fmt.Errorf("--password_stdin: %w", err)
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" {
		return nil, errors.New("--password_stdin: expected a password on standard input, which is empty")
	}
	return &image.Login{User: p.user, Password: password}, nil
}

func (p *zooPush) run(cmd *cobra.Command, name string) error {
	noteDocker(cmd)
	store, err := images()
	if err != nil {
		return err
	}
	made, err := store.Open(name)
	if errors.Is(err, image.ErrNotFound) {
		there := ""
		if names := store.Names(); len(names) > 0 {
			there = "; there are " + strings.Join(names, ", ")
		}
		return fmt.Errorf("%w: elasticdl zoo build --image=%s makes it%s", err, name, there)
	}
	if err != nil {
		return err
	}
	login, err := p.login(cmd.InOrStdin())
	if err != nil {
		return err
	}
	show := &steps{out: cmd.ErrOrStderr()}
	pushed, err := image.Push(cmd.Context(), made, login, p.insecure, func(p image.Progress) {
		show.show(stepProgress(p))
	})
	show.close()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), pushed)
	return err
}

// images returns the store of the images that were built on this machine.
func images() (image.Store, error) {
	home, err := local.Home()
	return image.Store(filepath.Join(home, "images")), err
}
