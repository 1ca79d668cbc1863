package image

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/graph"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

const (
	kindCommand = "command:local:Command"
	digest      = "@sha256:1111111111111111111111111111111111111111111111111111111111111111"
)

// record returns the resources of a stack whose image is built, and the image's name as others get
// it; "" while it is unknown.
func record(t *testing.T, preview bool, s *settings.Settings, cloud string,
	printed string) ([]graph.Resource, *Image, string, error) {
	t.Helper()
	var made *Image
	var got string
	all, err := graph.Record(graph.Cloud{Preview: preview, Outputs: func(r graph.Resource) resource.PropertyMap {
		switch {
		case preview:
			return nil
		case r.Type == "test:index:Registry":
			return resource.PropertyMap{"url": resource.NewProperty("us-central1-docker.pkg.dev/p/elasticdl")}
		}
		return resource.PropertyMap{"stdout": resource.NewProperty(printed)}
	}}, func(ctx *pulumi.Context) error {
		var registry struct {
			pulumi.CustomResourceState
			URL pulumi.StringOutput `pulumi:"url"`
		}
		var start pulumi.CustomResourceState
		cluster := &infra.Cluster{Context: "elasticdl-test", ID: pulumi.String("elasticdl-test/1"),
			Resource: &start, Ready: []pulumi.Resource{&start}}
		if err := ctx.RegisterResource("test:index:Start", "start", pulumi.Map{}, &start); err != nil {
			return err
		}
		if cloud != settings.CloudMinikube {
			if err := ctx.RegisterResource("test:index:Registry", "images", pulumi.Map{}, &registry); err != nil {
				return err
			}
			cluster.Registry = registry.URL
			cluster.Login = &settings.Login{User: "oauth2accesstoken", Command: "print-password --for me"}
		}
		args := &Args{Image: *s.Image, Root: s.Root, Cluster: cluster}
		args.Name = s.ImageName()
		i, err := New(ctx, "image", args)
		if err != nil {
			return err
		}
		made = i
		i.Reference.ApplyT(func(name string) string { got = name; return name })
		return nil
	})
	return all, made, got, err
}

// write creates files, by their names below a directory.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// project creates the directory of a Pulumi.yaml with a model zoo below it, changes to it, and
// returns the settings.
func project(t *testing.T) *settings.Settings {
	t.Helper()
	root := t.TempDir()
	write(t, root, map[string]string{
		"zoo/go.mod": "module example.com/zoo\n\ngo 1.26\n", "zoo/main.go": "package main\n\nfunc main() {}\n",
		"stacks/Pulumi.gke.yaml": "config: {}\n",
	})
	t.Chdir(filepath.Join(root, "stacks"))
	return &settings.Settings{Root: "..", Job: &job.Job{Name: "test-mnist"}, Image: &settings.Image{Source: "zoo"}}
}

func TestGolden(t *testing.T) {
	const (
		printed = "us-central1-docker.pkg.dev/p/elasticdl/test-mnist:0123" + digest
		// whatever the tag is
		named = "us-central1-docker.pkg.dev/p/elasticdl/test-mnist" + digest
	)
	home, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	s := project(t)
	write(t, "..", map[string]string{"zoo/build/elasticdl": "a binary: the hash of source has Go's version in it"})
	s.Image.Source = "zoo/build/elasticdl"
	graphs := make(map[string][]graph.Resource)
	for _, test := range []struct {
		name, cloud, printed string
		preview              bool
		want, policy         string
	}{
		{"registry-preview", settings.CloudGKE, printed, true, "", ""},
		{"registry-up", settings.CloudGKE, printed, false, named, ""},
		{"minikube-up", settings.CloudMinikube, "elasticdl/test-mnist:0123", false,
			"elasticdl/test-mnist:0123", "Never"},
	} {
		all, made, got, err := record(t, test.preview, s, test.cloud, test.printed)
		if err != nil {
			t.Fatal(err)
		}
		if got != test.want || made.PullPolicy != test.policy {
			t.Errorf("%s: the image is %q, want %q; pulled %q", test.name, got, test.want, made.PullPolicy)
		}
		graphs[test.name] = all
	}
	t.Chdir(home) // the golden files are there
	for name, all := range graphs {
		graph.Golden(t, name, all)
	}
}

// run executes a command as Pulumi's provider does, with programs that report how they were called.
func run(t *testing.T, all []graph.Resource, programs map[string]string) (stdout, stderr string, err error) {
	t.Helper()
	bin := t.TempDir()
	write(t, bin, programs)
	inputs := graph.Find(all, kindCommand, "image").Inputs
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", inputs["create"].StringValue())
	cmd.Dir = inputs["dir"].StringValue()
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "LOG="+filepath.Join(bin, "log"))
	for name, value := range inputs["environment"].ObjectValue() {
		cmd.Env = append(cmd.Env, string(name)+"="+value.StringValue())
	}
	var out, errors bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errors
	err = cmd.Run()
	log, _ := os.ReadFile(filepath.Join(bin, "log"))
	return out.String(), errors.String() + string(log), err
}

// fakes returns programs that record how they were called, and in which directory; minikube has the
// image that was loaded last.
func fakes() map[string]string {
	return map[string]string{
		"elasticdl": `#!/bin/sh
for a; do printf '[%s]' "$a" >> "$LOG"; done
echo " in $(basename "$PWD")" >> "$LOG"
if [ "$2" = build ]; then echo built, and reports it; for a; do case $a in --output=*) echo an image > "${a#--output=}";; esac; done; exit ${BUILD:-0}; fi
[ "$4" = --password_stdin ] && read -r password && echo "password $password" >> "$LOG"
for a; do :; done
echo pushing >&2
[ -z "$password" ] && exit 1
echo "$a` + digest + `"
`,
		"print-password": "#!/bin/sh\necho secret\n",
		"minikube": `#!/bin/sh
echo "minikube $*" | sed 's,/[^ ]*/,TMP/,' >> "$LOG"
case "$4" in
load) [ "$(cat "$5")" = "an image" ];;
ls) echo docker.io/library/other:1; [ -n "$FORGETS" ] || echo "docker.io/$IMAGE";;
esac
`,
	}
}

func TestCommands(t *testing.T) {
	s := project(t)
	s.Image.Name, s.Image.Base, s.Image.Platforms = "mnist", "debian:$(touch owned) '\"stable",
		[]string{"linux/amd64", "linux/arm64"}
	hash, err := Hash(t.Context(), "../zoo", s.Image.Base, s.Image.Platforms)
	if err != nil {
		t.Fatal(err)
	}
	all, _, _, err := record(t, false, s, settings.CloudGKE, "x"+digest)
	if err != nil {
		t.Fatal(err)
	}
	image := "us-central1-docker.pkg.dev/p/elasticdl/mnist:" + hash[:16]
	stdout, log, err := run(t, all, fakes())
	if want := image + digest + "\n"; err != nil || stdout != want {
		t.Errorf("printed %q, want %q: %v\n%s", stdout, want, err, log)
	}
	for _, want := range []string{
		`[zoo][build][--image=` + image +
			`][--platform=linux/amd64,linux/arm64][--base_image=debian:$(touch owned) '"stable][.] in zoo`,
		"built, and reports it", `[zoo][push][--username=oauth2accesstoken][--password_stdin][` + image +
			`] in zoo`, "password secret",
	} {
		if !strings.Contains(log, want+"\n") {
			t.Errorf("lacks %s\n%s", want, log)
		}
	}
	if text := fmt.Sprint(all); strings.Contains(text, "secret") {
		t.Errorf("the stack knows the password: %s", text)
	}

	t.Setenv("BUILD", "3")
	if stdout, log, err := run(t, all, fakes()); err == nil || stdout != "" || strings.Contains(log, "push") {
		t.Errorf("what was not built was pushed: %q %v\n%s", stdout, err, log)
	}
	t.Setenv("BUILD", "0")
	programs := fakes()
	programs["print-password"] = "#!/bin/sh\nexit 1\n"
	if stdout, log, err := run(t, all, programs); err == nil || stdout != "" {
		t.Errorf("pushed without a password: %q\n%s", stdout, log)
	}
}

func TestMinikube(t *testing.T) {
	s := project(t)
	s.Image.Command = "build/elasticdl" // relative to Pulumi.yaml
	hash, err := Hash(t.Context(), "../zoo", "", []string{defaultPlatform})
	if err != nil {
		t.Fatal(err)
	}
	image := "elasticdl/test-mnist:" + hash[:16]
	all, _, _, err := record(t, false, s, settings.CloudMinikube, image)
	if err != nil {
		t.Fatal(err)
	}
	programs := fakes()
	write(t, "..", map[string]string{"build/elasticdl": programs["elasticdl"]})
	delete(programs, "elasticdl")
	stdout, log, err := run(t, all, programs)
	if want := image + "\n"; err != nil || stdout != want {
		t.Errorf("printed %q, want %q: %v\n%s", stdout, want, err, log)
	}
	if want := "minikube -p elasticdl-test image load TMP/image.tar\nminikube -p elasticdl-test " +
		"image ls\n"; !strings.Contains(log, want) {
		t.Errorf("lacks %s\n%s", want, log)
	}
	// minikube may not report an image that it has not loaded
	t.Setenv("FORGETS", "1")
	if stdout, log, err := run(t, all, programs); err == nil || stdout != "" ||
		!strings.Contains(log, "minikube -p elasticdl-test has not loaded "+image) {
		t.Errorf("%q %v\n%s", stdout, err, log)
	}
	command := graph.Find(all, kindCommand, "image")
	if o := command.Options; o.DeletedWith != "test:index:Start start" ||
		!slices.Contains(o.DependsOn, "test:index:Start start") {
		t.Errorf("%+v", o)
	}
	if triggers := command.Inputs["triggers"].ArrayValue(); len(triggers) != 3 ||
		triggers[2].StringValue() != "elasticdl-test/1" {
		t.Errorf("another minikube of the name gets no image: %v", triggers)
	}
}

// A source may be an absolute path.
func TestAbsoluteSource(t *testing.T) {
	s := project(t)
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	var images []string
	for _, source := range []string{"zoo", filepath.Join(filepath.Dir(dir), "zoo")} {
		s.Image.Source = source
		all, _, _, err := record(t, false, s, settings.CloudMinikube, "elasticdl/test-mnist:0123")
		if err != nil {
			t.Fatal(err)
		}
		inputs := graph.Find(all, kindCommand, "image").Inputs
		images = append(images, fmt.Sprint(inputs["dir"], inputs["triggers"]))
	}
	if images[0] != images[1] {
		t.Errorf("%s, and by an absolute path %s", images[0], images[1])
	}
}

// The output of a command is the name of an image, or an error.
func TestReference(t *testing.T) {
	for _, test := range []struct {
		out    string
		digest bool
		want   string
	}{
		{"r/a:1" + digest + "\n", true, "r/a" + digest}, {"r/a:2" + digest + "\n", true, "r/a" + digest},
		{"note\nr:5000/a:1" + digest, true, "r:5000/a" + digest}, {"r:5000/a" + digest, true, "r:5000/a" + digest},
		{"r/a:1\n", false, "r/a:1"},
		{"r/a:1\n", true, ""}, {"", false, ""}, {"two words", false, ""},
	} {
		if got, err := reference(test.out, test.digest); got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%q: %q, %v", test.out, got, err)
		}
	}
}
