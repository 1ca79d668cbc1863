package eks

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// Amazon's SDK knows every input, also those of resources that are registered without its types;
// and every resource that can have tags has the stack's labels.
func TestInputsOfTheSDK(t *testing.T) {
	dir, got := sdk(t)
	if "v"+version != got {
		t.Errorf("resources without types ask for version %s, go.mod has %s", version, got)
	}
	inputs := map[string]map[string]bool{}
	for _, s := range []*settings.Settings{own(), existing()} {
		v, err := record(s, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range v.all {
			if !strings.HasPrefix(r.Type, "aws:") {
				continue
			}
			known, ok := inputs[r.Type]
			if !ok {
				known = argsOf(t, dir, r.Type)
				inputs[r.Type] = known
			}
			for key := range r.Inputs {
				if !known[string(key)] {
					t.Errorf("%s has no %s", r.Type, key)
				}
			}
			for label, want := range s.Labels {
				if got := text(&r, `tags["`+label+`"]`); known["tags"] && got != want {
					t.Errorf("%s %s: tag %s is %s, not %s", r.Type, r.Name, label, got, want)
				}
			}
		}
	}
	if len(inputs) < 25 {
		t.Errorf("only %d types were looked at", len(inputs))
	}
}

// sdk returns the directory of Amazon's SDK, and its version.
func sdk(t *testing.T) (dir, version string) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}} {{.Version}}",
		"github.com/pulumi/pulumi-aws/sdk/v6").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir, version, _ = strings.Cut(strings.TrimSpace(string(out)), " ")
	return dir, version
}

// argsOf returns the names of a resource's inputs, from the SDK's source.
func argsOf(t *testing.T, dir, kind string) map[string]bool {
	_, file, _ := strings.Cut(kind, ":")
	file, _, _ = strings.Cut(file, ":") // "eks/cluster"
	source, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, "go", "aws", file+".go"),
		nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	ast.Inspect(source, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != filepath.Base(file)+"Args" {
			return true
		}
		for _, f := range spec.Type.(*ast.StructType).Fields.List {
			tag, err := strconv.Unquote(f.Tag.Value)
			if err != nil {
				t.Fatal(err)
			}
			names[reflect.StructTag(tag).Get("pulumi")] = true
		}
		return false
	})
	if len(names) == 0 {
		t.Fatalf("no inputs of %s were found", kind)
	}
	return names
}
