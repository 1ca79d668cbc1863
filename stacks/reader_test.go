package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/test/provider"
)

// programName is the name of this test binary when it runs as the program of a stack, see TestMain.
const programName = "elasticdl-stack"

const fromNothing = "From nothing to a running job, and back"

// the login of the pages, which keeps the state in the home directory
const login = "pulumi login --local"

// loginTo returns a login that keeps the state in a directory of the test.
func loginTo(t *testing.T) string { return "pulumi login file://" + t.TempDir() }

// reader simulates a user who runs the commands of a page, in a copy of the repository.
type reader struct {
	*testing.T
	repository string
	stack      string
	dir        string // directory of the copy
	env        []string
	cloud      *provider.Cloud
	left       func() []string // returns what is left of the stack
}

// newReader returns a reader with a home directory, who finds commands in bin before those on PATH.
// The environment is that of the clouds, with changes.
func newReader(t *testing.T, repository, stack, bin, home string, cloud *provider.Cloud,
	change map[string]string) *reader {
	t.Helper()
	r := &reader{T: t, repository: repository, stack: stack, dir: t.TempDir(), cloud: cloud, left: cloud.Left}
	r.copy()
	r.compiled(bin)
	environment := cloud.Env()
	// the page sets them, if they are needed
	for _, said := range []string{"PULUMI_CONFIG_PASSPHRASE", "PULUMI_BACKEND_URL"} {
		delete(environment, said)
	}
	maps.Copy(environment, map[string]string{
		"PATH": bin + string(os.PathListSeparator) + os.Getenv("PATH"), // Pulumi is on PATH, too
		"HOME": home, "PULUMI_HOME": filepath.Join(home, ".pulumi"), "TMPDIR": t.TempDir(),
		"TERM": "dumb", "NO_COLOR": "1", "PULUMI_SKIP_CONFIRMATIONS": "true",
	})
	maps.Copy(environment, change)
	for k, v := range environment {
		r.env = append(r.env, k+"="+v)
	}
	return r
}

// link makes a program available under another name.
func link(t *testing.T, program, as string) {
	t.Helper()
	path, err := filepath.Abs(program)
	if err == nil {
		err = os.Symlink(path, as)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// compiled makes Pulumi run the program without compiling it, by a language host before the real
// one on PATH: the program is this test binary, under the name that [TestMain] knows.
func (r *reader) compiled(bin string) {
	r.Helper()
	self, err := os.Executable()
	if err != nil {
		r.Fatal(err)
	}
	program := filepath.Join(r.TempDir(), programName)
	link(r.T, self, program)
	const host = "pulumi-language-go"
	r.command(bin, host, "exec "+shellQuote(r.real(host))+" -binary="+shellQuote(program)+` "$@"`)
}

// command writes a script as a command in bin.
func (r *reader) command(bin, name, script string) {
	r.Helper()
	if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/usr/bin/env bash\n"+script+"\n"), 0o755); err != nil {
		r.Fatal(err)
	}
}

// real returns the path of the real command behind a stand-in.
func (r *reader) real(name string) string {
	r.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		r.Fatal(err)
	}
	return path
}

// copy copies the files of the repository that a page needs.
func (r *reader) copy() {
	r.Helper()
	project, err := os.ReadFile(filepath.Join(r.repository, "Pulumi.yaml"))
	if err != nil {
		r.Fatal(err)
	}
	r.write("Pulumi.yaml", []byte(strings.Replace(string(project), "\nmain: stacks\n", "\n", 1)))
	r.write(r.file(), []byte(r.shipped()))
}

// shipped returns the shipped settings of the stack.
func (r *reader) shipped() string {
	r.Helper()
	text, err := os.ReadFile(filepath.Join(r.repository, r.file()))
	if err != nil {
		r.Fatal(err)
	}
	return string(text)
}

// file returns the path of the stack's settings in a repository.
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

// run runs the commands of a page to the last, and checks that nothing is left but the settings.
func (r *reader) run(when, script string) {
	r.Helper()
	began := time.Now()
	c := exec.CommandContext(r.Context(), "bash", "-c", script)
	c.Dir, c.Env = r.dir, r.env
	out, err := c.CombinedOutput()
	// a loop hides its exit status
	if err != nil || strings.Contains(string(out), "no page's command") {
		r.Fatalf("%s: %v\n%s", when, err, lastOf(string(out), 60))
	}
	r.Logf("%s: %d commands in %v", when, strings.Count("\n"+string(out), "\n# "),
		time.Since(began).Round(100*time.Millisecond))
	if left := r.left(); len(left) > 0 {
		r.Errorf("%s: the page ends, and there is still\n\t%s", when, strings.Join(left, "\n\t"))
	}
	settings, err := os.ReadFile(filepath.Join(r.dir, r.file()))
	// the first line is a comment, which stays when settings change
	first, _, _ := strings.Cut(r.shipped(), "\n")
	if err != nil || !strings.Contains(string(settings), first) {
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
