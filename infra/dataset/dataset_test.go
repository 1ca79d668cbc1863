package dataset

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
	"github.com/elasticdl/elasticdl/infra/platform"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/infra/trainingjob"
	"github.com/elasticdl/elasticdl/test/graph"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

const (
	kindCommand = "command:local:Command"
	kubeconfig  = "users:\n- user: {client-key-data: 'it''s a $KEY'}"
)

// record returns the resources that a stack with a data set requests.
func record(t *testing.T, preview bool, s *settings.Settings, context string, of *trainingjob.Args) []graph.Resource {
	t.Helper()
	all, err := graph.Record(graph.Cloud{Preview: preview, Outputs: func(r graph.Resource) resource.PropertyMap {
		if preview {
			// Pulumi's mocks refuse unknown secrets
			return resource.PropertyMap{"kubeconfig": resource.NewProperty(kubeconfig)}
		}
		return resource.PropertyMap{"kubeconfig": resource.NewProperty(kubeconfig),
			"volume": resource.NewProperty("fs-1"), "image": resource.NewProperty("r/mnist@sha256:1")}
	}}, func(ctx *pulumi.Context) error {
		var world struct {
			pulumi.CustomResourceState
			Kubeconfig pulumi.StringOutput `pulumi:"kubeconfig"`
			Volume     pulumi.StringOutput `pulumi:"volume"`
			Image      pulumi.StringOutput `pulumi:"image"`
		}
		if err := ctx.RegisterResource("test:index:World", "world", pulumi.Map{}, &world); err != nil {
			return err
		}
		cluster := &infra.Cluster{Settings: s, Context: context, Kubeconfig: world.Kubeconfig,
			Volume: &infra.Volume{ID: world.Volume}}
		if _, ok := s.Data.InBucket(); ok {
			var bucket pulumi.CustomResourceState
			if err := ctx.RegisterResource("test:index:Bucket", "data", pulumi.Map{}, &bucket); err != nil {
				return err
			}
			cluster.Volume, cluster.Bucket = nil, &infra.Bucket{ID: bucket.ID(), Ready: []pulumi.Resource{&bucket},
				Store: settings.Store{Scheme: "s3", Name: "stack-data", Query: "region=us-west-2"}}
		}
		if s.EKS != nil && s.EKS.Profile != "" {
			cluster.Environment = map[string]string{"AWS_PROFILE": s.EKS.Profile}
		}
		on := &platform.Platform{Settings: new(settings.Settings), Cluster: cluster, Namespace: "team",
			Claim: "efs-claim", Ready: []pulumi.Resource{&world}}
		if of == nil {
			of = &trainingjob.Args{Image: world.Image, PullPolicy: "Never"}
		}
		image, policy := of.Pulled()
		_, err := New(ctx, Name, &Args{Data: *s.Data, Root: s.Root, Platform: on, Image: image, PullPolicy: policy})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Name is the name of the command's resource.
const Name = "dataset"

func configured() *settings.Settings {
	return &settings.Settings{Root: "..", Data: &settings.Data{Dataset: "mnist", Path: "data/mnist"}}
}

func TestGolden(t *testing.T) {
	graph.Golden(t, "preview", record(t, true, configured(), "", nil))
	s := configured()
	// relative to the directory in which the program runs
	s.Data.Source, s.Data.Command = "examples/digits", "build/elasticdl"
	graph.Golden(t, "up", record(t, false, s, "minikube", nil))
	for _, all := range [][]graph.Resource{record(t, true, s, "", nil), record(t, false, s, "", nil)} {
		made := graph.Find(all, kindCommand, Name)
		if o := made.Options; !slices.Contains(o.DependsOn, "test:index:World world") ||
			!slices.Equal(o.IgnoreChanges, []string{"environment"}) {
			t.Errorf("%+v", o)
		}
		if !made.Inputs["environment"].ObjectValue()["CREDENTIALS"].IsSecret() {
			t.Errorf("the kubeconfig is no secret: %v", made.Inputs["environment"])
		}
		delete(made.Inputs, "environment")
		if text := fmt.Sprint(made.Inputs); strings.Contains(text, "KEY") {
			t.Errorf("the key is in %s", text)
		}
	}
}

// run executes a command as Pulumi's provider does, with an elasticdl that reports how it was
// called.
func run(t *testing.T, all []graph.Resource, which, script string) (said, dir string, err error) {
	t.Helper()
	bin, work := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "elasticdl"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	inputs := graph.Find(all, kindCommand, Name).Inputs
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", inputs[resource.PropertyKey(which)].StringValue())
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "TMPDIR="+work)
	for name, value := range inputs["environment"].ObjectValue() {
		if value.IsSecret() {
			value = value.SecretValue().Element
		}
		cmd.Env = append(cmd.Env, string(name)+"="+value.StringValue())
	}
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err = cmd.Run()
	if out.Len() > 0 {
		t.Errorf("printed %s", out.String())
	}
	return problems.String(), work, err
}

func empty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

const tells = `for a; do printf '[%s]' "$a"; f=${a#--kubeconfig=}; [ "$f" = "$a" ] || { echo; cat "$f"; ls -l "$f" | cut -c1-10; }; done; echo "$CREDENTIALS."`

func TestCommand(t *testing.T) {
	s := configured()
	s.Data.Source = "https://example.com/$(touch owned) '\"digits"
	all := record(t, false, s, "my minikube", nil)
	said, dir, err := run(t, all, "create", tells)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	for _, want := range []string{
		"[dataset][mnist][--to=claim:efs-claim/data/mnist][--namespace=team][--image_name=r/mnist@sha256:1][--kubeconfig=" +
			dir + "/",
		"]\n" + kubeconfig + "\n-rw-------\n",
		// and there are no credentials in the environment
		"[--source=" + s.Data.Source + "][--context=my minikube][--image_pull_policy=Never].\n",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("lacks %s\n%s", want, said)
		}
	}
	empty(t, dir)

	for _, end := range []string{"echo no such claim >&2; exit 3", "kill -TERM $PPID; exit 3"} {
		said, dir, err := run(t, all, "create", end)
		if err == nil {
			t.Errorf("after %s all is well: %s", end, said)
		}
		empty(t, dir)
	}
	if said, _, err := run(t, all, "update", tells); err != nil || said != "" {
		t.Errorf("an update says %q, %v", said, err)
	}
}

// A stack that builds no image uses the image of its job.
func TestImageOfJob(t *testing.T) {
	j := job.Default()
	j.Image, j.ImagePullPolicy = "r/there:1", "IfNotPresent"
	said, _, err := run(t, record(t, false, configured(), "", &trainingjob.Args{Job: j}), "create", tells)
	if err != nil || !strings.Contains(said, "[--image_name=r/there:1]") ||
		!strings.Contains(said, "[--image_pull_policy=IfNotPresent]") || strings.Contains(said, "--context") {
		t.Errorf("%v\n%s", err, said)
	}
}

// Only the data set, its source, its path and the volume are triggers: neither the image nor the
// credentials.
func TestTriggers(t *testing.T) {
	of := func(change func(s *settings.Settings), context string, job *trainingjob.Args) string {
		s := configured()
		change(s)
		return fmt.Sprint(graph.Find(record(t, false, s, context, job), kindCommand, Name).Inputs["triggers"])
	}
	same := func(*settings.Settings) {}
	was := of(same, "", nil)
	if now := of(same, "other", &trainingjob.Args{Image: pulumi.String("r/other:1")}); now != was {
		t.Errorf("%s, expected %s", now, was)
	}
	for name, change := range map[string]func(s *settings.Settings){
		"dataset": func(s *settings.Settings) { s.Data.Dataset = "cifar10" },
		"path":    func(s *settings.Settings) { s.Data.Path = "mnist" },
		"source":  func(s *settings.Settings) { s.Data.Source = "digits" },
	} {
		if of(change, "", nil) == was {
			t.Errorf("another %s brings nothing", name)
		}
	}
	if !strings.Contains(was, "fs-1") {
		t.Errorf("another volume gets nothing: %s", was)
	}
}

// Data of a bucket is written by this machine, as soon as the bucket exists: without a pod, an
// image and credentials of the cluster, and by the identity that Pulumi has.
func TestToBucket(t *testing.T) {
	s := configured()
	s.Data.Path, s.Data.Source = "bucket://data/mnist", "https://example.com/digits"
	s.EKS = &settings.EKS{Profile: "me"}
	preview := graph.Find(record(t, true, s, "mine", nil), kindCommand, Name)
	all := record(t, false, s, "mine", nil)
	said, _, err := run(t, all, "create",
		`for a; do printf '[%s]' "$a"; done; echo "$AWS_PROFILE.$CREDENTIALS.$IMAGE."`)
	if want := "[dataset][mnist][--to=s3://stack-data/data/mnist?region=us-west-2]" +
		"[--source=https://example.com/digits]me...\n"; err != nil || said != want {
		t.Errorf("%q, %v, want %q", said, err, want)
	}
	made := graph.Find(all, kindCommand, Name)
	if !slices.Equal(made.Options.DependsOn, []string{"test:index:Bucket data"}) ||
		!slices.Equal(preview.Options.DependsOn, made.Options.DependsOn) {
		t.Errorf("it waits for %v", made.Options.DependsOn)
	}
	if got := fmt.Sprint(made.Inputs["triggers"]); !strings.Contains(got, "data-id") ||
		!strings.Contains(got, "bucket://data/mnist") {
		t.Errorf("another bucket gets nothing: %s", got)
	}
}
