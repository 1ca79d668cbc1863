//go:build !e2e

package main

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/test/provider"
)

// tour is a page about a stack, whose commands are run from the first to the last, and then again from the top.
type tour struct {
	stack  string
	values map[string]string // of what its reader is to fill in
	jobs   int               // how often the job is made, over both times
}

var tours = []tour{
	{"gke", map[string]string{"PROJECT": provider.GoogleProject}, 3},
	{"eks", map[string]string{" ENI": " eni-1"}, 2},
	{"minikube", nil, 3},
}

// Pages are run as they are: their commands by a shell, from the first to the last, and then again from the top. Pulumi is the real
// one, as are its engine and the program; clouds are simulated, and stacks/testdata/page/tools.sh answers as the other commands.
// What of which page is run when is in [played].
func TestPages(t *testing.T) {
	t.Parallel()
	for _, tour := range tours {
		t.Run(tour.stack, func(t *testing.T) {
			t.Parallel()
			page := "docs/infrastructure/" + tour.stack + ".md"
			var own, all []step
			for _, b := range blocksOf(t, page) {
				if p := b.play(t); p.on == tour.stack && p.before == "" {
					own = append(own, b.steps(t)...)
				}
			}
			inserted := map[string]bool{}
			for _, s := range own {
				for i, p := range played {
					if p.on != tour.stack || p.before == "" || !strings.HasPrefix(s.command, p.before) || inserted[p.name()] {
						continue
					}
					inserted[p.name()] = true
					if p.after != "" {
						all = append(all, step{"the test", 0, "happens '" + p.after + "'\n"})
					}
					for _, b := range blocksOf(t, p.page) {
						if b.play(t) == &played[i] {
							all = append(all, b.steps(t)...)
						}
					}
				}
				all = append(all, s)
			}
			for _, p := range played {
				if p.on == tour.stack && p.before != "" && !inserted[p.name()] {
					t.Errorf("%s: %s has no command %s, before which it is to be run", p.name(), page, p.before)
				}
			}
			r := newReader(t, tour.stack)
			values := map[string]string{"pulumi login --local": "pulumi login file://" + t.TempDir()} // it would be the home directory of whoever runs the test
			maps.Copy(values, tour.values)
			r.plays("the first time", script(own, values))
			r.plays("again", script(all, values))
			made := 0
			for _, c := range r.cloud.Calls() {
				if c.Op == "create" && c.Type+" "+c.Name == jobMaster {
					made++
				}
			}
			if made != tour.jobs {
				t.Errorf("the job was made %d times, expected %d", made, tour.jobs)
			}
		})
	}
}

// The README has every line that a stranger needs, from the clone on.
func TestReadmeCloud(t *testing.T) {
	t.Parallel()
	const stack = "gke"
	var all []step
	for _, b := range blocksOf(t, "README.md") {
		if b.play(t).on == stack {
			all = append(all, b.steps(t)...)
		}
	}
	r := newReader(t, stack)
	r.plays("once", script(all, map[string]string{"PROJECT": provider.GoogleProject, "pulumi login --local": "pulumi login file://" + t.TempDir()}))
}

// The page on pull requests sets up accounts, which are not simulated: a shell takes its commands, stand-ins know each of them, and
// what is JSON can be read. Where the state is and its key are the test's.
func TestPageOfAccounts(t *testing.T) {
	t.Parallel()
	all := []step{{"the test", 0, "REPO=owner/name BUCKET=a-bucket PROJECT=a-project; export PULUMI_CONFIG_PASSPHRASE=…\n"}}
	for _, b := range blocksOf(t, guide+"ci.md") {
		if b.play(t).on == accounts {
			all = append(all, b.steps(t)...)
		}
	}
	all = append(all, step{"the test", 0, "pulumi stack rm eks --preserve-config\n"})
	r := newReader(t, "gke")
	r.plays("once", script(all, map[string]string{
		"pulumi login gs://$PROJECT-pulumi":                                              "pulumi login file://" + t.TempDir(),
		`pulumi login "s3://$BUCKET?region=us-west-2"`:                                   "pulumi login file://" + t.TempDir(),
		`"awskms://alias/pulumi?region=us-west-2"`:                                       "passphrase",
		`"gcpkms://projects/$PROJECT/locations/global/keyRings/pulumi/cryptoKeys/state"`: "passphrase",
	}))
	documents, err := filepath.Glob(filepath.Join(r.dir, "documents", "*"))
	if err != nil || len(documents) != 5 {
		t.Errorf("%d documents, expected two environments, two roles and a policy: %v", len(documents), err)
	}
	for _, document := range documents {
		if text, err := os.ReadFile(document); err != nil || !json.Valid(text) {
			t.Errorf("this is no JSON: %v\n%s", err, text)
		}
	}
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
	r.happens(bin)
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
	r.command(bin, host, "exec "+shellQuote(r.real(host))+" -binary="+shellQuote(program)+` "$@"`)
}

// happens has what a page is for happen to the simulated clouds, which are in this process: `happens EVENT` in the script. The
// Kubernetes provider, which is here, too, learns from it of a variable that the real one finds in its environment.
func (r *reader) happens(bin string) {
	r.Helper()
	events := map[string]func() error{
		"the cluster is lost": func() error {
			switch r.stack {
			case "gke":
				return r.cloud.Lose("gcp:container/cluster:Cluster", "cluster")
			case "eks":
				return r.cloud.Lose("aws:eks/cluster:Cluster", "cluster")
			}
			return r.cloud.DeleteMinikube("elasticdl-minikube")
		},
		"the job is stopped": func() error { return r.cloud.Kubernetes.Remove(jobObject, specObject, stateOf) },
		"unreachable: gone":  func() error { r.cloud.Kubernetes.DeleteUnreachable.Store(true); return nil },
		"unreachable: fail":  func() error { r.cloud.Kubernetes.DeleteUnreachable.Store(false); return nil },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		event, err := url.PathUnescape(strings.TrimPrefix(q.URL.EscapedPath(), "/"))
		if err == nil && events[event] == nil {
			err = errors.New("there is no such event")
		}
		if err == nil {
			err = events[event]()
		}
		if err != nil {
			http.Error(w, event+": "+err.Error(), http.StatusInternalServerError)
		}
	}))
	r.Cleanup(server.Close)
	r.command(bin, "happens", `exec 3<>/dev/tcp/`+strings.Replace(strings.TrimPrefix(server.URL, "http://"), ":", "/", 1)+`
printf 'POST /%s HTTP/1.0\r\n\r\n' "${1// /%20}" >&3
answer=$(cat <&3)
[[ $answer == *" 200 "* ]] || { echo "$answer" >&2; exit 1; }`)
	r.command(bin, "pulumi", `gone=${PULUMI_K8S_DELETE_UNREACHABLE:-}
[ "$gone" != true ] || happens 'unreachable: gone'
`+shellQuote(r.real("pulumi"))+` "$@"; status=$?
[ "$gone" != true ] || happens 'unreachable: fail'
exit $status`)
}

// command writes a command of the script.
func (r *reader) command(bin, name, script string) {
	r.Helper()
	if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/usr/bin/env bash\n"+script+"\n"), 0o755); err != nil {
		r.Fatal(err)
	}
}

// real returns where a command is that another stands before.
func (r *reader) real(name string) string {
	r.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		r.Fatal(err)
	}
	return path
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
	if err != nil || strings.Contains(string(out), "no page's command") { // whose status a loop hides
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
