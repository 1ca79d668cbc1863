package minikube

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// fakes behave like minikube and kubectl: a profile is a file, status exits with 85 if there is no
// profile and with 7 if it is stopped, delete succeeds if there is none. They append their
// arguments to the file calls, one word a line.
var fakes = map[string]string{
	"minikube": `#!/bin/sh
for word in minikube "$@" .; do echo "$word" >>"$FAKE/calls"; done
[ -z "$KUBECONFIG" ] || [ "$1" = status ] || echo "$1 writes to $KUBECONFIG" >>"$FAKE/wrong"
verb=$1; shift
while [ $# -gt 0 ]; do case $1 in -p) profile=$2; shift;; esac; shift; done
at=$FAKE/profiles/$profile
case $verb in
status) [ -e "$at" ] || { echo "Profile $profile not found."; exit 85; }; [ "$(cat "$at")" = Running ] || exit 7; echo Running;;
start) echo "Done! kubectl is now configured"; echo Running >"$at"; [ ! -e "$FAKE/broken" ] || { echo 'X Exiting' >&2; exit 80; };;
delete) rm -f "$at"; echo "Removed all traces";;
esac
`,
	"kubectl": `#!/bin/sh
for word in kubectl "$@" .; do echo "$word" >>"$FAKE/calls"; done
[ ! -e "${KUBECONFIG:-$FAKE/none}" ] || { echo 'error: context was not found' >&2; exit 1; }
echo 'apiVersion: v1'
`,
}

// machine is an environment with the fakes on its PATH.
type machine struct {
	*testing.T
	dir string
}

func newMachine(t *testing.T) machine {
	m := machine{t, t.TempDir()}
	if err := os.MkdirAll(filepath.Join(m.dir, "profiles"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range fakes {
		m.write(name, text)
	}
	return m
}

func (m machine) write(name, text string) {
	m.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o755); err != nil {
		m.Fatal(err)
	}
}

// run executes a script as pulumi-command does, in the same environment.
func (m machine) run(script, before string) (stdout, stderr string, code int) {
	m.Helper()
	c := exec.CommandContext(m.Context(), "/bin/sh", "-c", script)
	c.Env = []string{"PATH=" + m.dir + ":/usr/bin:/bin", "FAKE=" + m.dir, "KUBECONFIG=" + m.dir +
		"/kubectl", "PULUMI_COMMAND_STDOUT=" + before}
	var out, err strings.Builder
	c.Stdout, c.Stderr = &out, &err
	if e := c.Run(); e != nil && c.ProcessState == nil {
		m.Fatal(e)
	}
	return strings.TrimSuffix(out.String(), "\n"), err.String(), c.ProcessState.ExitCode()
}

// must runs a script, and fails the test if the script fails.
func (m machine) must(script, before string) string {
	m.Helper()
	out, err, code := m.run(script, before)
	if code != 0 {
		m.Fatalf("exit code %d: %s", code, err)
	}
	return out
}

// refused runs a script, and fails the test unless the script fails with the given reason.
func (m machine) refused(script, before, why string) {
	m.Helper()
	if out, err, code := m.run(script, before); code == 0 || !strings.Contains(err, why) {
		m.Errorf("exit code %d, %q, %q: want one that says %s", code, out, err, why)
	}
}

func (m machine) profiles() string {
	m.Helper()
	all, err := os.ReadDir(filepath.Join(m.dir, "profiles"))
	if err != nil {
		m.Fatal(err)
	}
	var names []string
	for _, f := range all {
		text, _ := os.ReadFile(filepath.Join(m.dir, "profiles", f.Name()))
		names = append(names, f.Name()+"="+strings.TrimSpace(string(text)))
	}
	return strings.Join(names, " ")
}

// calls returns the commands that ran since the last call, as words; only those of a verb, if it is
// not "".
func (m machine) calls(verb string) [][]string {
	text, _ := os.ReadFile(filepath.Join(m.dir, "calls"))
	_ = os.Remove(filepath.Join(m.dir, "calls"))
	var all [][]string
	for call := range strings.SplitSeq(strings.TrimSuffix(string(text), "\n.\n"), "\n.\n") {
		if words := strings.Split(call, "\n"); len(words) > 1 && (verb == "" || words[1] == verb) {
			all = append(all, words)
		}
	}
	return all
}

func aProfile(name string, change func(*settings.Minikube)) *profile {
	p := &profile{*configured(change).Minikube}
	p.Profile, p.Data = name, ""
	change(&p.Minikube)
	return p
}

func TestStartAndDelete(t *testing.T) {
	m, p := newMachine(t), aProfile("a b'c", func(*settings.Minikube) {})
	p.Data = filepath.Join(m.dir, `my "data's $HOME`)
	m.refused(p.create(), "", "there is no such directory")
	if got := m.profiles(); got != "" {
		t.Errorf("there is %s", got)
	}
	if err := os.Mkdir(p.Data, 0o755); err != nil {
		t.Fatal(err)
	}
	if out := m.must(p.create(), ""); out != started {
		t.Errorf("says %q", out)
	}
	want := []string{"minikube", "start", "-p", "a b'c", "--driver=docker", "--cpus=2",
		"--memory=6144mb", "--disk-size=50g", "--kubernetes-version=v1.35.0",
		"--mount", "--mount-string=" + p.Data + ":/data", "--keep-context", "--interactive=false", "--wait=all"}
	if got := m.calls("start"); len(got) != 1 || !slices.Equal(got[0], want) {
		t.Errorf("ran %q, want %q", got, want)
	}
	if out := m.must(p.view(), ""); out != "apiVersion: v1" {
		t.Errorf("kubeconfig %q", out)
	}
	if got, want := m.calls("config"), "kubectl config view --minify --flatten --context=a b'c"; len(
		got) != 1 || strings.Join(got[0], " ") != want {
		t.Errorf("ran %q, want %s", got, want)
	}
	if out := m.must(p.update(), started); out != started {
		t.Errorf("after an update it says %q", out)
	}
	m.must(p.delete(), started)
	m.must(p.delete(), started) // it is deleted already
	if wrong, err := os.ReadFile(filepath.Join(m.dir, "wrong")); err == nil {
		t.Errorf("minikube, of the file that the stack's kubeconfig was written to: %s", wrong)
	}
	if got := m.profiles(); got != "" {
		t.Errorf("%s stayed", got)
	}
}

// A profile that the stack has not started is neither taken for its own nor deleted.
func TestOfSomebodyElse(t *testing.T) {
	m, p := newMachine(t), aProfile("minikube", func(*settings.Minikube) {})
	for _, state := range []string{"Running", "Stopped"} {
		m.write("profiles/minikube", state)
		m.refused(p.create(), "", "minikube.profile: minikube already exists, and is not of this stack")
		m.must(p.delete(), "") // the state after a create that failed
		if got := m.profiles(); got != "minikube="+state || len(m.calls("start")) > 0 {
			t.Errorf("there is %q", got)
		}
	}
}

func TestAdopt(t *testing.T) {
	m := newMachine(t)
	adopt := aProfile("minikube", func(m *settings.Minikube) { m.Adopt = true })
	m.refused(adopt.create(), "", "minikube.adopt: true: there is no profile minikube")
	for _, state := range []string{"Running", "Stopped"} {
		m.write("profiles/minikube", state)
		m.calls("")
		if out := m.must(adopt.create(), ""); out != adopted {
			t.Errorf("says %q", out)
		}
		starts := m.calls("start")
		if (len(starts) == 1) != (state == "Stopped") {
			t.Errorf("%s: ran %q", state, starts)
		}
		for _, words := range starts {
			want := "minikube start -p minikube --keep-context --interactive=false --wait=all"
			if strings.Join(words, " ") != want {
				t.Errorf("ran %q, want %s", words, want)
			}
		}
		if out := m.must(adopt.view(), ""); out != "apiVersion: v1" || len(m.calls("config")) != 2 {
			t.Errorf("kubeconfig %q, of the second file", out)
		}
		m.must(adopt.delete(), adopted)
		if got := m.profiles(); got != "minikube=Running" {
			t.Errorf("there is %q", got)
		}
	}
}

// The stack may give up a profile that it started, and cannot come to own one that it adopted.
func TestAdoptLater(t *testing.T) {
	m := newMachine(t)
	own, adopt := aProfile("p", func(*settings.Minikube) {}), aProfile("p", func(m *settings.Minikube) {
		m.Adopt = true
	})
	out := m.must(own.create(), "")
	out = m.must(adopt.update(), out)
	m.must(adopt.delete(), out)
	m.refused(own.update(), out, "minikube.adopt: false: the stack did not start the profile")
	m.must(own.delete(), out)
	if got := m.profiles(); got != "p=Running" {
		t.Errorf("there is %q", got)
	}
}

// A start that fails leaves no profile, and can be retried.
func TestStartFails(t *testing.T) {
	m, p := newMachine(t), aProfile("p", func(*settings.Minikube) {})
	m.write("broken", "")
	if out, err, code := m.run(p.create(), ""); code != 80 || out != "" || !strings.Contains(err, "X Exiting") {
		t.Errorf("exit code %d: %q, %q", code, out, err)
	}
	if got := m.profiles(); got != "" {
		t.Errorf("%s stayed", got)
	}
	if err := os.Remove(filepath.Join(m.dir, "broken")); err != nil {
		t.Fatal(err)
	}
	m.must(p.create(), "")
}

func TestNoMinikube(t *testing.T) {
	m, p := newMachine(t), aProfile("p", func(*settings.Minikube) {})
	if err := os.Remove(filepath.Join(m.dir, "minikube")); err != nil {
		t.Fatal(err)
	}
	m.refused(p.create(), "", "minikube is not on PATH")
}

// A quoted text is one word of the shell, and its value is the text itself.
func TestQuote(t *testing.T) {
	m := newMachine(t)
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.StringMatching(`[-a-z'"$\\ {}*;&|\x60!~#\n\t()<>=?é]{0,12}`).Draw(r, "text")
		out, err, code := m.run("printf '<%s>' "+quote(text)+" end", "")
		if code != 0 || out != "<"+text+"><end>" {
			r.Fatalf("%q came as %q: %s", text, out, err)
		}
	})
}
