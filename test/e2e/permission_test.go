//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// rule is a rule of a Role.
type rule struct {
	APIGroups     []string `json:"apiGroups"`
	Resources     []string `json:"resources"`
	ResourceNames []string `json:"resourceNames,omitempty"`
	Verbs         []string `json:"verbs"`
}

// The Role of a job is sufficient, and each of its verbs is needed: each is removed from the Role
// of a job, which then fails to do what the same job does with the whole Role, and reports what was
// forbidden.
func TestPermissions(t *testing.T) {
	// before it is parallel: of all tests it takes longest, so it is among the first
	release := takePlace(t)
	t.Parallel()
	ns := createNamespace(t, shared)
	var rules []rule
	whole := ns.suspended("whole", func(all []rule) []rule { rules = all; return all })
	began := time.Now()
	if problem := whole.performs(patience, whole.advances); problem != "" {
		t.Fatalf("with the whole Role: %s\n%s", problem, whole.log("master"))
	}
	if lines := grep(whole.log("master"), "forbidden"); len(lines) > 0 {
		t.Fatalf("with the whole Role:\n%s", strings.Join(lines, "\n"))
	}
	took(t, "with the whole Role", began)
	release() // its subtests have places of their own
	n := 0
	for i, r := range rules {
		for _, verb := range r.Verbs {
			n++
			t.Run(fmt.Sprintf("without %s %s of rule %d", verb, r.Resources[0], i), func(t *testing.T) {
				t.Parallel()
				takePlace(t)
				own := *ns
				own.t = t
				j := own.suspended(fmt.Sprintf("without-%s-%d", verb, i), func(all []rule) []rule {
					all[i].Verbs = slices.DeleteFunc(all[i].Verbs, func(v string) bool { return v == verb })
					// a Role must not have a rule without verbs
					return slices.DeleteFunc(all, func(r rule) bool { return len(r.Verbs) == 0 })
				})
				defer own.elasticdl("stop", j.job)
				problem := j.performs(time.Minute, j.within)
				eventually(t, "word of the missing permission in the master's log", 3*time.Minute, func() bool {
					launcher, _ := j.try("kubectl", "logs", "job/elasticdl-"+j.job+"-master")
					master, _ := j.try("kubectl", "logs", "elasticdl-"+j.job+"-master")
					out := launcher + master
					return len(grep(out, `cannot `+verb+` resource \\?"`+r.Resources[0]+`\\?"`)) > 0
				})
				if problem == "" {
					t.Error("the job has done all that it should")
				}
				figure(t, "the job", problem, "")
			})
		}
	}
	figure(t, "verbs in the Role", fmt.Sprint(n), "")
}

// suspended submits a job that starts only when its Role is changed as given.
func (ns *namespace) suspended(job string, change func([]rule) []rule) *submitted {
	ns.t.Helper()
	j := ns.train(job, slices.Concat(small, []string{mlp, "--num_epochs=30", "--num_ps_pods=1",
		"--num_workers=2", "--minibatch_size=64", "--suspend"})...)
	var role struct{ Rules []rule }
	if err := json.Unmarshal([]byte(ns.kubectl("get", "role", "elasticdl-"+job, "-o", "json")), &role); err != nil {
		ns.t.Fatal(err)
	}
	patch, err := json.Marshal(map[string]any{"rules": change(role.Rules)})
	if err != nil {
		ns.t.Fatal(err)
	}
	ns.kubectl("patch", "role", "elasticdl-"+job, "--type=merge", "-p", string(patch))
	ns.kubectl("patch", "job", "elasticdl-"+job+"-master", "--type=merge", "-p", `{"spec":{"suspend":false}}`)
	return j
}

// performs makes a job do everything that needs a permission, waits for each of it, at most for a
// limit, and returns what the job did not do.
func (j *submitted) performs(limit time.Duration, wait func(time.Duration, func() bool) bool) (problem string) {
	j.t.Helper()
	root := "elasticdl-" + j.job + "-master"
	for _, step := range []struct {
		problem string
		done    func() bool
	}{
		{"starts no workers", func() bool { return len(j.workers((*object).running)) == 2 }},
		{"does not tell how far it is", func() bool { return j.status() != nil && j.status().RecordsDone > 0 }},
		{"does not know its pods", func() bool {
			running := 0
			for _, p := range j.status().Pods {
				if p.State == "Running" {
					running++
				}
			}
			return running >= 3
		}},
		{"shows no conditions", func() bool {
			return j.now[jobs][root].is(manifest.ConditionPrefix+journal.Running, "True")
		}},
		{"is not scaled", func() bool { return len(j.workers((*object).running)) == 1 }},
		{"does not tell of its scaling by an event", func() bool { return j.eventReported("Normal", "JobScaled") }},
		{"does not end", func() bool {
			o := j.now[jobs][root]
			return o.is("Complete", "True") || o.is("Failed", "True")
		}},
		{"fails", func() bool { return j.now[jobs][root].is("Complete", "True") }},
		{"does not tell that it has succeeded", func() bool { return j.status().State == "Succeeded" }},
		// the event is written before the Job is complete
		{"does not tell of its end by an event", func() bool { return j.eventReported("Normal", "TrainingSucceeded") }},
		{"leaves pods", func() bool {
			for name, o := range j.now[pods] {
				if strings.HasPrefix(name, "elasticdl-"+j.job+"-") && o.Status.Phase == "Running" {
					return false
				}
			}
			return true
		}},
	} {
		if step.problem == "is not scaled" {
			if out, err := j.try(*elasticdl, "scale", j.job, "--num_workers=1"); err != nil {
				return out
			}
		}
		wait := wait
		if step.problem == "does not end" { // as long as it trains nothing hinders it
			wait = j.advances
		}
		if !wait(limit, step.done) {
			return step.problem
		}
	}
	return ""
}
