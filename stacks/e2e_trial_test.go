//go:build e2e

package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/pulumi/pulumi/sdk/v3/go/common/workspace"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/elasticdl/elasticdl/infra/live"
	"github.com/elasticdl/elasticdl/test/provider"
	"github.com/elasticdl/elasticdl/test/provider/cluster"
)

var (
	clusterDir = flag.String("cluster", "../build/cluster", "directory of the cluster, as made by make cluster-up")
	elasticdl  = flag.String("elasticdl", "../build/elasticdl", "the program")
	pulumiCLI  = flag.String("pulumi", "../build/tools/pulumi", "Pulumi's program")
)

// patience is the time limit of each wait. It is generous, because the machine may be slow.
const patience = 3 * time.Minute

// site has what all trials share.
type site struct {
	// directory of the cluster
	dir        string
	kubectl    string
	kubeconfig string
	elasticdl  string
	repository string
	// empty directory of this machine, which every node shares
	data string
	// a module of models, like that of a user
	zoo string
}

// newSite finds the cluster, and creates the directories of data and models.
func newSite(t *testing.T) *site {
	t.Helper()
	absolute := func(path string) string {
		path, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	dir, repository := absolute(*clusterDir), absolute("..")
	s := &site{
		dir: dir, kubectl: filepath.Join(dir, "bin", "kubectl"), kubeconfig: filepath.Join(dir, "admin.kubeconfig"),
		elasticdl: absolute(*elasticdl), repository: repository, data: t.TempDir(), zoo: t.TempDir(),
	}
	if _, err := os.Stat(s.kubeconfig); err != nil {
		t.Fatalf("no cluster (make cluster-up): %v", err)
	}
	t.Setenv("PATH", filepath.Dir(absolute(*pulumiCLI))+string(os.PathListSeparator)+os.Getenv("PATH"))
	// pods must be able to write to it
	for path := s.data; path != filepath.Clean(os.TempDir()) && path != filepath.Dir(path); path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), s.elasticdl, "zoo", "init", "--model_zoo=model_zoo",
		"--local_pkg_dir="+repository)
	cmd.Dir = s.zoo
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	// A change of the model gives the image a content that no other test has: a kubelet that has
	// pulled an image from a registry lets only pods with access to that registry use it, even if
	// it was loaded otherwise since.
	model := filepath.Join(s.zoo, "model_zoo", "mnist", "mnist_functional_api.go")
	text, err := os.ReadFile(model)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "Rate: 0.25", "Rate: 0.2", 1)
	if changed == string(text) {
		t.Fatalf("%s has no dropout to change", model)
	}
	if err := os.WriteFile(model, []byte(changed), 0o644); err != nil {
		t.Fatal(err)
	}
	return s
}

// trial is a stack whose Kubernetes objects are created in a real cluster.
type trial struct {
	*site
	t         *testing.T
	name      string // name of the stack
	namespace string // its own namespace
	job       string // name of its job
	stack     auto.Stack
	cloud     *provider.Cloud
	cluster   *cluster.Provider
	file      string // the stack's file, with its configuration
}

// section is a part of a configuration.
type section = map[string]any

// newTrial creates a stack of the shipped configuration, changed so that it can run on the test's
// cluster.
func (s *site) newTrial(t *testing.T, name string, change func(config section)) *trial {
	t.Helper()
	tr, debug := s.newProviders(t, name)
	project, err := workspace.LoadProject("../Pulumi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	project.Main, project.StackConfigDir = "", ""
	project.Runtime = workspace.NewProjectRuntimeInfo("go", nil)
	project.Backend = &workspace.ProjectBackend{URL: "file://" + t.TempDir()}
	dir := t.TempDir()
	tr.file = filepath.Join(dir, "Pulumi."+name+".yaml")
	shipped, err := os.ReadFile("Pulumi." + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tr.file, shipped, 0o600); err != nil {
		t.Fatal(err)
	}
	tr.configure(func(config section) {
		sub(config, "elasticdl:platform")["namespace"] = tr.namespace
		config["elasticdl:image"] = section{"source": tr.source(), "command": tr.elasticdl}
		if name == "minikube" {
			sub(config, "elasticdl:minikube")["profile"] = tr.namespace
		}
		change(config)
	})
	environment := tr.cloud.Env()
	environment[debugProviders] = debug
	tr.stack, err = auto.UpsertStackInlineSource(t.Context(), name, string(project.Name),
		program(world{now: time.Now, live: realCluster{s.kubeconfig, tr.cluster}, find: tr.cloud.Find}),
		auto.WorkDir(dir), auto.PulumiHome(t.TempDir()), auto.Project(*project),
		auto.SecretsProvider("passphrase"), auto.EnvVars(environment))
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

const debugProviders = "PULUMI_DEBUG_PROVIDERS"

// newProviders serves simulated clouds for a stack, and the real cluster. It also returns the value
// of [debugProviders]. Everything that was created in the cluster is deleted when the test ends.
func (s *site) newProviders(t *testing.T, name string) (tr *trial, debug string) {
	t.Helper()
	tr = &trial{site: s, t: t, name: name, job: jobName,
		namespace: fmt.Sprintf("%s-%x", name, time.Now().UnixMilli()&0xffffff)}
	var err error
	if tr.cluster, err = cluster.New(s.kubeconfig); err != nil {
		t.Fatal(err)
	}
	tr.cluster.Patience = patience
	port, stop, err := tr.cluster.Serve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	tr.cloud = provider.Start(t)
	for served := range strings.SplitSeq(tr.cloud.Debug(), ",") {
		if !strings.HasPrefix(served, "kubernetes:") {
			debug += served + ","
		}
	}
	t.Cleanup(tr.clean)
	return tr, debug + fmt.Sprintf("kubernetes:%d", port)
}

// source returns the directory of the models, relative to that of Pulumi.yaml.
func (tr *trial) source() string {
	tr.t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		tr.t.Fatal(err)
	}
	path, err := filepath.Rel(root, tr.zoo)
	if err != nil {
		tr.t.Fatal(err)
	}
	return path
}

// onCluster writes an elasticdl command that runs on the test's cluster what it is asked to run on
// the simulated minikube. It loads that one's images first.
func (s *site) onCluster(t *testing.T) string {
	t.Helper()
	script := filepath.Join(t.TempDir(), "elasticdl")
	text := fmt.Sprintf(`#!/bin/sh
set -e
image=$(mktemp)
trap 'rm -f "$image"' EXIT
tail -n +2 "$FAKE_MINIKUBE/$CONTEXT" >"$image" # after how it was started
for node in '%s'/node-*/containerd.sock; do
  ctr --address="$node" --namespace=k8s.io images import "$image"
done
'%s' "$@" --kubeconfig='%s' --context=
`, s.dir, s.elasticdl, s.kubeconfig)
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return script
}

// realCluster reads the objects of the test's cluster, whatever cluster the kubeconfig of a
// simulated cloud names.
type realCluster struct {
	kubeconfig string
	provider   *cluster.Provider // the provider that applied the object
}

func (c realCluster) Get(ctx context.Context, _, _ string, kind schema.GroupVersionKind,
	namespace, name string) (map[string]any, error) {
	text, err := os.ReadFile(c.kubeconfig)
	if err != nil {
		return nil, err
	}
	is, err := live.Reader{}.Get(ctx, string(text), "", kind, namespace, name)
	if is == nil || err != nil {
		return nil, err
	}
	return c.provider.Unmounted(is), nil
}

// configure changes the configuration in the stack's file.
func (tr *trial) configure(change func(config section)) {
	tr.t.Helper()
	text, err := os.ReadFile(tr.file)
	if err != nil {
		tr.t.Fatal(err)
	}
	var file section
	if err := yaml.Unmarshal(text, &file); err != nil {
		tr.t.Fatal(err)
	}
	change(sub(file, "config"))
	if text, err = yaml.Marshal(file); err != nil {
		tr.t.Fatal(err)
	}
	if err := os.WriteFile(tr.file, text, 0o600); err != nil {
		tr.t.Fatal(err)
	}
}

// sub returns a section within another, which it creates if necessary.
func sub(within section, path ...string) section {
	for _, key := range path {
		next, ok := within[key].(section)
		if !ok {
			next = section{}
			within[key] = next
		}
		within = next
	}
	return within
}

// up runs a preview, and then the update that it has shown, as `pulumi up` does. It returns how
// many resources were created, updated, and so on. The resources with the given URNs are replaced
// in any case.
func (tr *trial) up(replace ...string) map[string]int {
	tr.t.Helper()
	shown := tr.previewed(replace...)
	began := time.Now()
	result, err := tr.stack.Up(tr.t.Context(), optup.Replace(replace), optup.SuppressProgress())
	if err != nil {
		tr.t.Fatalf("up: %v\n%s", err, result.StdErr)
	}
	did := tr.changes("up", began, result.Summary.ResourceChanges)
	if !maps.Equal(did, shown) {
		tr.t.Errorf("the preview has shown %v, and up did %v:\n%s", shown, did, result.StdOut)
	}
	return did
}

// refuses checks that a preview fails with all of these messages.
func (tr *trial) refuses(want ...string) {
	tr.t.Helper()
	_, err := tr.stack.Preview(tr.t.Context(), optpreview.SuppressProgress())
	for _, w := range want {
		if err == nil || !strings.Contains(err.Error(), w) {
			tr.t.Errorf("the preview does not say %q: %v", w, err)
		}
	}
}

// unchanged checks that a preview and an update of the stack have nothing to do.
func (tr *trial) unchanged() {
	tr.t.Helper()
	if did := tr.up(); len(did) > 0 {
		tr.t.Fatalf("nothing has changed, and up did %v", did)
	}
}

// said returns the output of a command of the stack.
func (tr *trial) said(name string) string {
	tr.t.Helper()
	exported, err := tr.stack.Export(tr.t.Context())
	if err != nil {
		tr.t.Fatal(err)
	}
	var state apitype.DeploymentV3
	if err := json.Unmarshal(exported.Deployment, &state); err != nil {
		tr.t.Fatal(err)
	}
	for _, r := range state.Resources {
		if r.URN.Name() == name && r.Type == "command:local:Command" {
			return fmt.Sprint(r.Outputs["stderr"])
		}
	}
	tr.t.Fatalf("there is no command %s", name)
	return ""
}

// previewed returns what the next update would do, by kind of change.
func (tr *trial) previewed(replace ...string) map[string]int {
	tr.t.Helper()
	began := time.Now()
	preview, err := tr.stack.Preview(tr.t.Context(), optpreview.Replace(replace), optpreview.Diff(),
		optpreview.SuppressProgress())
	if err != nil {
		tr.t.Fatalf("preview: %v", err)
	}
	counted := make(map[string]int)
	for op, n := range preview.ChangeSummary {
		if n > 0 {
			counted[string(op)] = n
		}
	}
	return tr.changes("preview", began, &counted)
}

func (tr *trial) refresh() map[string]int {
	tr.t.Helper()
	began := time.Now()
	result, err := tr.stack.Refresh(tr.t.Context())
	if err != nil {
		tr.t.Fatalf("refresh: %v", err)
	}
	return tr.changes("refresh", began, result.Summary.ResourceChanges)
}

func (tr *trial) destroy() map[string]int {
	tr.t.Helper()
	began := time.Now()
	result, err := tr.stack.Destroy(tr.t.Context(), optdestroy.SuppressProgress())
	if err != nil {
		tr.t.Fatalf("destroy: %v\n%s", err, result.StdErr)
	}
	return tr.changes("destroy", began, result.Summary.ResourceChanges)
}

// does updates the stack, and checks that exactly these calls change the cluster.
func (tr *trial) does(want ...string) {
	tr.t.Helper()
	before := len(tr.cluster.Calls())
	tr.up()
	var did []string
	for _, c := range tr.cluster.Calls()[before:] {
		if c.Op != "read" {
			did = append(did, c.Op+" "+c.Kind+" "+c.ID[strings.LastIndex(c.ID, "/")+1:])
		}
	}
	slices.Sort(did)
	slices.Sort(want)
	if !slices.Equal(did, want) {
		tr.t.Errorf("up did\n\t%s\nwant\n\t%s", strings.Join(did, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func (tr *trial) changes(what string, began time.Time, all *map[string]int) map[string]int {
	tr.t.Helper()
	if all == nil {
		return nil
	}
	changes := maps.Clone(*all)
	delete(changes, "same")
	tr.t.Logf("%s of %s: %v in %v", what, tr.name, changes, time.Since(began).Round(100*time.Millisecond))
	return changes
}

// clean deletes the objects that the stack has created and not deleted.
func (tr *trial) clean() {
	if tr.t.Failed() {
		for _, args := range []string{"get all,configmaps,persistentvolumeclaims -o wide", "get events",
			"describe pods", "logs --all-containers --prefix --tail=30 --selector=app=elasticdl"} {
			out, _ := tr.try("kubectl", strings.Fields(args)...)
			tr.t.Logf("kubectl %s\n%s", args, out)
		}
	}
	for _, c := range slices.Backward(tr.left()) {
		out, err := tr.try("kubectl", "delete", resource(c), c.ID[strings.LastIndex(c.ID, "/")+1:],
			"--namespace="+namespaceOf(c), "--ignore-not-found", "--timeout=120s")
		if err != nil {
			tr.t.Errorf("%v\n%s", err, out)
		}
	}
}

// left returns the objects that the stack has created and not deleted, in the order of their
// creation.
func (tr *trial) left() []cluster.Call {
	var there []cluster.Call
	for _, c := range tr.cluster.Calls() {
		op := c.Op
		c.Op = ""
		there = slices.DeleteFunc(there, func(other cluster.Call) bool {
			return other == c && op != "read" && op != "update"
		})
		if op == "create" {
			there = append(there, c)
		}
	}
	return there
}

// resource returns a kind in the form of kubectl: "Job.v1.batch".
func resource(c cluster.Call) string {
	parts := strings.Split(c.Kind, "/")
	if len(parts) == 2 {
		return parts[1]
	}
	return parts[2] + "." + parts[1] + "." + parts[0]
}

func namespaceOf(c cluster.Call) string {
	namespace, _, ok := strings.Cut(c.ID, "/")
	if !ok {
		return ""
	}
	return namespace
}

// run runs a program in the stack's namespace, and fails the test if the program fails.
func (tr *trial) run(program string, args ...string) string {
	tr.t.Helper()
	out, err := tr.try(program, args...)
	if err != nil {
		tr.t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// try runs a program in the stack's namespace, unless its arguments name another, and returns its
// output.
func (tr *trial) try(program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--namespace=") }) {
		args = append(slices.Clone(args), "--namespace="+tr.namespace)
	}
	cmd := exec.CommandContext(ctx, map[string]string{"kubectl": tr.kubectl,
		"elasticdl": tr.elasticdl}[program], args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+tr.kubeconfig)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%v: %w", cmd, err)
	}
	return string(out), err
}

// eventually waits until a condition is true.
func (tr *trial) eventually(what string, is func() bool) {
	tr.t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !is(); <-tick.C {
		if time.Now().After(deadline) {
			tr.t.Fatalf("no %s in %v", what, patience)
		}
	}
}
