package settings

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// day is the current time in tests.
var day = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// file returns the configuration in a stack's file.
func file(t testing.TB, path string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var stack struct{ Config map[string]any }
	if err := yaml.UnmarshalStrict(text, &stack); err != nil {
		t.Fatal(err)
	}
	return stack.Config
}

// shipped returns the configuration of a stack of this repository, with the values that only its
// user knows.
func shipped(t testing.TB, cloud string) map[string]any {
	t.Helper()
	return completed(file(t, "../../stacks/Pulumi."+cloud+".yaml"))
}

// stack returns the same with a volume, which has the data, in addition to a bucket; on EKS it has
// managed node groups.
func stack(t testing.TB, cloud string) map[string]any {
	t.Helper()
	config := shipped(t, cloud)
	setAll(t, config, volumes[cloud])
	return config
}

// volumes has the settings that give a stack the volume of the examples, by cloud.
var volumes = map[string]map[string]string{
	CloudGKE: {"gke.filestore": "{tier: BASIC_HDD, capacityGb: 1024, share: data}", "data.path": "mnist",
		"job.volumes":      "[{claimName: fileserver-claim, mountPath: /data}]",
		"job.trainingData": "/data/mnist/train", "job.validationData": "/data/mnist/test"},
	CloudEKS: {"eks.nodes": "groups", "eks.pools": "", "eks.efs": "{throughputMode: elastic}",
		"eks.systemGroup":  "{instanceTypes: [m6i.large], minNodes: 1, desiredNodes: 1, maxNodes: 3}",
		"eks.workerGroup":  "{instanceTypes: [m6i.large], minNodes: 0, desiredNodes: 1, maxNodes: 3}",
		"data.path":        "mnist",
		"job.volumes":      "[{claimName: efs-claim, mountPath: /data}]",
		"job.trainingData": "/data/mnist/train", "job.validationData": "/data/mnist/test"},
}

func completed(config map[string]any) map[string]any {
	networks := []any{map[string]any{"cidr": "203.0.113.7/32"}}
	switch config["elasticdl:cloud"] {
	case CloudGKE:
		config["gcp:project"] = "my-project"
		config["elasticdl:gke"].(map[string]any)["authorizedNetworks"] = networks
	case CloudEKS:
		config["elasticdl:eks"].(map[string]any)["authorizedNetworks"] = networks
	case CloudExisting:
		config["elasticdl:existing"].(map[string]any)["registry"] = "registry.example/me"
	}
	return config
}

// asEngine returns the configuration as a program gets it: sections are JSON.
func asEngine(t testing.TB, config map[string]any) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for key, v := range config {
		text, ok := v.(string)
		if !ok {
			b, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			text = string(b)
		}
		texts[key] = text
	}
	return texts
}

func parsed(t testing.TB, config map[string]any) (*Settings, error) {
	t.Helper()
	return Parse(input(t, "..", config))
}

// input returns what a program gets of a configuration. The program runs in the parent directory of
// this package.
func input(t testing.TB, root string, config map[string]any) Input {
	t.Helper()
	return Input{Project: "elasticdl", Stack: "test", Root: root, Now: day, Arch: "amd64",
		Config: asEngine(t, config), Stat: func(path string) (bool, error) {
			if !filepath.IsAbs(path) {
				path = filepath.Join("..", path)
			}
			info, err := os.Stat(path)
			return err == nil && info.IsDir(), err
		}}
}

// set sets a field of a configuration to a YAML value; "" removes it.
func set(t testing.TB, config map[string]any, path, value string) {
	t.Helper()
	var v any
	if err := yaml.Unmarshal([]byte(value), &v); err != nil {
		t.Fatalf("%s: %v", value, err)
	}
	steps := strings.Split(path, ".")
	steps[0] = "elasticdl:" + steps[0]
	if key, ok := strings.CutPrefix(path, "!"); ok { // a key of a provider
		steps = []string{key}
	}
	at := config
	for _, step := range steps[:len(steps)-1] {
		next, ok := at[step].(map[string]any)
		if !ok {
			next = map[string]any{}
			at[step] = next
		}
		at = next
	}
	if at[steps[len(steps)-1]] = v; value == "" {
		delete(at, steps[len(steps)-1])
	}
}

// setAll sets fields in the order of their paths: a section before its fields.
func setAll(t testing.TB, config map[string]any, values map[string]string) {
	t.Helper()
	for _, path := range slices.Sorted(maps.Keys(values)) {
		set(t, config, path, values[path])
	}
}

func TestStacks(t *testing.T) {
	for _, cloud := range []string{CloudGKE, CloudEKS, CloudMinikube} {
		t.Run(cloud, func(t *testing.T) {
			if _, err := parsed(t, stack(t, cloud)); err != nil {
				t.Errorf("with a volume: %v", err)
			}
			s, err := parsed(t, shipped(t, cloud))
			if err != nil {
				t.Fatal(err)
			}
			if s.Job == nil || s.Job.Suspend || s.Image == nil || s.Data == nil ||
				s.Data.Dataset != "mnist" || s.Job.Namespace != "elasticdl" || !s.ProtectStorage ||
				s.Image.Name != "test-mnist" || !s.Job.Elastic() {
				t.Errorf("%+v", s)
			}
			for _, note := range s.Notes {
				// the directory need not exist
				if !strings.HasPrefix(note, "elasticdl:minikube.data: no directory ") {
					t.Errorf("says %s", note)
				}
			}
		})
	}
}

// The shipped stacks lack only values that their users know, and say how these are set.
func TestStacksWithoutTheirUsers(t *testing.T) {
	for cloud, want := range map[string]string{
		CloudGKE: "gcp:project: missing: pulumi config set gcp:project PROJECT\n" +
			`elasticdl:gke.authorizedNetworks: missing: who may reach the Kubernetes API? From here: pulumi config set --path 'gke.authorizedNetworks[0].cidr' "$(curl -s https://checkip.amazonaws.com)/32"`,
		CloudEKS: `elasticdl:eks.authorizedNetworks: missing: who may reach the Kubernetes API? From here: pulumi config set --path 'eks.authorizedNetworks[0].cidr' "$(curl -s https://checkip.amazonaws.com)/32"`,
	} {
		if _, err := parsed(t, file(t, "../../stacks/Pulumi."+cloud+".yaml")); err == nil || err.Error() != want {
			t.Errorf("%s:\n%v", cloud, err)
		}
	}
}

// Every mistake is reported by its path, and only once.
func TestMistakes(t *testing.T) {
	for _, test := range slices.Concat(mistakes, bucketMistakes, partMistakes) {
		t.Run(test.cloud+" "+test.path+" "+test.value, func(t *testing.T) {
			config := stack(t, test.cloud)
			setAll(t, config, test.also)
			set(t, config, test.path, test.value)
			_, err := parsed(t, config)
			if err == nil {
				t.Fatalf("no error, want %s", test.want)
			}
			if got := err.Error(); !strings.HasPrefix(got, test.line()) ||
				!strings.Contains(got, test.want) || strings.Contains(got, "\n") {
				t.Errorf("\n got %s\nwant %s … %s", got, test.line(), test.want)
			}
		})
	}
}

// line returns the beginning of the problem's line.
func (m mistake) line() string {
	path := cmp.Or(m.at, m.path)
	if key, ok := strings.CutPrefix(path, "!"); ok {
		return key + ": "
	}
	return "elasticdl:" + path + ": "
}

// Every problem is one line, whatever a value contains.
func TestOneLineEach(t *testing.T) {
	p := Problems{Project: "elasticdl"}
	p.add("job.name", "a\nb\rc: expected a name")
	if got, want := p.Err().Error(), `elasticdl:job.name: a\nb\rc: expected a name`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for want, choices := range map[string][]string{"": nil, "a": {"a"}, "a or b": {"a", "b"},
		"a, b or c": {"a", "b", "c"}} {
		if got := list(choices); got != want {
			t.Errorf("%q are %q, want %q", choices, got, want)
		}
	}
}

// An unknown name is matched with the nearest known one, or with one that it begins, if it is long
// enough.
func TestNearest(t *testing.T) {
	choices := []string{"name", "namespace", "podSecurity", "quota"}
	for name, want := range map[string]string{
		"nam": "name", "namespac": "namespace", "Quota": "quota", "pod": "podSecurity",
		"quotas": "quota", "po": "", "x": "", "machineType": "",
	} {
		if want != "" {
			want = "; did you mean " + want + "?"
		}
		if got := nearest(name, choices); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// Every field is decoded, and has a position in the file.
func TestEveryField(t *testing.T) {
	for _, cloud := range []string{CloudGKE, CloudEKS, CloudMinikube} {
		s := defaults(cloud, "amd64")
		fillAll(reflect.ValueOf(s).Elem())
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		p, got := &Problems{}, &Settings{}
		decode(read(string(text)), reflect.ValueOf(got).Elem(), "", p)
		got.Project, got.Stack, got.Root, got.Now, got.Notes = s.Project, s.Stack, s.Root, s.Now, s.Notes
		got.WorkerPool, got.Base = s.WorkerPool, s.Base
		got.GKE.Project, got.EKS.Region, got.EKS.Profile = s.GKE.Project, s.EKS.Region, s.EKS.Profile
		if err := p.Err(); err != nil {
			t.Error(err)
		}
		if again, _ := json.Marshal(got); string(again) != string(text) || !reflect.DeepEqual(got, s) {
			t.Errorf("\nwrote %s\nread  %s", text, again)
		}
	}
	if len(order) < 180 {
		t.Errorf("%d fields have a place", len(order))
	}
	if !(rank("gcp:project") < rank("cloud") && rank("gke.location") < rank("gke.ranges.pods") &&
		rank("gke.ranges.podz") > rank("gke.ranges.master") &&
		rank("gke.ranges.podz") < rank("gke.systemPool") &&
		rank("job.worker.request.cpu") > rank("job.ps") && rank("gke.nodeZones[3]") == rank("gke.nodeZones")) {
		t.Error("fields are not in the order of the file")
	}
}

// fillAll sets every field to a value.
func fillAll(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillAll(v.Elem())
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[job.Duration]() {
			v.Set(reflect.ValueOf(job.Duration{Duration: time.Minute}))
			return
		}
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(day))
			return
		}
		for _, field := range v.Fields() {
			fillAll(field)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fillAll(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		e := reflect.New(v.Type().Elem()).Elem()
		fillAll(e)
		v.SetMapIndex(reflect.ValueOf("a.b/c"), e)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint64:
		v.SetUint(1<<63 + 1)
	case reflect.Float64:
		v.SetFloat(0.5)
	default:
		panic("no value of " + v.Type().String())
	}
}

// All mistakes of a file are reported at once, in the order of the file.
func TestAllAtOnce(t *testing.T) {
	text, err := os.ReadFile("testdata/mistakes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, err = parsed(t, file(t, "testdata/mistakes.yaml"))
	if err == nil {
		t.Fatal("no error")
	}
	golden(t, "testdata/mistakes.txt", err.Error()+"\n")
	// in the order of the file: "# 3" is the third line's comment
	for i, line := range strings.Split(err.Error(), "\n") {
		path, _, _ := strings.Cut(line, ": ")
		_, after, ok := strings.Cut(string(text), "# "+strconv.Itoa(i+1)+"\n")
		if before := string(text[:len(text)-len(after)]); !ok ||
			!strings.Contains(before[strings.LastIndex(before[:len(before)-1], "\n")+1:], lastStep(path)) {
			t.Errorf("%s is not in line # %d", path, i+1)
		}
	}
}

func lastStep(path string) string {
	return path[strings.LastIndexAny(path, ".:")+1:]
}

var update = flag.Bool("update", false, "write the golden files again")

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not\n%s", path, got)
	}
}

// Pulumi.yaml declares every field of Settings, with its type and default.
func TestSchema(t *testing.T) {
	text, err := os.ReadFile("../../Pulumi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var project struct {
		Name, Description, Runtime, Main, StackConfigDir, RequiredPulumiVersion string
		Config                                                                  map[string]struct {
			Type, Description string
			Default           any
		}
	}
	if err := yaml.UnmarshalStrict(text, &project); err != nil {
		t.Fatal(err)
	}
	if project.Name != "elasticdl" || project.Main != "stacks" || project.StackConfigDir != "stacks" ||
		project.Runtime != "go" {
		t.Errorf("%+v", project)
	}
	var names []string
	is := reflect.ValueOf(defaults("", "amd64")).Elem()
	for f := range fields(is.Type()) {
		names = append(names, f.name)
		key := project.Config[f.name]
		kind, def := "object", any(map[string]any{})
		switch f.of.Type.Kind() {
		case reflect.Bool:
			kind, def = "boolean", is.FieldByIndex(f.of.Index).Bool()
		case reflect.String:
			kind, def = "string", nil // every stack sets its own cloud
			if value := is.FieldByIndex(f.of.Index).String(); value != "" && f.name != "cloud" {
				def = value
			}
		}
		if key.Type != kind || !reflect.DeepEqual(key.Default, def) || key.Description == "" {
			t.Errorf("%s: %+v, want %s %v", f.name, key, kind, def)
		}
	}
	if got := slices.Sorted(maps.Keys(project.Config)); !slices.Equal(got, slices.Sorted(slices.Values(names))) {
		t.Errorf("Pulumi.yaml has %v, Settings %v", got, names)
	}
}

// The engine passes the schema's default for every section that a file does not have.
func TestSchemaDefaultsAreNotThere(t *testing.T) {
	config := stack(t, CloudMinikube)
	for _, section := range []string{"gke", "eks", "existing", "image", "data", "job", "policy", "labels", "budget"} {
		set(t, config, section, "{}")
	}
	set(t, config, "protectStorage", "true")
	s, err := parsed(t, config)
	if err != nil {
		t.Fatal(err)
	}
	if s.GKE != nil || s.EKS != nil || s.Existing != nil {
		t.Errorf("%+v", s)
	}
	if s.Image != nil || s.Data != nil || s.Job != nil || s.Labels != nil || s.Budget != nil {
		t.Errorf("%+v", s)
	}
	set(t, config, "minikube", "{}")
	if s, err = parsed(t, config); err != nil || s.Minikube == nil || s.Minikube.CPUs != 2 ||
		s.Minikube.Profile != "elasticdl-test" {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestName(t *testing.T) {
	for _, test := range []struct {
		stack, want string
		limit       int
		parts       []string
	}{
		{"gke", "elasticdl-gke", 30, nil},
		{"gke", "elasticdl-gke-nodes", 30, []string{"nodes"}},
		{strings.Repeat("a", 40), "elasticdl-" + strings.Repeat("a", 40), 50, nil},
	} {
		s := &Settings{Stack: test.stack}
		if got := s.Name(test.limit, test.parts...); got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
	taken := map[string]string{}
	for _, stack := range []string{"dev", "Dev", "dev.", "d.ev", "d-ev", "d--ev",
		strings.Repeat("a", 39) + "b", strings.Repeat("a", 39) + "c", strings.Repeat("a-", 20)} {
		for _, limit := range []int{20, 30, 40} {
			name := (&Settings{Stack: stack}).Name(limit, "n")
			if len(name) > limit || !isProfile.MatchString(name) {
				t.Errorf("%s, %d: %s", stack, limit, name)
			}
			key := fmt.Sprint(name, " ", limit)
			if taken[key] != "" {
				t.Errorf("%s and %s are both %s", stack, taken[key], name)
			}
			taken[key] = stack
		}
	}
}
