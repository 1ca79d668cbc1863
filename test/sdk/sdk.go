// Package sdk compares the inputs of resources with the source of Pulumi's SDKs. Programs that
// register resources without the SDK's types, because these take minutes to compile, have no
// compiler that knows their inputs: this package is for their tests.
package sdk

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"github.com/elasticdl/elasticdl/test/graph"
)

// Source is the source of an SDK.
type Source struct {
	Version string // "6.83.0"
	dir     string
	// by package, by name of the struct, by property: the type in Go
	structs map[string]map[string]map[string]string
}

// Of returns the source of a module in go.mod; of is the directory of its packages.
func Of(t testing.TB, module, of string) *Source {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}} {{.Version}}", module).Output()
	if err != nil {
		t.Fatalf("go list %s: %v", module, err)
	}
	dir, version, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	return &Source{Version: strings.TrimPrefix(version, "v"), dir: filepath.Join(dir, of),
		structs: map[string]map[string]map[string]string{}}
}

var (
	isStruct = regexp.MustCompile(`(?s)\ntype (\w+Args) struct \{\n(.*?)\n\}`)
	isField  = regexp.MustCompile("(?m)^\t(\\w+) +(\\S+)(?: +`pulumi:\"(\\w+)\"`)?$")
)

// read returns the structs of a package.
func (s *Source) read(of string) (map[string]map[string]string, error) {
	if s.structs[of] != nil {
		return s.structs[of], nil
	}
	files, err := filepath.Glob(filepath.Join(s.dir, of, "*.go"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("the SDK has no package %s: %v", of, err)
	}
	all := map[string]map[string]string{}
	// The struct of a resource has no tags; the same fields of the private struct have them.
	tags := map[string]string{}
	tag := func(of, field string) string { return strings.ToLower(of) + "." + field }
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, found := range isStruct.FindAllStringSubmatch(string(text), -1) {
			all[found[1]] = map[string]string{}
			for _, field := range isField.FindAllStringSubmatch(found[2], -1) {
				all[found[1]][field[1]] = field[2]
				if field[3] != "" {
					tags[tag(found[1], field[1])] = field[3]
				}
			}
		}
	}
	for of, fields := range all {
		byTag := map[string]string{}
		for field, is := range fields {
			byTag[tags[tag(of, field)]] = is
		}
		all[of] = byTag
	}
	s.structs[of] = all
	return all, nil
}

// Has reports whether a type of resource has an input.
func (s *Source) Has(t testing.TB, kind, input string) bool {
	t.Helper()
	of, name := split(kind)
	all, err := s.read(of)
	if err != nil {
		t.Fatal(err)
	}
	return all[name][input] != ""
}

// split returns the package of a type, and the struct of its inputs: "ec2" and "VpcArgs" of
// "aws:ec2/vpc:Vpc".
func split(kind string) (of, name string) {
	parts := strings.Split(kind, ":")
	of, _, _ = strings.Cut(parts[1], "/")
	return of, parts[2] + "Args"
}

// Check reports inputs of a resource that the SDK does not have, or has in another type, at any
// depth.
func (s *Source) Check(t testing.TB, r graph.Resource) {
	t.Helper()
	of, name := split(r.Type)
	all, err := s.read(of)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range object(all, name, resource.NewProperty(r.Inputs), r.Type+" "+r.Name) {
		t.Error(problem)
	}
}

func object(all map[string]map[string]string, name string, v resource.PropertyValue, at string) (problems []string) {
	fields, ok := all[name]
	switch {
	case !ok:
		return []string{fmt.Sprintf("%s: the SDK has no %s", at, name)}
	case !v.IsObject():
		return []string{fmt.Sprintf("%s: %v, expected an object", at, v)}
	}
	for _, key := range v.ObjectValue().StableKeys() {
		is := fields[string(key)]
		if is == "" {
			problems = append(problems, fmt.Sprintf("%s: %s has no %s", at, name, key))
			continue
		}
		problems = append(problems, value(all, is, v.ObjectValue()[key], at+"."+string(key))...)
	}
	return problems
}

// value compares a value with a type of an input, such as "pulumi.StringPtrInput" or
// "ClusterAddonsConfigPtrInput".
func value(all map[string]map[string]string, is string, v resource.PropertyValue, at string) (problems []string) {
	for v.IsSecret() || v.IsOutput() {
		if v.IsSecret() {
			v = v.SecretValue().Element
		} else {
			v = v.OutputValue().Element
		}
	}
	if v.IsNull() || v.IsComputed() {
		return nil
	}
	is = strings.TrimSuffix(strings.TrimSuffix(is, "Input"), "Ptr")
	own := !strings.HasPrefix(is, "pulumi.")
	of, array := strings.CutSuffix(is, "Array")
	if array {
		if !v.IsArray() {
			return []string{fmt.Sprintf("%s: %v, expected a list", at, v)}
		}
		for i, e := range v.ArrayValue() {
			problems = append(problems, value(all, of, e, fmt.Sprintf("%s[%d]", at, i))...)
		}
		return problems
	}
	of, isMap := strings.CutSuffix(is, "Map")
	switch {
	case isMap && !own:
		if !v.IsObject() {
			return []string{fmt.Sprintf("%s: %v, expected a map", at, v)}
		}
		for _, key := range v.ObjectValue().StableKeys() {
			problems = append(problems, value(all, of, v.ObjectValue()[key], at+"."+string(key))...)
		}
		return problems
	case own:
		return object(all, is+"Args", v, at)
	}
	kinds := map[string]bool{"pulumi.String": v.IsString(), "pulumi.Bool": v.IsBool(),
		"pulumi.Int": v.IsNumber(), "pulumi.Float64": v.IsNumber()}
	if ok, known := kinds[is]; known && !ok {
		return []string{fmt.Sprintf("%s: %v, expected %s", at, v, is)}
	}
	return nil
}
