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

// kind is the purity of a package.
type kind string

const (
	// decides and computes: no I/O, clock, goroutine, lock or log
	pure  kind = "pure"
	model kind = "model" // what users write, and what that needs
	// how the roles speak: generated calls, and the certificates that prove who makes them
	wire  kind = "wire"
	shell kind = "shell" // does
)

// floors is the law of the folders: what the packages of each may import, besides those of their
// own folder and the small ones.
var floors = map[string]string{
	"elastic": "",
	"wire":    "elastic",
	"store":   "elastic wire",
	"master":  "elastic wire store",
	"train":   "elastic wire store",
	"run":     "elastic wire store",
	"runtime": "elastic wire store master train run",
}

// small are packages outside the folders that every package may import.
const small = "console download logline"

// packages is the import law within the folders: what of the trainer each of its packages imports.
// A new import is a decision about the architecture, so it is made here; a new package too.
var packages = map[string]struct {
	kind    kind
	imports string
}{
	"elastic":            {pure, ""},
	"elastic/audit":      {pure, "elastic/book elastic/journal elastic/ledger elastic/task"},
	"elastic/book":       {pure, "elastic/ledger elastic/task"},
	"elastic/curve":      {pure, ""},
	"elastic/custody":    {pure, "elastic/ledger elastic/rendezvous"},
	"elastic/evaluation": {pure, ""},
	"elastic/identity":   {pure, "elastic/pod"},
	"elastic/job":        {pure, "elastic/source"},
	"elastic/admission":  {pure, ""},
	"elastic/journal":    {pure, "elastic/book"},
	"elastic/launch":     {pure, ""},
	"elastic/leases":     {pure, "elastic/ledger"},
	"elastic/ledger":     {pure, ""},
	"elastic/lifecycle":  {pure, "elastic/job"},
	"elastic/param":      {pure, ""},
	"elastic/pod":        {pure, ""},
	"elastic/rendezvous": {pure, ""},
	"elastic/source":     {pure, ""},
	"elastic/stacks":     {pure, ""},
	"elastic/stuck":      {pure, "elastic/stacks"},
	"elastic/supervise":  {pure, "elastic/job elastic/rendezvous elastic/timing elastic/verdict"},
	"elastic/task":       {pure, "elastic/ledger"},
	"elastic/timing":     {pure, ""},
	"elastic/verdict":    {pure, ""},

	"wire":            {wire, ""},
	"wire/credential": {wire, "elastic/identity"},
	"wire/membership": {shell, "elastic/job wire wire/rpc"},
	"wire/rpc":        {wire, "elastic/identity elastic/param elastic/pod elastic/timing wire wire/credential"},

	"store":                 {shell, ""},
	"store/bucket":          {shell, "store/checkpoint store/outage"},
	"store/checkpoint":      {shell, "elastic/ledger elastic/param elastic/task store/safetensors"},
	"store/checkpoint/laws": {shell, "elastic/ledger elastic/param store/checkpoint store/safetensors"},
	"store/outage":          {shell, "elastic/timing"},
	"store/prediction":      {shell, "store/checkpoint"},
	"store/safetensors":     {pure, "elastic/param"},
	"store/tensorboard":     {shell, "elastic/job elastic/pod store/checkpoint store/outage wire"},

	"master": {shell,
		"elastic/admission elastic/book elastic/curve elastic/custody elastic/evaluation elastic/identity " +
			"elastic/job elastic/journal elastic/ledger elastic/lifecycle elastic/param elastic/pod " +
			"elastic/rendezvous elastic/stacks elastic/stuck elastic/task elastic/timing elastic/verdict logline " +
			"store/checkpoint store/prediction wire wire/rpc"},

	"train":               {shell, ""},
	"train/data":          {shell, "elastic/task store/outage train/recordio"},
	"train/data/dataset":  {shell, "download train/data train/data/example train/recordio"},
	"train/data/example":  {model, ""},
	"train/mesh":          {shell, "elastic/identity elastic/pod elastic/timing train/ring wire/credential"},
	"train/nn":            {pure, "elastic/param train/nn/kernel"},
	"train/nn/kernel":     {pure, "train/nn/kernel/avx"},
	"train/nn/kernel/avx": {pure, ""},
	"train/optim":         {pure, "train/nn/kernel"},
	"train/ps": {shell,
		"elastic/custody elastic/identity elastic/job elastic/ledger elastic/param elastic/pod elastic/timing " +
			"store/checkpoint store/outage train/nn/kernel train/optim train/zoo wire wire/credential wire/rpc"},
	"train/recordio": {pure, ""},
	"train/ring":     {pure, "train/nn/kernel"},
	"train/worker": {shell,
		"elastic/job elastic/ledger elastic/param elastic/rendezvous elastic/task elastic/timing " +
			"store/checkpoint store/outage store/prediction train/data train/mesh train/nn train/nn/kernel " +
			"train/optim train/ps train/ring train/zoo wire wire/membership wire/rpc"},
	"train/zoo": {model, "elastic/param train/data/example train/nn train/nn/kernel train/optim"},

	"run": {shell, ""},
	"run/agent": {shell,
		"elastic/job elastic/leases elastic/ledger elastic/source elastic/supervise elastic/timing run/fetch " +
			"run/program run/python run/tcpstore store/checkpoint store/outage wire wire/membership wire/rpc"},
	"run/fetch":    {shell, "download elastic/source store/checkpoint"},
	"run/folder":   {shell, ""},
	"run/program":  {shell, "console logline"},
	"run/python":   {shell, ""},
	"run/tcpstore": {shell, ""},

	"runtime":       {shell, ""},
	"runtime/image": {shell, "run/folder"},
	"runtime/kube": {shell,
		"elastic/curve elastic/job elastic/journal elastic/pod logline master runtime/kube/observe " +
			"runtime/manifest runtime/role store/checkpoint wire wire/rpc"},
	"runtime/kube/incluster": {shell,
		"elastic/curve elastic/identity elastic/job elastic/journal elastic/launch elastic/pod master " +
			"runtime/kube/observe runtime/manifest runtime/role store/checkpoint wire wire/credential wire/rpc"},
	"runtime/kube/observe": {shell, "elastic/pod runtime/manifest runtime/role"},
	"runtime/local": {shell,
		"console elastic/curve elastic/identity elastic/job elastic/journal elastic/launch elastic/pod " +
			"elastic/timing logline master run/program runtime/role store/checkpoint wire wire/credential wire/rpc"},
	"runtime/manifest": {pure, "elastic/job elastic/pod elastic/timing"},
	"runtime/metrics": {shell,
		"elastic/job elastic/journal elastic/pod master run/program train/ps train/worker wire"},
	"runtime/role": {shell,
		"elastic/curve elastic/identity elastic/job elastic/journal elastic/pod elastic/task elastic/timing " +
			"logline master run/agent run/program runtime/metrics store/bucket store/checkpoint store/outage " +
			"store/prediction store/tensorboard train/data train/ps train/worker train/zoo wire wire/credential " +
			"wire/membership wire/rpc"},

	"console":  {shell, ""},
	"logline":  {shell, ""},
	"download": {shell, ""},
}

// confined lists imports that only some packages may have, with reasons.
var confined = []struct{ path, to, why string }{
	{"k8s.io/client-go", "trainer/runtime/kube infra/live",
		"one package of a job and one of a stack talk to Kubernetes, so that the rest needs no cluster"},
	{"k8s.io/", "trainer/runtime/kube trainer/runtime/manifest infra", "objects of Kubernetes are made in one place"},
	{"sigs.k8s.io/", "trainer/runtime/kube trainer/runtime/manifest infra",
		"objects of Kubernetes are written in one place"},
	{"github.com/google/go-containerregistry", "trainer/runtime/image", "images are made in one place"},
	{"github.com/pulumi/", "infra stacks", "nothing that runs in a pod links Pulumi"},
	{"os/exec", "trainer/runtime/local trainer/run/program trainer/runtime/image infra/image stacks",
		"only the runtime starts roles, users' programs are processes, and images need a compiler"},
	{"google.golang.org/grpc", "trainer/wire trainer/wire/rpc trainer/wire/membership " +
		"trainer/run/agent trainer/master trainer/train/ps trainer/train/worker " +
		"trainer/runtime/role trainer/runtime/local trainer/runtime/kube", "the wire ends at the shells"},
	{"github.com/spf13/", "cmd", "flags are the command's; the trainer knows job.Job"},
	{"github.com/prometheus/", "trainer/runtime/metrics", "one package has all metrics and their names"},
	{"gocloud.dev", "trainer/store/bucket", "the clouds' SDKs are large: who opens a place by its name links them"},
	{"github.com/aws/", "trainer/store/bucket",
		"the clouds' SDKs are large: who opens a place by its name links them"},
	{"cloud.google.com/", "trainer/store/bucket",
		"the clouds' SDKs are large: who opens a place by its name links them"},
	{module + "/trainer/store/bucket", "trainer/runtime/role cmd",
		"the rest takes checkpoint.Files, and is tested without the clouds' SDKs"},
	{module + "/trainer/train/nn/kernel/avx", "trainer/train/nn/kernel",
		"assembly checks no argument; package kernel does"},
	{module + "/trainer/store/checkpoint/laws", "", "it is for tests"},
	{"github.com/charmbracelet/", "cmd", "views are the command's"},
	{module + "/cmd", "cmd examples", "the command is on top"},
	{module + "/stacks", "", "the stacks are on top"},
	{module + "/infra", "infra stacks", "trainer and infra meet only in job.Job"},
}

// pureFiles are the pure parts of packages that are not.
var pureFiles = []string{"train/ps/rule.go", "store/checkpoint/claim.go", "store/tensorboard/event.go",
	"store/tensorboard/name.go", "store/tensorboard/sampler.go", "store/tensorboard/backlog.go"}

// settings is the pure package of the infrastructure.
const settings = "infra/settings"

// notPure lists imports that a pure package must not have.
var notPure = map[string]string{
	"context": "nothing in it waits", "sync": "the shell holds the lock", "sync/atomic": "the shell holds the lock",
	"os": "no I/O", "net": "no I/O", "net/http": "no I/O", "syscall": "no I/O", "io/fs": "no I/O",
	"runtime": "no scheduling",
	"log":     "shells log", "log/slog": "shells log",
	"math/rand": "math/rand/v2 with a seed", "crypto/rand": "math/rand/v2 with a seed",
	"testing": "tests are elsewhere",
}

// excused lists exceptions of pure packages, with reasons.
var excused = map[string]string{
	"train/nn sync": "its team of threads", "train/nn sync/atomic": "its team of threads",
	"train/nn go":                             "its team of threads",
	"train/nn/kernel os":                      "ELASTICDL_KERNELS, for tests",
	"train/nn/kernel golang.org/x/sys/cpu":    "which assembly there is for the processor",
	"train/recordio github.com/golang/snappy": "a compression of the format",
	"store/tensorboard/event.go google.golang.org/protobuf/encoding/protowire": "the encoding of the format",
}

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

// The binary of a pod is small: neither Pulumi nor the servers of Kubernetes are linked, and
// client-go by trainer/runtime/kube only, and what is below it.
func TestBinaryLinksNoInfrastructure(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "./cmd/elasticdl")
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list what the binary links: %v", err)
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, module+"/trainer/runtime/local") {
		t.Fatalf("%d dependencies, trainer/runtime/local is not among them", len(deps))
	}
	forbidden := []string{"github.com/pulumi/", "k8s.io/kubernetes/", "k8s.io/apiserver/",
		"github.com/aws/aws-sdk-go-v2/service/ec2", "cloud.google.com/go/container"}
	if !slices.Contains(deps, module+"/trainer/runtime/kube") {
		forbidden = append(forbidden, "k8s.io/")
	}
	for _, dep := range deps {
		for _, f := range forbidden {
			if strings.HasPrefix(dep, f) {
				t.Errorf("the binary links %s", dep)
			}
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
