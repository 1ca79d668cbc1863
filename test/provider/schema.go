package provider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Schema is the Go SDK's description of a type of resource. It is read from the SDK's sources,
// because compiling the packages of virtual machines alone would take minutes.
type Schema struct {
	// source of the SDK's package
	code    string
	inputs  []field
	outputs []field
	// cache of the fields of structs, by name, because searching code is slow
	nested sync.Map
}

// fieldsOf returns the fields of another struct of the package, or none.
func (s *Schema) fieldsOf(name string) []field {
	found, ok := s.nested.Load(name)
	if !ok {
		found, _ = s.nested.LoadOrStore(name, fieldsOf(s.code, name))
	}
	return found.([]field)
}

type field struct {
	name string
	// type in Go: "*string", "[]NodePoolNodeConfigTaint"
	kind     string
	required bool
}

// modules has the modules with the SDKs of the clouds' packages.
var modules = map[string]struct{ path, dir string }{
	"gcp":     {"github.com/pulumi/pulumi-gcp/sdk/v7", "go/gcp"},
	"aws":     {"github.com/pulumi/pulumi-aws/sdk/v6", "go/aws"},
	"command": {"github.com/pulumi/pulumi-command/sdk", "go/command"},
}

var (
	moduleDirs = sync.OnceValues(func() (map[string]string, error) {
		list := exec.Command("go", "list", "-m", "-json")
		for _, m := range modules {
			list.Args = append(list.Args, m.path)
		}
		list.Stderr = os.Stderr
		text, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("find the sources of Pulumi's SDKs: go list -m: %w", err)
		}
		dirs := map[string]string{}
		for d := json.NewDecoder(bytes.NewReader(text)); ; {
			var m struct{ Path, Dir string }
			if err := d.Decode(&m); err == io.EOF {
				return dirs, nil
			} else if err != nil {
				return nil, err
			}
			dirs[m.Path] = m.Dir
		}
	})
	schemas sync.Map // by type: func() (*Schema, error)
	sources sync.Map // by directory: func() (string, error)
)

// SchemaOf returns the schema of a type: "gcp:container/nodePool:NodePool".
func SchemaOf(kind string) (*Schema, error) {
	read, _ := schemas.LoadOrStore(kind, sync.OnceValues(func() (*Schema, error) { return readSchema(kind) }))
	return read.(func() (*Schema, error))()
}

var newFunc = regexp.MustCompile(`(?m)^func New(\w+)\(ctx`)
var requiredArg = regexp.MustCompile(`args\.(\w+) == nil`)

func readSchema(kind string) (*Schema, error) {
	dirs, err := moduleDirs()
	if err != nil {
		return nil, err
	}
	pkg, rest, _ := strings.Cut(kind, ":")
	m, ok := modules[pkg]
	if !ok {
		return nil, fmt.Errorf("%s: no SDK is known", kind)
	}
	group := rest[:strings.IndexAny(rest, "/:")]
	dir := filepath.Join(dirs[m.path], m.dir, group)
	if group == "index" {
		dir = filepath.Dir(dir)
	}
	code, err := sourceOf(dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	end := strings.Index(code, `ctx.RegisterResource("`+kind+`"`)
	if end < 0 {
		return nil, fmt.Errorf("%s: the SDK has no such resource", kind)
	}
	made := newFunc.FindAllStringSubmatchIndex(code[max(0, end-10_000):end], -1)
	last := made[len(made)-1]
	begin := max(0, end-10_000)
	name := code[begin+last[2] : begin+last[3]]

	s := &Schema{code: code, outputs: fieldsOf(code, name)}
	args := regexp.MustCompile(`func \(` + name +
		`Args\) ElementType\(\) reflect\.Type \{\s+return reflect\.TypeOf\(\(\*(\w+)\)`).FindStringSubmatch(code)
	if args == nil {
		return nil, fmt.Errorf("%s: the SDK has no %sArgs", kind, name)
	}
	s.inputs = fieldsOf(code, args[1])
	goNames := namesOf(code, args[1])
	for _, required := range requiredArg.FindAllStringSubmatch(code[begin+last[0]:end], -1) {
		for i := range s.inputs {
			if s.inputs[i].name == goNames[required[1]] {
				s.inputs[i].required = true
			}
		}
	}
	return s, nil
}

func sourceOf(dir string) (string, error) {
	read, _ := sources.LoadOrStore(dir, sync.OnceValues(func() (string, error) {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			return "", fmt.Errorf("%s has no Go files", dir)
		}
		var b strings.Builder
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				return "", err
			}
			b.Write(text)
		}
		return b.String(), nil
	}))
	return read.(func() (string, error))()
}

var fieldLine = regexp.MustCompile("(?m)^\t(\\w+)\\s+(\\S+)\\s+`pulumi:\"([^\",]+)[^`]*`")

func structOf(code, name string) string {
	_, body, ok := strings.Cut(code, "\ntype "+name+" struct {\n")
	if !ok {
		return ""
	}
	body, _, _ = strings.Cut(body, "\n}\n")
	return body + "\n"
}

func fieldsOf(code, name string) []field {
	var all []field
	for _, m := range fieldLine.FindAllStringSubmatch(structOf(code, name), -1) {
		kind := m[2]
		scalar := !strings.HasPrefix(kind, "*") && !strings.HasPrefix(kind, "[]") &&
			!strings.HasPrefix(kind, "map[") && kind != "interface{}" && !strings.Contains(kind, ".")
		all = append(all, field{m[3], kind, scalar})
	}
	return all
}

func namesOf(code, name string) map[string]string {
	all := map[string]string{}
	for _, m := range fieldLine.FindAllStringSubmatch(structOf(code, name), -1) {
		all[m[1]] = m[3]
	}
	return all
}

// Check returns the problems of inputs, by path.
func (s *Schema) Check(in Props) map[string]string {
	bad := map[string]string{}
	s.object(bad, "", s.inputs, in)
	return bad
}

func (s *Schema) object(bad map[string]string, path string, fields []field, in Props) {
	for _, f := range fields {
		v, ok := in[f.name]
		if !ok {
			if f.required {
				bad[path+f.name] = "missing"
			}
			continue
		}
		s.value(bad, path+f.name, strings.TrimPrefix(f.kind, "*"), v)
	}
	for _, k := range slices.Sorted(maps.Keys(in)) {
		if !strings.HasPrefix(k, "__") && !slices.ContainsFunc(fields, func(f field) bool { return f.name == k }) {
			bad[path+k] = "the SDK has no such property"
		}
	}
}

func (s *Schema) value(bad map[string]string, path, kind string, v any) {
	if v == Unknown {
		return
	}
	ok := true
	switch {
	case kind == "string":
		_, ok = v.(string)
	case kind == "bool":
		_, ok = v.(bool)
	case kind == "int" || kind == "float64":
		_, ok = v.(float64)
	case strings.HasPrefix(kind, "[]"):
		var l []any
		l, ok = v.([]any)
		for i, e := range l {
			s.value(bad, fmt.Sprintf("%s[%d]", path, i), kind[2:], e)
		}
	case strings.HasPrefix(kind, "map[string]"):
		var m map[string]any
		m, ok = v.(map[string]any)
		for k, e := range m {
			s.value(bad, path+"."+k, strings.TrimPrefix(kind, "map[string]"), e)
		}
	default:
		fields := s.fieldsOf(kind)
		if len(fields) == 0 {
			return // any type, or one of another package
		}
		var m map[string]any
		if m, ok = v.(map[string]any); ok {
			s.object(bad, path+".", fields, m)
		}
	}
	if !ok {
		bad[path] = fmt.Sprintf("expected %s, got %v", kind, v)
	}
}

// computed returns the outputs that a cloud assigns; texts are derived from the resource's name.
func (s *Schema) computed(in Props, name string) Props {
	out := Props{}
	for _, f := range s.outputs {
		if _, ok := in[f.name]; ok {
			continue
		}
		switch f.kind {
		case "pulumi.StringOutput":
			out[f.name] = name + "." + f.name
		case "pulumi.BoolOutput":
			out[f.name] = false
		case "pulumi.IntOutput":
			out[f.name] = 0.0
		}
	}
	return out
}

// unknown returns all outputs that are not inputs, as a preview shows them.
func (s *Schema) unknown(in Props) Props {
	out := Props{}
	for _, f := range s.outputs {
		if _, ok := in[f.name]; !ok && !strings.Contains(f.kind, "PtrOutput") {
			out[f.name] = Unknown
		}
	}
	return out
}
