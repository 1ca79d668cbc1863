//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// submitting has the permissions that a submitter of jobs needs, which the stacks give by a Role
// (infra/platform): those of the command itself, and those of the master's Role, because nobody may
// grant more rights than they have.
var submitting = []rule{
	{[]string{"batch"}, []string{"jobs"}, nil, strings.Fields("create delete get list patch watch")},
	{[]string{"batch"}, []string{"jobs/status"}, nil, []string{"patch"}},
	{[]string{""}, []string{"configmaps"}, nil, strings.Fields("create delete get list patch update watch")},
	{[]string{""}, []string{"secrets"}, nil, strings.Fields("create delete get update")},
	{[]string{""}, []string{"services"}, nil, strings.Fields("create delete get list")},
	{[]string{""}, []string{"serviceaccounts"}, nil, strings.Fields("create delete get list")},
	{[]string{"rbac.authorization.k8s.io"}, []string{"roles"}, nil, strings.Fields("create delete get list")},
	{[]string{"rbac.authorization.k8s.io"}, []string{"rolebindings"}, nil, strings.Fields("create delete get list")},
	{[]string{"policy"}, []string{"poddisruptionbudgets"}, nil, strings.Fields("create delete get list")},
	{[]string{"networking.k8s.io"}, []string{"networkpolicies"}, nil, strings.Fields("create delete get list")},
	{[]string{""}, []string{"pods"}, nil, strings.Fields("create delete get list watch")},
	{[]string{""}, []string{"events"}, nil, strings.Fields("create list")},
}

// A submitter with the whole Role can submit, scale and stop a job. Without one of its permissions
// the command that needs it names it, and a failed submission leaves nothing. Only without the
// permission for NetworkPolicies a job is submitted all the same, with a warning of what is open.
func TestSubmitterPermissions(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	s := &submitter{namespace: ns, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	s.make()
	submit := func(job string) []string {
		return slices.Concat([]string{"train", "--job_name=" + job, "--image_name=" + image,
			"--training_data=/data/mnist/train",
			"--volume=host_path=" + digits + ",mount_path=/data", mlp, "--num_epochs=1",
			"--num_ps_pods=1", "--num_workers=2", "--suspend"}, small)
	}
	scale := func(job string) []string { return []string{"scale", job, "--num_workers=1"} }
	stop := func(job string) []string { return []string{"stop", job} }

	for _, does := range []func(string) []string{submit, scale, stop} {
		if out, err := s.try(does("whole")...); err != nil || strings.Contains(out, "cannot ") {
			t.Fatalf("with the whole Role: %v\n%s", err, out)
		}
	}
	grants := func(resource string) string { return `(?s)attempting to grant .*` + resource }
	cannot := func(verb, resource string) string { return `cannot ` + verb + ` resource "` + resource + `"` }
	rows := []struct {
		verb, resource string
		does           func(job string) []string
		says           string
		goesOn         bool
	}{
		{"create", "jobs", submit, cannot("create", "jobs"), false},
		{"create", "configmaps", submit, cannot("create", "configmaps"), false},
		{"create", "secrets", submit, cannot("create", "secrets"), false},
		{"create", "services", submit, cannot("create", "services"), false},
		{"create", "serviceaccounts", submit, cannot("create", "serviceaccounts"), false},
		{"create", "roles", submit, cannot("create", "roles"), false},
		{"create", "rolebindings", submit, cannot("create", "rolebindings"), false},
		{"create", "poddisruptionbudgets", submit, cannot("create", "poddisruptionbudgets"), false},
		{"create", "networkpolicies", submit, cannot("create", "networkpolicies"), true},
		{"get", "secrets", submit, grants("secrets"), false},
		{"update", "secrets", submit, grants("secrets"), false},
		{"update", "configmaps", submit, grants("configmaps"), false},
		{"watch", "configmaps", submit, grants("configmaps"), false},
		{"patch", "jobs", submit, grants("jobs"), false},
		{"patch", "jobs/status", submit, grants("jobs/status"), false},
		{"delete", "pods", submit, grants("pods"), false},
		{"watch", "pods", submit, grants("pods"), false},
		{"create", "events", submit, grants("events"), false},
		{"patch", "configmaps", scale, cannot("patch", "configmaps"), false},
		{"delete", "jobs", stop, cannot("delete", "jobs"), false},
		{"list", "pods", stop, cannot("list", "pods"), false},
	}
	for i, tt := range rows {
		name := fmt.Sprintf("without-%d", i)
		submits := tt.does(name)[0] == "train"
		if !submits {
			s.may("", "")
			if out, err := s.try(submit(name)...); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		s.may(tt.verb, tt.resource)
		out, err := s.try(tt.does(name)...)
		if (err == nil) != tt.goesOn || !regexp.MustCompile(tt.says).MatchString(out) {
			t.Errorf("%q without %s %s: %v, expected %q, and success: %t\n%s", tt.does(name), tt.verb,
				tt.resource, err, tt.says, tt.goesOn, out)
		}
		if submits && !tt.goesOn { // Kubernetes deletes what the Job owns
			ns.kubectl("wait", "--for=delete", "--timeout=60s", "job/elasticdl-"+name+"-master")
		}
	}
	figure(t, "permissions of a submitter that were taken away", fmt.Sprint(len(rows)), "")
}

// submitter runs commands as an account with few permissions.
type submitter struct {
	*namespace
	kubeconfig string
	// the permission that the Role lacks, such as "create pods"; "" = none
	without string
}

// make creates the account, with the whole Role, and a kubeconfig for it.
func (s *submitter) make() {
	s.t.Helper()
	s.kubectl("create", "serviceaccount", "submitter")
	s.kubectl("create", "role", "submitter", "--verb=get", "--resource=pods")
	s.kubectl("create", "rolebinding", "submitter", "--role=submitter", "--serviceaccount="+s.name+":submitter")
	s.may("", "")
	token := strings.TrimSpace(s.kubectl("create", "token", "submitter", "--duration=1h"))
	text, err := os.ReadFile(os.Getenv("KUBECONFIG"))
	if err == nil {
		err = os.WriteFile(s.kubeconfig, text, 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.kubectl("config", "--kubeconfig="+s.kubeconfig, "set-credentials", "submitter", "--token="+token)
	s.kubectl("config", "--kubeconfig="+s.kubeconfig, "set-context", "--current", "--user=submitter")
}

// may sets the Role to all permissions except for one verb, or to all of them, and waits until the
// API server applies that.
func (s *submitter) may(verb, resource string) {
	s.t.Helper()
	var rules []rule
	for _, r := range submitting {
		if r.Resources[0] == resource {
			r.Verbs = slices.DeleteFunc(slices.Clone(r.Verbs), func(v string) bool { return v == verb })
		}
		// a Role must not have a rule without verbs
		if len(r.Verbs) > 0 {
			rules = append(rules, r)
		}
	}
	patch, err := json.Marshal(map[string]any{"rules": rules})
	if err != nil {
		s.t.Fatal(err)
	}
	s.kubectl("patch", "role", "submitter", "--type=merge", "-p", string(patch))
	before := s.without
	s.without = strings.TrimSpace(verb + " " + resource)
	for permission, want := range map[string]string{before: "yes", s.without: "no"} {
		if permission == "" {
			continue
		}
		eventually(s.t, want+" to "+permission, patience, func() bool {
			verb, resource, _ := strings.Cut(permission, " ")
			resource, part, _ := strings.Cut(resource, "/")
			// it exits with an error if the answer is "no"
			out, _ := s.namespace.try("kubectl", "auth", "can-i", "--kubeconfig="+s.kubeconfig, verb, resource,
				"--subresource="+part)
			return strings.TrimSpace(out) == want
		})
	}
}

// try runs elasticdl as the submitter.
func (s *submitter) try(args ...string) (string, error) {
	return s.namespace.try(*elasticdl, append(slices.Clone(args), "--kubeconfig="+s.kubeconfig)...)
}
