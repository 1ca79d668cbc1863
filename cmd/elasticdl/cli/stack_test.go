package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// cluster simulates an API server with one job, until the job is deleted.
type cluster struct {
	annotations map[string]string // annotations of its Job
	mu          sync.Mutex
	gone        bool
}

var kinds = map[string]string{
	"jobs": "JobList", "pods": "PodList", "configmaps": "ConfigMapList", "services": "ServiceList",
	"serviceaccounts": "ServiceAccountList",
	"roles":           "RoleList", "rolebindings": "RoleBindingList", "events": "EventList",
	"poddisruptionbudgets": "PodDisruptionBudgetList",
	"networkpolicies":      "NetworkPolicyList",
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	path := strings.Split(r.URL.Path, "/") // …/KIND or …/KIND/NAME
	kind, name := path[len(path)-1], ""
	if kinds[kind] == "" {
		kind, name = path[len(path)-2], kind
	}
	answer := map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"}
	switch {
	case name == "elasticdl-j-master" && !c.gone:
		c.gone = r.Method == http.MethodDelete
		answer = map[string]any{"kind": "Job", "apiVersion": "batch/v1", "metadata": map[string]any{
			"name": name, "namespace": "default", "uid": "u", "annotations": c.annotations,
			"labels": map[string]string{"elasticdl-job-name": "j"},
		}}
	case kind == "configmaps" && name == "elasticdl-j" && !c.gone:
		answer = map[string]any{"kind": "ConfigMap", "apiVersion": "v1",
			"metadata": map[string]any{"name": name, "namespace": "default"},
			"data":     map[string]string{"job.json": `{"name": "j", "numWorkers": 2}`, "numWorkers": "2"}}
	case name != "":
		answer["status"], answer["reason"], answer["code"] = "Failure", "NotFound", http.StatusNotFound
	default:
		answer = map[string]any{"kind": kinds[kind], "items": []any{}}
	}
	w.Header().Set("Content-Type", "application/json")
	if answer["code"] != nil {
		w.WriteHeader(http.StatusNotFound)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// A Pulumi stack creates its job again and reverts its changes: a command that stops or scales the
// job prints the remedy.
func TestJobsOfAStack(t *testing.T) {
	t.Setenv("ELASTICDL_HOME", t.TempDir())
	for _, test := range []struct {
		annotations map[string]string
		args        []string
		want        string // expected on stderr
	}{
		{map[string]string{"pulumi.com/skipAwait": "true"}, []string{"stop", "j"},
			"note: job j belongs to a Pulumi stack, which runs it again after pulumi refresh; to end it " +
				"for good: pulumi config rm job && pulumi up\n"},
		{map[string]string{"other": "true"}, []string{"stop", "j"}, ""},
		{map[string]string{"pulumi.com/skipAwait": "true"}, []string{"scale", "j", "--num_workers=5"},
			"note: job j belongs to a Pulumi stack, which may undo that; to keep it: pulumi config " +
				"set --path job.numWorkers 5 && pulumi up\n"},
		{nil, []string{"scale", "j", "--num_workers=5"}, ""},
	} {
		server := httptest.NewServer(&cluster{annotations: test.annotations})
		defer server.Close()
		kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
		text :=
			`{"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": {"server": "` +
				server.URL + `"}}],
			"users": [{"name": "u", "user": {}}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}`
		if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), append(test.args, "--kubeconfig="+kubeconfig), nil, &stdout,
			&stderr); code != 0 || stderr.String() != test.want {
			t.Errorf("%q of a job with %v: exit code %d, %q, want %q\n%s", test.args, test.annotations,
				code, stderr.String(), test.want, stdout.String())
		}
	}
}
