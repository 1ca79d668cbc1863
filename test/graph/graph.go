// Package graph records the resources that a Pulumi program declares, for golden files and for
// tests of their properties. It runs no Pulumi engine; the tests of package stacks do.
package graph

import (
	"cmp"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/internals"
)

// Update makes [Golden] write its files: `go test ./infra/... -update`.
var Update = flag.Bool("update", false, "write the golden files")

// Project and Stack are the names of the project and stack in every recording.
const (
	Project = "elasticdl"
	Stack   = "test"
)

// Resource is one declared resource. It refers to others as "type name".
type Resource struct {
	Type, Name string
	Inputs     resource.PropertyMap
	Options    Options
}

// Options has the resource options that were given, by their names in Pulumi.
type Options struct {
	Parent   string `json:"parent,omitempty"`
	Provider string `json:"provider,omitempty"`
	// including dependencies by its inputs
	DependsOn           []string `json:"dependsOn,omitempty"`
	DeletedWith         string   `json:"deletedWith,omitempty"`
	Protect             bool     `json:"protect,omitempty"`
	RetainOnDelete      bool     `json:"retainOnDelete,omitempty"`
	DeleteBeforeReplace bool     `json:"deleteBeforeReplace,omitempty"`
	IgnoreChanges       []string `json:"ignoreChanges,omitempty"`
	ReplaceOnChanges    []string `json:"replaceOnChanges,omitempty"`
	SecretOutputs       []string `json:"additionalSecretOutputs,omitempty"`
	// create, update, delete
	Timeouts []string `json:"timeouts,omitempty"`
}

// Cloud simulates the providers.
type Cloud struct {
	// outputs besides the inputs; nil = none
	Outputs func(r Resource) resource.PropertyMap
	// results of functions; nil = none
	Call func(token string, args resource.PropertyMap) resource.PropertyMap
	// called for each function, with the provider that has it; nil = not called
	Called func(token, provider string)
	// configuration of the stack: "gcp:project"
	Config map[string]string
	// values that Outputs does not return are unknown
	Preview bool
}

// Record runs a program and returns the resources that it declared, sorted by type and name, also
// if it fails.
func Record(cloud Cloud, program pulumi.RunFunc) ([]Resource, error) {
	m := &recorder{cloud: cloud}
	err := pulumi.RunErr(program, pulumi.WithMocks(Project, Stack, m), func(info *pulumi.RunInfo) {
		info.Config, info.DryRun = cloud.Config, cloud.Preview
	})
	slices.SortFunc(m.all, func(a, b Resource) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
	})
	return m.all, err
}

type recorder struct {
	cloud Cloud
	mu    sync.Mutex
	all   []Resource
}

func (m *recorder) NewResource(a pulumi.MockResourceArgs) (string, resource.PropertyMap, error) {
	r := Resource{Type: a.TypeToken, Name: a.Name, Inputs: a.Inputs}
	if q := a.RegisterRPC; q != nil {
		inputs, err := plugin.UnmarshalProperties(q.GetObject(),
			plugin.MarshalOptions{KeepUnknowns: true, KeepSecrets: true, KeepResources: true})
		if err != nil {
			return "", nil, err
		}
		r.Inputs = inputs // mocks would leave out the unknown ones
		r.Options = Options{
			Parent: short(q.GetParent()), Provider: short(q.GetProvider()), DeletedWith: short(q.GetDeletedWith()),
			Protect: q.GetProtect(), RetainOnDelete: q.GetRetainOnDelete(),
			DeleteBeforeReplace: q.GetDeleteBeforeReplace(),
			IgnoreChanges:       q.GetIgnoreChanges(), ReplaceOnChanges: q.GetReplaceOnChanges(),
			SecretOutputs: q.GetAdditionalSecretOutputs(),
		}
		for _, urn := range q.GetDependencies() {
			r.Options.DependsOn = append(r.Options.DependsOn, short(urn))
		}
		slices.Sort(r.Options.DependsOn)
		if t := q.GetCustomTimeouts(); t.GetCreate()+t.GetUpdate()+t.GetDelete() != "" {
			r.Options.Timeouts = []string{t.GetCreate(), t.GetUpdate(), t.GetDelete()}
		}
	}
	m.mu.Lock()
	m.all = append(m.all, r)
	m.mu.Unlock()
	outputs := a.Inputs.Copy()
	if m.cloud.Outputs != nil {
		maps.Copy(outputs, m.cloud.Outputs(r))
	}
	if !a.Custom {
		return "", outputs, nil
	}
	return a.Name + "-id", outputs, nil
}

func (m *recorder) Call(a pulumi.MockCallArgs) (resource.PropertyMap, error) {
	if m.cloud.Called != nil {
		m.cloud.Called(a.Token, short(a.Provider))
	}
	if m.cloud.Call == nil {
		return resource.PropertyMap{}, nil
	}
	return m.cloud.Call(a.Token, a.Args), nil
}

// short returns "type name" for a URN, or for a reference to a provider; "" for the stack.
func short(urn string) string {
	parts := strings.Split(urn, "::")
	if len(parts) < 4 || strings.HasSuffix(parts[2], string(resource.RootStackType)) {
		return ""
	}
	kinds := strings.Split(parts[2], "$")
	return kinds[len(kinds)-1] + " " + parts[3]
}

// Find returns the resource of that type and name, or nil.
func Find(all []Resource, kind, name string) *Resource {
	i := slices.IndexFunc(all, func(r Resource) bool { return r.Type == kind && r.Name == name })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// Golden compares resources with testdata/<name>.yaml, or writes that file with -update.
func Golden(t testing.TB, name string, all []Resource) {
	t.Helper()
	docs := make([]map[string]any, len(all))
	for i, r := range all {
		docs[i] = map[string]any{"type": r.Type, "name": r.Name,
			"inputs": plain(resource.NewProperty(r.Inputs)), "options": r.Options}
	}
	got, err := yaml.Marshal(docs)
	if err != nil {
		t.Fatal(err)
	}
	GoldenText(t, name+".yaml", string(got))
	t.Logf("%s: %d resources", name, len(all))
}

// GoldenText compares a text with a file of testdata.
func GoldenText(t testing.TB, file, got string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *Update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf(
			"%s is not what the program asks for now; see git diff after go test -update.\nnow: %s",
			path, firstDifference(got, string(want)))
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return strings.Join(g[max(0, i-8):min(len(g), i+4)], "\n")
		}
	}
	return "one is longer"
}

// plain returns a value for YAML: an unknown one as "(unknown)", a secret within "(secret)".
func plain(v resource.PropertyValue) any {
	switch {
	case v.IsSecret():
		return map[string]any{"(secret)": plain(v.SecretValue().Element)}
	case v.IsComputed() || v.IsOutput():
		return "(unknown)"
	case v.IsObject():
		m := map[string]any{}
		for k, e := range v.ObjectValue() {
			m[string(k)] = plain(e)
		}
		return m
	case v.IsArray():
		a := []any{}
		for _, e := range v.ArrayValue() {
			a = append(a, plain(e))
		}
		return a
	}
	return v.V
}

// Await passes the value of an output to a function, if it is known. The program does not end
// before: for outputs of plain values, which belong to no program, ApplyT would not see to that.
func Await(ctx *pulumi.Context, o pulumi.Output, use func(value any)) {
	_, done, _ := ctx.NewOutput()
	go func() {
		defer done(nil)
		if is, err := internals.UnsafeAwaitOutput(ctx.Context(), o); err == nil && is.Known {
			use(is.Value)
		}
	}()
}

// Apart checks that no two resources have the same name in the program, and no two of a type the
// same value of one of the inputs.
func Apart(t testing.TB, all []Resource, inputs ...resource.PropertyKey) {
	t.Helper()
	seen := map[string]bool{}
	once := func(what string) {
		if seen[what] {
			t.Errorf("two resources have %s", what)
		}
		seen[what] = true
	}
	for _, r := range all {
		once(r.Type + " " + r.Name)
		for _, key := range inputs {
			if v := r.Inputs[key]; v.IsString() && r.Options.Parent != "" && !strings.HasPrefix(r.Type, "pulumi:") {
				once(r.Type + " with " + string(key) + " " + v.StringValue())
			}
		}
	}
}
