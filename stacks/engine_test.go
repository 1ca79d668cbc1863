//go:build !e2e

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/events"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optrefresh"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/workspace"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra/trainingjob"
	"github.com/elasticdl/elasticdl/test/provider"
)

// TestMain changes to the directory of Pulumi.yaml, as the CLI does, puts the CLI and its language
// host on PATH, and writes a kubeconfig with contexts of simulated clusters.
//
// Under another name this binary is the program of a stack, for the CLI in [TestPages], which then
// need not compile it.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == programName {
		pulumi.Run(program(world{now: func() time.Time {
			return today
		}, live: remote(os.Getenv(remoteURL)), find: exec.LookPath}))
		return
	}
	err := os.Chdir("..")
	dir := ""
	if err == nil {
		dir, err = filepath.Abs("build/tools")
	}
	if bin := os.Getenv("PULUMI_BIN"); bin != "" {
		dir = filepath.Dir(bin)
	}
	for _, tool := range []string{"pulumi", "pulumi-language-go"} {
		if err == nil {
			_, err = os.Stat(filepath.Join(dir, tool))
		}
	}
	home, failed := os.MkdirTemp("", "stacks")
	kubeconfig := filepath.Join(home, "config")
	err = errors.Join(err, failed, os.WriteFile(kubeconfig,
		[]byte(provider.ExistingKubeconfig("mine", "other")), 0o600), os.Setenv("KUBECONFIG", kubeconfig))
	if err == nil {
		err = os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%v: the tests of the stacks need the Pulumi CLI and its language "+
			"host: `make test-infra` builds them into build/tools and runs the tests; or PULUMI_BIN "+
			"says where they are\n", err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(home)
	os.Exit(code)
}

// engine is Pulumi's real engine, with the shipped file of a stack and simulated clouds.
type engine struct {
	*testing.T
	stack auto.Stack
	// clock of the program
	now   func() time.Time
	cloud *provider.Cloud
	// nil = updates do not wait for their job
	pause trainingjob.Pause
	// the stack's file, in a directory of the test
	file string
	// file of the engine's state
	saved string
	env   map[string]string
}

// today is the day of all simulated clocks; all shipped versions are supported then.
var today = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)

// user returns the settings that the shipped files leave to their user, and a source of the image
// that nobody edits during the tests.
func user(name string) map[string]any {
	set := map[string]any{"elasticdl:image.source": filepath.Join("stacks", "testdata", "model")}
	switch name {
	case "gke":
		set["gcp:project"] = provider.GoogleProject
		fallthrough
	case "eks":
		set["elasticdl:"+name+".authorizedNetworks"] = []any{map[string]any{"cidr": "198.51.100.7/32"}}
	case "existing":
		set["elasticdl:existing.registry"] = "registry.example/me"
	}
	return set
}

// start creates a stack, with the settings of a user. Tests change others by [engine.set].
func start(t *testing.T, name string) *engine {
	t.Helper()
	return startIn(t, provider.Start(t), name, name)
}

// startIn creates a stack of another name in addition to those of a simulated cloud.
func startIn(t *testing.T, cloud *provider.Cloud, shipped, name string) *engine {
	t.Helper()
	e := &engine{T: t, cloud: cloud, now: func() time.Time { return today }, env: keep(t)}
	maps.Copy(e.env, cloud.Env())
	cloud.Now = func() time.Time { return e.now() }
	cli, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	project, err := workspace.LoadProject("Pulumi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	project.Main, project.StackConfigDir = "", ""
	project.Runtime = workspace.NewProjectRuntimeInfo("go", nil)
	dir, backend := t.TempDir(), t.TempDir()
	project.Backend = &workspace.ProjectBackend{URL: "file://" + backend}
	e.saved = filepath.Join(backend, ".pulumi", "stacks", string(project.Name), name+".json")
	e.file = filepath.Join(dir, "Pulumi."+name+".yaml")
	if err := os.Rename(userFile(t, dir, shipped), e.file); err != nil {
		t.Fatal(err)
	}
	e.stack, err = auto.NewStackInlineSource(t.Context(), name, string(project.Name),
		func(ctx *pulumi.Context) error {
			return world{now: e.now, live: e.cloud, find: e.cloud.Find, pause: e.pause}.run(ctx)
		},
		auto.WorkDir(dir), auto.PulumiHome(t.TempDir()), auto.Project(*project),
		auto.Pulumi(command{cli}), auto.SecretsProvider(keyService), auto.EnvVars(e.env))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// userFile writes a stack's file with the settings of its user to a directory, and returns its
// path.
func userFile(t *testing.T, dir, name string) string {
	t.Helper()
	shipped, err := os.ReadFile(filepath.Join("stacks", "Pulumi."+name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "Pulumi."+name+".yaml")
	if err := os.WriteFile(file, shipped, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, value := range user(name) {
		setIn(t, file, path, value)
	}
	return file
}

// set changes a setting by its path, as `pulumi config set --path` does; nil removes it.
func (e *engine) set(path string, value any) {
	e.Helper()
	setIn(e.T, e.file, path, value)
}

func setIn(t *testing.T, file, path string, value any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := yaml.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	section := all["config"].(map[string]any)
	keys := strings.Split(path, ".")
	for _, key := range keys[:len(keys)-1] {
		within, ok := section[key].(map[string]any)
		if !ok {
			within = map[string]any{}
			section[key] = within
		}
		section = within
	}
	if section[keys[len(keys)-1]] = value; value == nil {
		delete(section, keys[len(keys)-1])
	}
	if text, err = yaml.Marshal(all); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// steps lists what an operation of the engine did or would do, except for resources that do not
// change: "update kubernetes:core/v1:ConfigMap test-mnist data.job".
type steps []string

// of returns the steps of an operation.
func of(operation func(events chan<- events.EngineEvent) error) (steps, error) {
	var did steps
	stream := make(chan events.EngineEvent)
	read := make(chan struct{})
	go func() {
		defer close(read)
		for event := range stream {
			if event.ResourcePreEvent == nil {
				continue
			}
			m := event.ResourcePreEvent.Metadata
			if slices.Contains([]apitype.OpType{apitype.OpSame, apitype.OpRead, apitype.OpRefresh,
				apitype.OpCreateReplacement, apitype.OpDeleteReplaced}, m.Op) {
				continue
			}
			step := string(m.Op) + " " + m.Type + " " + resource.URN(m.URN).Name()
			if m.Op == apitype.OpUpdate {
				step += " " + strings.Join(slices.Sorted(maps.Keys(m.DetailedDiff)), " ")
			}
			did = append(did, strings.TrimSpace(step))
		}
	}()
	err := operation(stream)
	if err == nil {
		<-read
		return did, nil
	}
	select {
	case <-read:
		return did, err
	case <-time.After(10 * time.Second):
		// an engine that ends before it sends events never closes the channel
		return nil, err
	}
}

func (e *engine) tryPreview() (steps, error) {
	return of(func(events chan<- events.EngineEvent) error {
		_, err := e.stack.Preview(e.Context(), optpreview.EventStreams(events), optpreview.SuppressProgress())
		return err
	})
}

// up runs a preview, and then the update that it has shown, as `pulumi up` does. It fails the test
// if either fails.
func (e *engine) up() steps {
	e.Helper()
	did, err := e.tryUp()
	if err != nil {
		e.Fatalf("up: %v", err)
	}
	return did
}

// tryUp does the same as up, and returns an error if preview or update fails. The test fails if the
// preview has shown other steps than the update.
func (e *engine) tryUp() (steps, error) {
	e.Helper()
	began := time.Now()
	shown, err := e.tryPreview()
	if err != nil {
		return shown, fmt.Errorf("preview: %w", err)
	}
	previewed := time.Now()
	did, err := e.update(shown)
	e.Logf("up: %d steps in %v, after a preview of %v", len(did),
		time.Since(previewed).Round(10*time.Millisecond), previewed.Sub(began).Round(10*time.Millisecond))
	return did, err
}

// update makes the update that a preview has shown. The test fails if the update takes other steps.
func (e *engine) update(shown steps) (steps, error) {
	e.Helper()
	did, err := e.updateUnseen()
	if err != nil {
		return did, err
	}
	// If a provider's arguments are not known yet, the engine shows a replacement of it, and
	// updates without a difference of its objects, which may then not happen.
	missing := slices.DeleteFunc(shown.without(did), func(step string) bool {
		return strings.HasPrefix(step, "replace pulumi:providers:") ||
			strings.HasPrefix(step, "update ") && strings.Count(step, " ") == 2
	})
	if more := did.without(shown); len(missing)+len(more) > 0 {
		e.Errorf("the preview has shown, and up did not do:\n%s\nup did, and the preview had not "+
			"shown:\n%s", missing, more)
	}
	return did, nil
}

// updateUnseen updates the stack without a preview.
func (e *engine) updateUnseen() (steps, error) {
	return of(func(events chan<- events.EngineEvent) error {
		_, err := e.stack.Up(e.Context(), optup.EventStreams(events), optup.SuppressProgress())
		return err
	})
}

// without returns the steps that are not among others. It compares operation and resource, and not
// the changed properties: those that are unknown in a preview appear as changed.
func (s steps) without(others steps) steps {
	what := func(step string) string {
		words := strings.SplitN(step, " ", 4)
		return strings.Join(words[:min(len(words), 3)], " ")
	}
	return slices.DeleteFunc(slices.Clone(s), func(step string) bool {
		return slices.ContainsFunc(others, func(other string) bool { return what(other) == what(step) })
	})
}

// unchanged checks that a preview and an update of the stack have nothing to do.
func (e *engine) unchanged(why string) {
	e.Helper()
	if did := e.up(); len(did) > 0 {
		e.Errorf("%s, and up did\n%s", why, did)
	}
}

// unchangedAfterRefresh refreshes the stack first, so that the state has the values that the clouds
// have filled in or changed.
func (e *engine) unchangedAfterRefresh(why string) {
	e.Helper()
	e.refresh()
	e.unchanged(why + ", after a refresh")
}

func (e *engine) refresh() {
	e.Helper()
	if _, err := e.stack.Refresh(e.Context(), optrefresh.SuppressProgress()); err != nil {
		e.Fatalf("refresh: %v", err)
	}
}

func (e *engine) destroy() steps {
	e.Helper()
	did, err := e.tryDestroy()
	if err != nil {
		e.Fatalf("destroy: %v", err)
	}
	return did
}

func (e *engine) tryDestroy() (steps, error) {
	return of(func(events chan<- events.EngineEvent) error {
		_, err := e.stack.Destroy(e.Context(), optdestroy.EventStreams(events), optdestroy.SuppressProgress())
		return err
	})
}

// expect compares steps with those expected, in any order.
func (e *engine) expect(when string, did steps, want ...string) {
	e.Helper()
	did = slices.Sorted(slices.Values(did))
	slices.Sort(want)
	if !slices.Equal(did, want) {
		e.Errorf("%s:\n%s\nexpected\n%s", when, did, steps(want))
	}
}

func (s steps) String() string {
	if len(s) == 0 {
		return "\t(nothing)"
	}
	return "\t" + strings.Join(s, "\n\t")
}

// state returns the engine's state, with secrets in the form in which it stores them.
func (e *engine) state() []byte {
	e.Helper()
	state, err := os.ReadFile(e.saved)
	if err != nil {
		e.Fatal(err)
	}
	return state
}

// pulumi runs the CLI on the stack.
func (e *engine) pulumi(args ...string) string {
	e.Helper()
	c := exec.CommandContext(e.Context(), "pulumi", append(args, "--non-interactive", "--stack", e.stack.Name())...)
	c.Dir = filepath.Dir(e.file)
	c.Env = append(os.Environ(), "PULUMI_HOME="+e.stack.Workspace().PulumiHome())
	for k, v := range e.env {
		c.Env = append(c.Env, k+"="+v)
	}
	var problems bytes.Buffer
	c.Stderr = &problems
	out, err := c.Output()
	if err != nil {
		e.Fatalf("%v: %v\n%s%s", c.Args, err, out, problems.String())
	}
	return string(out)
}

// resources returns the resources of the state, except for the stack itself and the default
// providers.
func (e *engine) resources() []apitype.ResourceV3 {
	e.Helper()
	var state struct {
		Checkpoint struct{ Latest *apitype.DeploymentV3 }
	}
	if err := json.Unmarshal(e.state(), &state); err != nil || state.Checkpoint.Latest == nil {
		e.Fatalf("%s: %v, or no state", e.saved, err)
	}
	return slices.DeleteFunc(state.Checkpoint.Latest.Resources, func(r apitype.ResourceV3) bool {
		return r.Type == resource.RootStackType || strings.HasPrefix(r.URN.Name(), "default_")
	})
}

// cleared checks that nothing is left in the clouds and in the state, and that every resource that
// was created was deleted, on its own or with its cluster.
func (e *engine) cleared() {
	e.Helper()
	if left := e.cloud.Left(); len(left) > 0 {
		e.Errorf("there is still\n%s", steps(left))
	}
	if left := e.resources(); len(left) > 0 {
		e.Errorf("the state still has %d resources: %s, …", len(left), left[0].URN)
	}
	made := map[string]int{}
	for _, c := range e.cloud.Calls() {
		switch c.Op {
		case "create":
			made[c.Type+" "+c.ID]++
		case "delete":
			made[c.Type+" "+c.ID]--
		}
	}
	for what, n := range made {
		if n != 0 && !strings.HasPrefix(what, "kubernetes:") && !strings.HasPrefix(what, "command:") {
			e.Errorf("%s: created %+d times more than deleted", what, n)
		}
	}
}

// withFiles gives a stack on Google or Amazon a volume instead of its bucket, as the examples have.
func (e *engine) withFiles() {
	e.Helper()
	cloud := e.stack.Name()
	files := map[string]map[string]any{
		"gke": {"filestore": map[string]any{"tier": "BASIC_HDD", "capacityGb": 1024, "share": "data"}},
		"eks": {"efs": map[string]any{"throughputMode": "elastic"}},
	}[cloud]
	for section, value := range files {
		e.set("elasticdl:"+cloud+"."+section, value)
	}
	claim := map[string]string{"gke": "fileserver-claim", "eks": "efs-claim"}[cloud]
	for path, value := range map[string]any{cloud + ".bucket": nil, "data.path": "mnist",
		"job.trainingData": "/data/mnist/train", "job.validationData": "/data/mnist/test",
		"job.volumes": []any{map[string]any{"claimName": claim, "mountPath": "/data"}}} {
		e.set("elasticdl:"+path, value)
	}
}
