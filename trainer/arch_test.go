package trainer

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	module = "github.com/elasticdl/elasticdl"
	root   = ".." // of the module
)

// clock lists the names of package time that a pure package must not use.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// seeded lists the names of package math/rand/v2 that do not use the process's seed.
var seeded = []string{"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "PCG", "ChaCha8", "Zipf", "Source"}

// source is one parsed file of the module.
type source struct {
	path      string // from the module's root, with slashes
	dir       string
	test      bool
	generated bool
	lines     int
	*ast.File
	fset *token.FileSet
}

// imports of the file, in its order.
func (s source) imports() []string {
	var paths []string
	for _, spec := range s.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		paths = append(paths, path)
	}
	return paths
}

// local is the name by which the file knows the package, "" if it does not import it.
func (s source) local(path, name string) string {
	for i, p := range s.imports() {
		if p == path {
			if n := s.Imports[i].Name; n != nil {
				return n.Name
			}
			return name
		}
	}
	return ""
}

// load parses the Go files of this module; other modules below it are not its business.
func load(t *testing.T) []source {
	t.Helper()
	sources, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	if len(sources) < 50 {
		t.Fatalf("only %d files found", len(sources))
	}
	return sources
}

var tree = sync.OnceValues(func() ([]source, error) {
	var sources []source
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, other := os.Stat(filepath.Join(path, "go.mod"))
			if path != root && (other == nil || strings.HasPrefix(d.Name(), ".") ||
				slices.Contains([]string{"build", "testdata"}, d.Name())) {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		rel = filepath.ToSlash(rel)
		sources = append(sources, source{
			path: rel, dir: strings.TrimSuffix(filepath.ToSlash(filepath.Dir(rel)), "/"),
			test:      strings.HasSuffix(rel, "_test.go"),
			generated: ast.IsGenerated(file), lines: bytes.Count(text, []byte("\n")), File: file, fset: fset,
		})
		return nil
	})
	return sources, err
})

// within says that dir is one of the directories, or below one.
func within(dir, directories string) bool {
	return slices.ContainsFunc(strings.Fields(directories), func(d string) bool {
		return dir == d || strings.HasPrefix(dir, d+"/")
	})
}

func TestImportsGoOneWay(t *testing.T) {
	seen := make(map[string]map[string]bool)
	for _, s := range load(t) {
		if s.test {
			continue
		}
		name, inTrainer := strings.CutPrefix(s.dir, "trainer/")
		p, known := packages[name]
		if inTrainer && !known {
			t.Errorf("%s: package %s is not in the import law: say what it is in arch_test.go", s.path, s.dir)
			continue
		}
		for _, path := range s.imports() {
			if other, ok := strings.CutPrefix(path, module+"/trainer/"); ok && inTrainer {
				if !slices.Contains(strings.Fields(p.imports), other) {
					t.Errorf("%s: %s (%s) imports %s (%s): imports go cmd → shells → models → pure",
						s.path, name, p.kind, other, packages[other].kind)
				}
				if why := upstairs(name, other); why != "" {
					t.Errorf("%s: %s imports %s: %s", s.path, name, other, why)
				}
				if seen[name] == nil {
					seen[name] = make(map[string]bool)
				}
				seen[name][other] = true
			}
			for _, c := range confined {
				if (path == c.path || strings.HasPrefix(path, strings.TrimSuffix(c.path, "/")+"/")) &&
					!within(s.dir, c.to) && !within(s.dir, "test tools") {
					t.Errorf("%s imports %s, which is for %s only: %s", s.path, path, c.to, c.why)
				}
			}
		}
	}
	for name, p := range packages {
		for other := range strings.FieldsSeq(p.imports) {
			if !seen[name][other] {
				t.Errorf("%s does not import %s: the import law is out of date", name, other)
			}
			if rank(packages[other].kind) > rank(p.kind) {
				t.Errorf("the import law lets %s (%s) import %s (%s)", name, p.kind, other, packages[other].kind)
			}
		}
	}
}

// upstairs says why a package may not import another by the law of the folders, "" if it may.
func upstairs(name, other string) string {
	from, _, _ := strings.Cut(name, "/")
	to, _, _ := strings.Cut(other, "/")
	if from == to || slices.Contains(strings.Fields(small), to) {
		return ""
	}
	if below, ok := floors[from]; !ok || !slices.Contains(strings.Fields(below), to) {
		return fmt.Sprintf("%s may import %q, and the small packages", from, below)
	}
	return ""
}

// confinedTo tells whether the package is one of the few that are meant to import the path.
func confinedTo(dir, path string) bool {
	for _, c := range confined {
		if strings.HasPrefix(path, c.path) {
			return within(dir, c.to)
		}
	}
	return false
}

// rank orders kinds: imports go down, or stay.
func rank(k kind) int { return slices.Index([]kind{pure, wire, model, shell}, k) }

func TestPureIsPure(t *testing.T) {
	used := make(map[string]bool)
	for _, s := range load(t) {
		name := strings.TrimPrefix(s.dir, "trainer/")
		if file := strings.TrimPrefix(s.path, "trainer/"); slices.Contains(pureFiles, file) {
			name = file
			used[file] = true
		} else if s.test || packages[name].kind != pure && s.dir != settings {
			continue
		}
		refuse := func(what, why string) {
			if excused[name+" "+what] == "" {
				t.Errorf("%s: %s in a pure package: %s", s.path, what, why)
			}
			used[name+" "+what] = true
		}
		for _, path := range s.imports() {
			if why, ok := notPure[path]; ok {
				refuse(path, why)
			} else if strings.HasPrefix(path, "github.com/pulumi/") {
				refuse(path, "its SDKs take minutes to compile")
			} else if domain, _, _ := strings.Cut(path, "/"); strings.Contains(domain, ".") &&
				!strings.HasPrefix(path, module) && !confinedTo(s.dir, path) {
				refuse(path, "pure packages stand on the standard library, and on what is for them only")
			}
		}
		timeName, randName := s.local("time", "time"), s.local("math/rand/v2", "rand")
		ast.Inspect(s.File, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				refuse("go", "it starts no goroutine")
			case *ast.SelectorExpr:
				x, ok := n.X.(*ast.Ident)
				switch {
				case !ok:
				case x.Name == timeName && slices.Contains(clock, n.Sel.Name):
					refuse("time."+n.Sel.Name, "now is an argument")
				case x.Name == randName && !slices.Contains(seeded, n.Sel.Name):
					refuse("rand."+n.Sel.Name, "one seed replays it")
				}
			}
			return true
		})
	}
	for what, why := range excused {
		if !used[what] {
			t.Errorf("%s (%s) is excused and not there", what, why)
		}
	}
	for _, file := range pureFiles {
		if !used[file] {
			t.Errorf("%s is to be pure, and not there", file)
		}
	}
}

// stamps are the files of the agent that read the clock, to stamp what they tell others.
var stamps = []string{"trainer/run/agent/shell.go", "trainer/run/agent/socket.go"}

// The agent does not decide by the clock: elastic/supervise does.
func TestAgentDoesNotDecideByTheClock(t *testing.T) {
	used := make(map[string]bool)
	for _, s := range load(t) {
		if s.test || s.dir != "trainer/run/agent" {
			continue
		}
		timeName := s.local("time", "time")
		ast.Inspect(s.File, func(n ast.Node) bool {
			if n, ok := n.(*ast.SelectorExpr); ok && slices.Contains(clock, n.Sel.Name) {
				if x, ok := n.X.(*ast.Ident); ok && x.Name == timeName {
					if used[s.path] = true; !slices.Contains(stamps, s.path) {
						t.Errorf("%s: time.%s: only %v read the clock, to stamp events of elastic/supervise", s.path,
							n.Sel.Name, stamps)
					}
				}
			}
			return true
		})
	}
	for _, path := range stamps {
		if !used[path] {
			t.Errorf("%s does not read the clock: the law is out of date", path)
		}
	}
}

// The binary of a pod is small: neither Pulumi nor the servers of Kubernetes are linked. The agent
// has no part of Kubernetes either, and no package that elasticdl, whose bill of materials counts
// for both, has not.
func TestBinaryLinksNoInfrastructure(t *testing.T) {
	links := func(program string, forbidden ...string) []string {
		cmd := exec.Command("go", "list", "-deps", program)
		cmd.Dir = root
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("list what %s links: %v", program, err)
		}
		deps := strings.Fields(string(out))
		if !slices.Contains(deps, module+"/trainer/runtime/local") {
			t.Fatalf("%d dependencies, trainer/runtime/local is not among them", len(deps))
		}
		for _, dep := range deps {
			if slices.ContainsFunc(forbidden, func(f string) bool { return strings.HasPrefix(dep, f) }) {
				t.Errorf("%s links %s", program, dep)
			}
		}
		return deps
	}
	all := links("./cmd/elasticdl", "github.com/pulumi/", "k8s.io/kubernetes/", "k8s.io/apiserver/",
		"github.com/aws/aws-sdk-go-v2/service/ec2", "cloud.google.com/go/container")
	for _, dep := range links("./cmd/elasticdl-agent", "k8s.io/", module+"/trainer/runtime/kube") {
		if !slices.Contains(all, dep) && dep != module+"/cmd/elasticdl-agent" {
			t.Errorf("the agent links %s, which elasticdl does not", dep)
		}
	}
}

func TestEveryPackageHasOneDoc(t *testing.T) {
	docs := make(map[string][]string) // also of packages that have none
	for _, s := range load(t) {
		if s.test {
			continue
		}
		if _, ok := docs[s.dir]; !ok {
			docs[s.dir] = nil
		}
		if s.Doc == nil {
			continue
		}
		docs[s.dir] = append(docs[s.dir], s.path)
		if begins := "Package " + s.Name.Name + " "; s.Name.Name != "main" && !strings.HasPrefix(s.Doc.Text(),
			begins) {
			t.Errorf("%s: the package's doc does not begin with %q", s.path, begins)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(docs)) {
		if files := docs[dir]; len(files) != 1 {
			t.Errorf("%s has %d package docs: %v", dir, len(files), files)
		}
	}
	// a folder's description is found without a search
	for _, folder := range slices.Sorted(maps.Keys(floors)) {
		dir := "trainer/" + folder
		if want := dir + "/doc.go"; !slices.Equal(docs[dir], []string{want}) {
			t.Errorf("%s: the package doc is in %v, expected in %s: what belongs in this folder, and what "+
				"it may import", dir, docs[dir], want)
		}
	}
}

// The map is of this country.
func TestMapIsComplete(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for name := range packages {
		if !strings.Contains(string(doc), name+"/") {
			t.Errorf("package %s is not on the map in doc.go", name)
		}
		if _, err := os.Stat(name); err != nil {
			t.Errorf("package %s is in the import law and not in the tree: %v", name, err)
		}
	}
}

// Generated code has packages of its own, so that what is written is found and read without it. Its
// package has only the doc in addition, with the command that generates.
func TestGeneratedStandsApart(t *testing.T) {
	generated := make(map[string]bool)
	for _, s := range load(t) {
		generated[s.dir] = generated[s.dir] || s.generated
	}
	for _, s := range load(t) {
		if generated[s.dir] && !s.generated && len(s.Decls) > 0 {
			t.Errorf("%s adds declarations to generated code: put it in a package of its own", s.path)
		}
	}
}

// The parts of the master ask it for what stands in their interfaces: none has the master itself,
// but the executor of actions. The interfaces are narrow: state that parts share is in objects.
func TestPartsDoNotHaveTheMaster(t *testing.T) {
	const most = 8
	hosts := 0
	for _, s := range load(t) {
		if s.dir != "trainer/master" || s.test {
			continue
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name == "executor" {
				return !ok
			}
			if host, ok := spec.Type.(*ast.InterfaceType); ok && strings.HasSuffix(spec.Name.Name, "Host") {
				hosts++
				if n := host.Methods.NumFields(); n > most {
					t.Errorf("%s: %s has %d methods, more than %d", s.path, spec.Name.Name, n, most)
				}
			}
			ast.Inspect(spec.Type, func(n ast.Node) bool {
				if star, ok := n.(*ast.StarExpr); ok {
					if x, ok := star.X.(*ast.Ident); ok && x.Name == "master" {
						t.Errorf("%s: %s has the master: declare an interface of what it asks", s.path,
							spec.Name.Name)
					}
				}
				return true
			})
			return false
		})
	}
	if hosts == 0 {
		t.Error("no interface of requests to the master was found")
	}
}
