//go:build !e2e

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/infra/plan"
	"github.com/elasticdl/elasticdl/test/provider"
)

// planned is a stack whose updates are planned, reviewed, and then made as planned.
type planned struct {
	*reader
	shell    plan.Shell
	problems bytes.Buffer
}

func startPlanned(t *testing.T, name string) *planned {
	t.Helper()
	bin, cloud := t.TempDir(), provider.Start(t)
	objects := httptest.NewServer(serveObjects(cloud))
	t.Cleanup(objects.Close)
	link(t, "stacks/testdata/page/tools.sh", filepath.Join(bin, "elasticdl"))
	for _, tool := range []string{"aws", "docker", "gcloud", "gke-gcloud-auth-plugin", "kubectl", "minikube"} {
		link(t, "stacks/testdata/page/tools.sh", filepath.Join(bin, tool))
	}
	change := keep(t)
	change[remoteURL] = objects.URL
	change["KUBECONFIG"] = os.Getenv("KUBECONFIG")
	change["PULUMI_BACKEND_URL"] = "file://" + t.TempDir()
	p := &planned{reader: newReader(t, ".", name, bin, t.TempDir(), cloud, change)}
	if err := os.CopyFS(filepath.Join(p.dir, "stacks", "testdata", "model"),
		os.DirFS("stacks/testdata/model")); err != nil {
		t.Fatal(err)
	}
	for path, value := range user(name) {
		p.set(path, value)
	}
	p.shell = plan.Shell{Pulumi: p.pulumi, Out: &p.problems, Problems: &p.problems,
		Settings: func(string) ([]byte, error) { return os.ReadFile(filepath.Join(p.dir, p.file())) }}
	if err := p.pulumi(t.Context(), &p.problems, "stack", "init", name, "--secrets-provider="+keyService); err != nil {
		t.Fatalf("%v\n%s", err, p.problems.String())
	}
	return p
}

func (p *planned) set(path string, value any) {
	p.Helper()
	setIn(p.T, filepath.Join(p.dir, p.file()), path, value)
}

// pulumi runs the CLI, which is on the PATH of this process, with the environment of the stack.
func (p *planned) pulumi(ctx context.Context, out io.Writer, args ...string) error {
	c := exec.CommandContext(ctx, "pulumi", append(args, "--non-interactive")...)
	c.Dir, c.Env, c.Stdout, c.Stderr = p.dir, p.env, out, &p.problems
	return c.Run()
}

// make returns the plan of an update, as a file keeps it.
func (p *planned) make(refresh bool) *plan.Plan {
	p.Helper()
	before := len(p.cloud.Calls())
	made, err := p.shell.Make(p.Context(), p.stack, refresh)
	if err != nil {
		p.Fatalf("plan: %v\n%s", err, p.problems.String())
	}
	read, err := plan.Parse(made.String())
	if err != nil {
		p.Fatalf("%v\n%s", err, made)
	}
	if calls := p.cloud.Calls()[before:]; len(calls) > 0 {
		p.Errorf("a plan did %v", calls)
	}
	for _, clear := range []string{provider.Key, "BEGIN PRIVATE", "client-key"} {
		if strings.Contains(made.String(), clear) {
			p.Errorf("the plan has %q in clear", clear)
		}
	}
	return read
}

func (p *planned) apply(when string, reviewed *plan.Plan) {
	p.Helper()
	p.problems.Reset()
	if err := p.shell.Apply(p.Context(), p.stack, reviewed); err != nil {
		p.Fatalf("%s: %v\n%s", when, err, p.problems.String())
	}
}

// refuses checks that an update is refused with these lines, and that nothing is made.
func (p *planned) refuses(when string, reviewed *plan.Plan, want ...string) {
	p.Helper()
	p.problems.Reset()
	before := len(p.cloud.Calls())
	if err := p.shell.Apply(p.Context(), p.stack, reviewed); !errors.Is(err, plan.ErrDiffers) {
		p.Errorf("%s: %v", when, err)
	}
	lines := strings.Split(p.problems.String(), "\n")
	for _, w := range want {
		if !slices.Contains(lines, w) {
			p.Errorf("%s: no line %q in\n%s", when, w, p.problems.String())
		}
	}
	if calls := p.cloud.Calls()[before:]; len(calls) > 0 {
		p.Errorf("%s: it was refused, and yet: %v", when, calls)
	}
}

// An update that was planned is made if nothing has changed since; otherwise it is refused with the
// lines that differ, and nothing is made.
func TestPlan(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"existing", "gke", "eks", "minikube"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startPlanned(t, name)
			first := p.make(false)
			if again := p.make(false); again.String() != first.String() {
				t.Errorf("two previews of the same:\n%s", strings.Join(first.Differences(again), "\n"))
			}
			t.Logf("%d steps, %d bytes", first.Steps(), len(first.String()))
			p.apply("from nothing", first)
			p.refuses("the same plan again", first, "- create kubernetes:core/v1:ConfigMap test-mnist")
			if none := p.make(false); none.Steps() > 0 {
				t.Errorf("nothing has changed, and the plan is\n%s", none)
			}

			p.set("elasticdl:job.numWorkers", 5)
			five := p.make(false)
			p.set("elasticdl:job.numWorkers", 6)
			p.refuses("other settings", five, "  settings", "-     elasticdl:job.numWorkers: 5",
				"+     elasticdl:job.numWorkers: 6", "  update kubernetes:core/v1:ConfigMap test-mnist")
			p.set("elasticdl:job.numWorkers", 5)
			p.apply("a change", five)

			p.set("elasticdl:job.numWorkers", 7)
			seven := p.make(true)
			const role = "rbac.authorization.k8s.io/v1/Role elasticdl/elasticdl-data"
			if err := p.cloud.Kubernetes.Remove(role); err != nil {
				t.Fatal(err)
			}
			p.refuses("drift", seven, "+ create kubernetes:rbac.authorization.k8s.io/v1:Role role-elasticdl-data")
			p.apply("a plan with the drift", p.make(true))
		})
	}
}
