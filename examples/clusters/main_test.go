package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/test/provider"
)

// Two clusters and three jobs of one program are made, have no difference afterwards, are changed
// apart from each other, and destroyed, with Pulumi's engine and simulated clouds.
func TestClusters(t *testing.T) {
	cloud := provider.Start(t)
	stack := program(t, cloud)
	counts := func(summary map[string]int) (all []string) {
		for _, op := range []apitype.OpType{apitype.OpCreate, apitype.OpUpdate, apitype.OpReplace, apitype.OpDelete} {
			if n := summary[string(op)]; n > 0 {
				all = append(all, string(op))
			}
		}
		return all
	}
	up := func(what string, want ...string) {
		t.Helper()
		done, err := stack.Up(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := counts(*done.Summary.ResourceChanges); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v:\n%s", what, got, want, done.StdOut)
		}
	}
	if _, err := stack.Preview(t.Context()); err != nil {
		t.Fatalf("preview: %v", err)
	}
	up("first", "create")
	up("nothing has changed")
	if _, err := stack.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	up("nothing has changed but what the clouds fill in")
	outputs, err := stack.Outputs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"blue": "elasticdl-both-blue", "green": "elasticdl-both-green",
		"blue-digits":  "elasticdl status digits --namespace=training",
		"blue-fashion": "elasticdl status fashion --namespace=training",
		"green-digits": "elasticdl status digits --namespace=training"} {
		if got := outputs[name].Value; got != want {
			t.Errorf("%s is %v, want %s", name, got, want)
		}
	}
	var jobs []string
	for _, left := range cloud.Left() {
		if strings.Contains(left, "Job") && strings.Contains(left, "master") {
			jobs = append(jobs, left)
		}
	}
	if len(jobs) != 3 {
		t.Errorf("jobs in the clusters: %q of %q", jobs, cloud.Left())
	}
	set(t, stack, "clusters:workers", "8")
	up("more workers of one job", "update")
	if _, err := stack.Destroy(t.Context()); err == nil || !strings.Contains(err.Error(), "protected") {
		t.Errorf("the buckets are not protected: %v", err)
	}
	set(t, stack, "clusters:deleteStorage", "true")
	if _, err := stack.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := stack.Destroy(t.Context()); err != nil {
		t.Fatalf("destroy: %v", err)
	}
	if left := cloud.Left(); len(left) > 0 {
		t.Errorf("destroy leaves %v", left)
	}
}

// set does what the page says.
func set(t *testing.T, stack auto.Stack, key, value string) {
	t.Helper()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if short := strings.TrimPrefix(key, "clusters:"); !strings.Contains(string(page), "pulumi config set "+short+" ") {
		t.Errorf("the page does not set %s", short)
	}
	if err := stack.SetConfig(t.Context(), key, auto.ConfigValue{Value: value}); err != nil {
		t.Fatal(err)
	}
}

// program returns the stack of the example.
func program(t *testing.T, cloud *provider.Cloud) auto.Stack {
	t.Helper()
	bin := filepath.Join("..", "..", "build", "tools")
	if cli := os.Getenv("PULUMI_BIN"); cli != "" {
		bin = filepath.Dir(cli)
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	env := cloud.Several(t)
	env["PATH"] = bin + string(os.PathListSeparator) + env["PATH"]
	env["PULUMI_BACKEND_URL"] = "file://" + t.TempDir()
	t.Setenv("PATH", env["PATH"])
	stack, err := auto.NewStackInlineSource(t.Context(), "both", "clusters",
		func(ctx *pulumi.Context) error { return clusters(ctx, cloud) },
		auto.PulumiHome(t.TempDir()), auto.EnvVars(env))
	if err != nil {
		t.Fatalf("%v: `make test-infra` builds the Pulumi CLI into build/tools", err)
	}
	set(t, stack, "gcp:project", provider.GoogleProject)
	set(t, stack, "aws:region", "us-west-2")
	return stack
}
