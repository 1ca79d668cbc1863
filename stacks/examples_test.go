//go:build !e2e

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/test/provider"
)

// example is a stack of the examples, with a page that has its commands.
type example struct{ name, page string }

var examples = []example{
	{"public-cloud", "examples/public-cloud/README.md"},
	{"edl-cluster", "examples/edl-cluster/README.md"},
	{"elastic-scheduling", "examples/elastic-scheduling/README.md"},
	{"personal-computer", "examples/personal-computer/README.md"},
	{"torchelastic", "examples/torchelastic/README.md"},
	{"torchelastic", "docs/tutorials/gpus.md"},
	{"pytorch", "docs/tutorials/gpus.md"},
}

func (x example) file() string { return "examples/" + x.name + "/Pulumi." + x.name + ".yaml" }

// settings returns the text of the example's file, and its cloud.
func (x example) settings(t *testing.T) (text, cloud string) {
	t.Helper()
	all, err := os.ReadFile(x.file())
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(all), "elasticdl:cloud: ")
	cloud, _, _ = strings.Cut(after, "\n")
	return string(all), cloud
}

// Commands of a cloud, by which blocks for stacks of another cloud are found.
var ofCloud = map[string]*regexp.Regexp{
	"eks": regexp.MustCompile(`(?m)^aws `), "gke": regexp.MustCompile(`(?m)^gcloud `)}

// blocks returns the blocks of the page that are for the example.
func (x example) blocks(t *testing.T) []block {
	t.Helper()
	_, cloud := x.settings(t)
	return slices.DeleteFunc(blocks(t, x.page), func(b block) bool {
		for of, commands := range ofCloud {
			if of != cloud && commands.MatchString(b.text) {
				return true
			}
		}
		return false
	})
}

// calls returns the words of every command of the page, which a shell has expanded with the outputs
// of the stack, nil before it has any. It runs none.
func (x example) calls(t *testing.T, outputs map[string]any) (all [][]string) {
	t.Helper()
	dir := t.TempDir()
	begin, err := os.ReadFile("stacks/testdata/page/calls.sh")
	if err == nil && outputs != nil {
		err = os.Mkdir(filepath.Join(dir, "outputs"), 0o700)
	}
	for name, value := range outputs {
		if is, ok := value.(string); ok && err == nil {
			err = os.WriteFile(filepath.Join(dir, "outputs", name), []byte(is), 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	var steps []step
	for _, b := range x.blocks(t) {
		steps = append(steps, b.steps(t)...)
	}
	c := exec.CommandContext(t.Context(), "bash", "-c",
		string(begin)+script(steps, map[string]string{" PROJECT\n": " " + provider.GoogleProject + "\n"}))
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", x.page, err, lastOf(string(out), 10))
	}
	text, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	for call := range strings.SplitSeq(strings.TrimSuffix(string(text), "\x00"), "\x00") {
		all = append(all, strings.Split(call, "\x1f"))
	}
	return all
}

// TestExamples follows the pages of the examples on the engine: each stack can be brought up and
// violates no rule, every change of the page does what it says, nothing is to be done after an
// update and a refresh, and nothing is left at the end of the page.
func TestExamples(t *testing.T) {
	paths, err := filepath.Glob("examples/*/Pulumi.*.yaml")
	if err != nil || len(paths) != 6 {
		t.Fatalf("%d examples, %v", len(paths), err)
	}
	for _, path := range paths {
		if !slices.ContainsFunc(examples, func(x example) bool { return x.file() == path }) {
			t.Errorf("%s: no page of it is followed", path)
		}
	}
	for _, x := range examples {
		t.Run(x.name+" by "+filepath.Base(x.page), func(t *testing.T) {
			t.Parallel()
			x.follow(t)
		})
	}
}

// The first block of each page brings its reader from a clone to the stack: it logs in to the cloud
// and to the place of the state before they are asked, and has few commands.
func TestExamplePagesLogIn(t *testing.T) {
	t.Parallel()
	const most = 12
	logins := map[string]string{"gke": "gcloud auth login --update-adc", "eks": "aws sts get-caller-identity"}
	for _, x := range examples {
		_, cloud := x.settings(t)
		first := x.blocks(t)[0].steps(t)
		if len(first) > most {
			t.Errorf("%s, %s: %d commands, expected at most %d", x.page, x.name, len(first), most)
		}
		place := func(command string) int {
			return slices.IndexFunc(first, func(s step) bool { return strings.Contains(s.command, command) })
		}
		up := place("pulumi up")
		if at, created := place(login), place("pulumi stack init "+x.name); at < 0 || at > created || created > up {
			t.Errorf("%s, %s: expected %s, later pulumi stack init, later pulumi up", x.page, x.name, login)
		}
		if at := place(logins[cloud]); at < 0 || at > up {
			t.Errorf("%s, %s: expected %s before pulumi up", x.page, x.name, logins[cloud])
		}
		if !strings.Contains(first[max(0, place("cp "))].command, x.file()+" stacks/") {
			t.Errorf("%s, %s: expected cp %s stacks/", x.page, x.name, x.file())
		}
	}
}

// follow does what the page does with the stack.
func (x example) follow(t *testing.T) {
	text, cloud := x.settings(t)
	e := startIn(t, provider.Start(t), cloud, x.name)
	if err := os.WriteFile(e.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, "elasticdl:image:") {
		e.set("elasticdl:image.source", user(cloud)["elasticdl:image.source"])
	}
	if strings.Contains(text, "  data: data ") {
		// a directory of its user, which is not in the repository
		e.set("elasticdl:minikube.data", t.TempDir())
	}
	var changed []string // settings, since the last update
	ups, destroyed := 0, false
	calls := x.calls(t, nil)
	for i := 0; i < len(calls); i++ {
		call := calls[i]
		if call[0] != "pulumi" {
			continue
		}
		switch verb := strings.Join(call[1:min(len(call), 3)], " "); verb {
		case "config set":
			if destroyed = false; len(call) < 5 {
				t.Fatalf("%s: a setting without a value: %q", x.page, call)
			}
			changed = append(changed, call[len(call)-2])
			e.pulumi(call[1:]...)
		case "up":
			e.changes(ups == 0, changed)
			if changed, ups = nil, ups+1; ups == 1 {
				calls = x.calls(t, e.outputs("--show-secrets"))
			}
		case "destroy":
			destroyed = true
			e.destroy()
			e.cleared()
		case "stack init":
			if call[3] != x.name {
				t.Errorf("%s: the stack is %s, expected %s", x.page, call[3], x.name)
			}
		case "stack output", "login --local":
		default:
			t.Errorf("%s: the test does not know %q", x.page, call)
		}
	}
	if !destroyed || ups == 0 {
		t.Errorf("%s: the page has %d updates, and ends with the end of the stack: %v", x.page, ups, destroyed)
	}
}

// changes makes the first update of a stack, or one for changed settings, and checks that it does
// what the settings ask for, and that nothing is to be done afterwards.
func (e *engine) changes(first bool, changed []string) {
	e.Helper()
	did := e.up()
	switch {
	case first:
		if did, err := e.tryPreview(); err != nil || len(did) > 0 {
			e.Errorf("a preview after the first up: %v\n%s", err, did)
		}
	case slices.Equal(changed, []string{"job.numWorkers"}):
		if len(did) != 1 || !strings.HasPrefix(did[0], "update kubernetes:core/v1:ConfigMap ") {
			e.Errorf("%s: it does more than one update, or none:\n%s", changed, did)
		}
	case slices.Equal(changed, []string{"protectStorage"}): // the engine shows no step for it
	case len(did) == 0:
		e.Errorf("%s: the update does nothing", changed)
	}
	e.refresh()
	if did, err := e.tryPreview(); err != nil || len(did) > 0 {
		e.Errorf("a preview after %s, up and a refresh: %v\n%s", changed, err, did)
	}
}
