//go:build !e2e

package main

import (
	"errors"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/test/provider"
)

const fromNothing = "From nothing to a running job, and back"

// Pages are run as they are: their commands by a shell, from the first to the last, and then again from the top. Pulumi is the real
// one, as are its engine and the program; clouds are simulated, and stacks/testdata/page/tools.sh answers as the other commands.
func TestPages(t *testing.T) {
	t.Parallel()
	for _, page := range []struct {
		stack    string
		sections []string          // what of the page is run, in its order
		values   map[string]string // of what its reader is to fill in
	}{
		{"gke", []string{"Before the first time", fromNothing}, map[string]string{"PROJECT": provider.GoogleProject}},
		{"eks", []string{"Before the first time", fromNothing}, map[string]string{}},
		{"minikube", []string{"Before the first time", fromNothing}, map[string]string{}},
	} {
		t.Run(page.stack, func(t *testing.T) {
			t.Parallel()
			var all []block
			for _, b := range blocks(t, filepath.Join("docs", "infrastructure", page.stack+".md")) {
				if slices.Contains(page.sections, b.section) {
					all = append(all, b)
				}
			}
			if len(all) < len(page.sections) {
				t.Fatalf("%d blocks of commands in %q", len(all), page.sections)
			}
			r := newReader(t, page.stack)
			values := maps.Clone(page.values)
			values["pulumi login --local"] = "pulumi login file://" + t.TempDir() // it would be the home directory of whoever runs the test
			for _, when := range []string{"the first time", "again"} {
				r.plays(when, script(t, all, values))
			}
			made := 0
			for _, c := range r.cloud.Calls() {
				if c.Op == "create" && c.Type+" "+c.Name == jobMaster {
					made++
				}
			}
			if made != 2 {
				t.Errorf("the job was made %d times, want once for each time that the page was run", made)
			}
		})
	}
}

// The README has every line that a stranger needs, from the clone on.
func TestReadmeCloud(t *testing.T) {
	t.Parallel()
	const stack = "gke"
	var all []block
	for _, b := range blocks(t, "README.md") {
		init := regexp.MustCompile(`pulumi stack init (\w+)`).FindStringSubmatch(b.text)
		if b.section == "A cluster with one command" && (init == nil || init[1] == stack) { // of the clouds one is chosen
			all = append(all, b)
		}
	}
	r := newReader(t, stack)
	r.plays("once", script(t, all, map[string]string{"PROJECT": provider.GoogleProject, "pulumi login --local": "pulumi login file://" + t.TempDir()}))
}

// reader is somebody who does what a page says, in a copy of the repository of their own.
type reader struct {
	*testing.T
	stack string
	dir   string
	env   []string
	cloud *provider.Cloud
}

func newReader(t *testing.T, stack string) *reader {
	t.Helper()
	r := &reader{T: t, stack: stack, dir: t.TempDir(), cloud: provider.Start(t)}
	r.copy()
	bin, home := t.TempDir(), t.TempDir()
	tools, err := filepath.Abs("stacks/testdata/page/tools.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"aws", "curl", "docker", "elasticdl", "gcloud", "gh", "git", "gke-gcloud-auth-plugin", "kubectl", "make", "minikube"} {
		if err := os.Symlink(tools, filepath.Join(bin, tool)); err != nil {
			t.Fatal(err)
		}
	}
	r.compiled(bin)
	objects := httptest.NewServer(serveObjects(r.cloud))
	t.Cleanup(objects.Close)
	path := bin + string(os.PathListSeparator) + os.Getenv("PATH") // where Pulumi is, too
	for k, v := range r.cloud.Env() {
		if k != "PATH" && k != "PULUMI_CONFIG_PASSPHRASE" && k != "PULUMI_BACKEND_URL" { // a page says them, if they are needed
			r.env = append(r.env, k+"="+v)
		}
	}
	r.env = append(r.env, "PATH="+path, "HOME="+home, remoteURL+"="+objects.URL, "PULUMI_HOME="+filepath.Join(home, ".pulumi"), "TMPDIR="+t.TempDir(), "TERM=dumb", "NO_COLOR=1", "PULUMI_SKIP_CONFIRMATIONS=true")
	return r
}

// compiled has Pulumi run the program without compiling it, by a language host before the real one on PATH: the program is this
// test, under the name that [TestMain] knows.
func (r *reader) compiled(bin string) {
	r.Helper()
	self, err := os.Executable()
	if err != nil {
		r.Fatal(err)
	}
	program := filepath.Join(r.TempDir(), programName)
	if err := os.Symlink(self, program); err != nil {
		r.Fatal(err)
	}
	const host = "pulumi-language-go"
	real, err := exec.LookPath(host)
	if err != nil {
		r.Fatal(err)
	}
	script := "#!/bin/sh\nexec " + shellQuote(real) + " -binary=" + shellQuote(program) + ` "$@"` + "\n"
	if err := os.WriteFile(filepath.Join(bin, host), []byte(script), 0o755); err != nil {
		r.Fatal(err)
	}
}

// copy is what of the repository a page needs.
func (r *reader) copy() {
	r.Helper()
	project, err := os.ReadFile("Pulumi.yaml")
	if err != nil {
		r.Fatal(err)
	}
	r.write("Pulumi.yaml", []byte(strings.Replace(string(project), "\nmain: stacks\n", "\n", 1)))
	shipped, err := os.ReadFile(r.file())
	if err != nil {
		r.Fatal(err)
	}
	r.write(r.file(), shipped)
	if err := os.CopyFS(filepath.Join(r.dir, "cmd", "elasticdl"), os.DirFS("stacks/testdata/model")); err != nil {
		r.Fatal(err)
	}
}

// file is the stack's settings, as they are shipped.
func (r *reader) file() string { return filepath.Join("stacks", "Pulumi."+r.stack+".yaml") }

func (r *reader) write(file string, text []byte) {
	r.Helper()
	path := filepath.Join(r.dir, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		r.Fatal(err)
	}
}

// plays runs a page to its last line, after which nothing is left but the settings.
func (r *reader) plays(when, script string) {
	r.Helper()
	began := time.Now()
	c := exec.CommandContext(r.Context(), "bash", "-c", script)
	c.Dir, c.Env = r.dir, r.env
	out, err := c.CombinedOutput()
	if err != nil {
		r.Fatalf("%s: %v\n%s", when, err, lastOf(string(out), 60))
	}
	r.Logf("%s: %d commands in %v", when, strings.Count("\n"+string(out), "\n# "), time.Since(began).Round(100*time.Millisecond))
	if left := r.cloud.Left(); len(left) > 0 {
		r.Errorf("%s: the page ends, and there is still\n%s", when, steps(left))
	}
	settings, err := os.ReadFile(filepath.Join(r.dir, r.file()))
	shipped, problem := os.ReadFile(r.file())
	first, _, _ := strings.Cut(string(shipped), "\n") // a comment: settings change
	if err := errors.Join(err, problem); err != nil || !strings.Contains(string(settings), first) {
		r.Errorf("%s: the page ends without the settings that are shipped: %v\n%s", when, err, settings)
	}
	list := exec.CommandContext(r.Context(), "pulumi", "stack", "ls", "--json")
	list.Dir, list.Env = r.dir, r.env
	if stacks, err := list.Output(); err != nil || strings.TrimSpace(string(stacks)) != "[]" {
		r.Errorf("%s: the page ends, and the stacks are %v\n%s", when, err, stacks)
	}
}

// lastOf returns the last lines of a text.
func lastOf(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
