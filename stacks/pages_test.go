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
	"path/filepath"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/test/provider"
)

// tour is a page about a stack, whose commands are run from the first to the last, and then again
// from the start.
type tour struct {
	stack string
	// values of the placeholders for the reader
	values map[string]string
	// how often the job is created in both runs
	jobs int
}

var tours = []tour{
	{"gke", map[string]string{"PROJECT": provider.GoogleProject}, 3},
	{"eks", map[string]string{" ENI": " eni-1"}, 2},
	{"minikube", nil, 3},
	{"existing", map[string]string{"ghcr.io/YOU": "registry.example/me"}, 2},
}

// The commands of the pages work unchanged: a shell runs them from the first to the last, and then
// again from the start. Pulumi, its engine and the program are real; clouds are simulated, and
// stacks/testdata/page/tools.sh answers for the other commands. The table of played_test.go names
// the run of each block of each page.
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
					if p.on != tour.stack || p.before == "" ||
						!strings.HasPrefix(s.command, p.before) || inserted[p.name()] {
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
			r := simulated(t, tour.stack)
			values := map[string]string{login: loginTo(t)}
			maps.Copy(values, tour.values)
			r.run("the first time", script(promised(own), values))
			r.run("again", script(all, values))
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

// The README has every command that a new user needs, from the clone on.
func TestReadmeCloud(t *testing.T) {
	t.Parallel()
	const stack = "gke"
	var all []step
	for _, b := range blocksOf(t, "README.md") {
		if b.play(t).on == stack {
			all = append(all, b.steps(t)...)
		}
	}
	r := simulated(t, stack)
	r.run("once", script(promised(all), map[string]string{"PROJECT": provider.GoogleProject, login: loginTo(t)}))
}

// logins are those of a reader who has an account of each cloud.
var logins = step{"the test", 0, "gcloud auth login --update-adc && aws configure\n"}

// The page on pull requests sets up accounts, which are not simulated: a shell accepts its
// commands, stand-ins know each of them, and its JSON can be parsed. The test replaces the place of
// the state and its key.
func TestPageOfAccounts(t *testing.T) {
	t.Parallel()
	all := []step{logins, {"the test", 0, "REPO=owner/name BUCKET=a-bucket PROJECT=a-project HOST=a-host; " +
		"export PULUMI_CONFIG_PASSPHRASE=…\n"}}
	for _, b := range blocksOf(t, guide+"ci.md") {
		if b.play(t).on == accounts {
			all = append(all, b.steps(t)...)
		}
	}
	all = append(all, step{"the test", 0, "pulumi stack rm eks --preserve-config\n"})
	r := simulated(t, "gke")
	r.run("once", script(all, map[string]string{
		"pulumi login gs://$PROJECT-pulumi":                                              "pulumi login file://" + t.TempDir(),
		`pulumi login "s3://$BUCKET?region=us-west-2"`:                                   "pulumi login file://" + t.TempDir(),
		`"awskms://alias/pulumi?region=us-west-2"`:                                       "passphrase",
		`"gcpkms://projects/$PROJECT/locations/global/keyRings/pulumi/cryptoKeys/state"`: "passphrase",
	}))
	documents, err := filepath.Glob(filepath.Join(r.dir, "documents", "*"))
	if err != nil || len(documents) != 7 {
		t.Errorf("%d documents, expected three environments, two roles and two policies: %v", len(documents), err)
	}
	for _, document := range documents {
		if text, err := os.ReadFile(document); err != nil || !json.Valid(text) {
			t.Errorf("this is no JSON: %v\n%s", err, text)
		}
	}
}

// The quick starts have the commands for a state in a bucket, with a key of the cloud for its
// secrets: a shell accepts them, and stand-ins know each of them. The test replaces bucket and key.
func TestStateInABucket(t *testing.T) {
	t.Parallel()
	n := 0
	for _, tour := range tours {
		var all []step
		for _, b := range blocksOf(t, guide+tour.stack+".md") {
			if b.play(t).on == inBucket {
				all = append(all, b.steps(t)...)
			}
		}
		if len(all) == 0 {
			continue
		}
		if n++; len(all) != 3 {
			t.Errorf("%s: %d commands, expected three: bucket, key, stack", tour.stack, len(all))
		}
		local := "pulumi login file://" + t.TempDir()
		replaced := strings.NewReplacer(
			"pulumi login gs://PROJECT-pulumi ", local+" ",
			`pulumi login "s3://BUCKET?region=us-west-2"`, local,
			`"gcpkms://projects/PROJECT/locations/global/keyRings/pulumi/cryptoKeys/state"`, "passphrase",
			`"awskms://alias/pulumi?region=us-west-2"`, "passphrase",
			"PROJECT", provider.GoogleProject, "BUCKET", "a-bucket")
		for i := range all {
			all[i].command = replaced.Replace(all[i].command)
		}
		all = append([]step{logins, {"the test", 0, "export PULUMI_CONFIG_PASSPHRASE=…\n"}}, append(all,
			step{"the test", 0, "pulumi stack rm " + tour.stack + " --preserve-config --yes\n"})...)
		simulated(t, tour.stack).run("once", script(all, nil))
	}
	if n != 3 {
		t.Errorf("%d quick starts have a state in a bucket, expected those of GKE, EKS and existing", n)
	}
}

// simulated returns a reader whose clouds are simulated, and whose commands are those of tools.sh.
// Clouds and commands refuse to work until the reader has logged in.
func simulated(t *testing.T, stack string) *reader {
	t.Helper()
	bin, cloud := t.TempDir(), provider.Start(t)
	cloud.Home = t.TempDir()
	for _, tool := range []string{"aws", "curl", "docker", "elasticdl", "gcloud", "gh", "git",
		"gke-gcloud-auth-plugin", "kubectl", "make", "minikube"} {
		link(t, "stacks/testdata/page/tools.sh", filepath.Join(bin, tool))
	}
	objects := httptest.NewServer(serveObjects(cloud))
	t.Cleanup(objects.Close)
	r := newReader(t, ".", stack, bin, cloud.Home, cloud, map[string]string{remoteURL: objects.URL,
		"KUBECONFIG": os.Getenv("KUBECONFIG")})
	r.happens(bin)
	if err := os.CopyFS(filepath.Join(r.dir, "cmd", "elasticdl"), os.DirFS("stacks/testdata/model")); err != nil {
		t.Fatal(err)
	}
	return r
}

// happens adds the command `happens EVENT` to the script, which simulates the event that the page
// describes in the clouds of this process. It also passes to the Kubernetes provider of this
// process a variable that the real one reads from its environment.
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
		"the job is stopped":   func() error { return r.cloud.Kubernetes.Remove(jobObject, specObject, stateOf) },
		"unreachable: deleted": func() error { r.cloud.Kubernetes.DeleteUnreachable.Store(true); return nil },
		"unreachable: fail":    func() error { r.cloud.Kubernetes.DeleteUnreachable.Store(false); return nil },
	}
	r.promiseEvents(events)
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
	r.command(bin, "happens", `exec 3<>/dev/tcp/`+
		strings.Replace(strings.TrimPrefix(server.URL, "http://"), ":", "/", 1)+`
printf 'POST /%s HTTP/1.0\r\n\r\n' "${1// /%20}" >&3
answer=$(cat <&3)
[[ $answer == *" 200 "* ]] || { echo "$answer" >&2; exit 1; }`)
	r.command(bin, "pulumi", `deletes=${PULUMI_K8S_DELETE_UNREACHABLE:-}
[ "$deletes" != true ] || happens 'unreachable: deleted'
`+shellQuote(r.real("pulumi"))+` "$@"; status=$?
[ "$deletes" != true ] || happens 'unreachable: fail'
exit $status`)
}
