package infra

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// RuleReplacedCluster is the name of the policy's rule against replacing a cluster.
const RuleReplacedCluster = "replaced-cluster"

// Running returns a description of the jobs that run now, or "".
func (g *Guard) Running() string { return g.RunningOf("") }

// RunningOf does the same for the job of a name; "" = all.
func (g *Guard) RunningOf(job string) string {
	kubeconfig, known := g.kubeconfig()
	if !known && !g.cluster.Adopted {
		return ""
	}
	return g.running(g.own(kubeconfig), job)
}

// RunningIn returns the same as Running for the cluster of another kubeconfig, such as the cluster
// that is replaced. That kubeconfig need not have the context of this cluster.
func (g *Guard) RunningIn(kubeconfig string) string {
	return g.running(place{kubeconfig: kubeconfig}, "")
}

func (g *Guard) running(in place, job string) string {
	var all []string
	for _, j := range g.of.Jobs {
		if job != "" && job != j.Name {
			continue
		}
		if text := g.runs(in, j); text != "" {
			all = append(all, text)
		}
	}
	return strings.Join(all, "; ")
}

// runs returns a description of a job if it runs, or "".
func (g *Guard) runs(in place, j *job.Job) string {
	is, err := g.getFrom(in, KindJob, j.Namespace, manifest.MasterName(j.Name))
	if err != nil || is == nil || !Active(is.Object) {
		return ""
	}
	text := "job " + j.Name + " is running"
	since, _, _ := unstructured.NestedString(is.Object, "status", "startTime")
	now := g.cluster.Settings.Now
	if began, err := time.Parse(time.RFC3339, since); err == nil && now.After(began) {
		text = fmt.Sprintf("job %s has been running for %s", j.Name, now.Sub(began).Round(time.Second))
	}
	return text + " (`elasticdl status " + j.Name + " --namespace=" + j.Namespace + "` says how far it is)"
}

// Active reports whether a Job runs: it is neither suspended nor ended, and is not being deleted.
func Active(job map[string]any) bool {
	o := unstructured.Unstructured{Object: job}
	if suspended, _, _ := unstructured.NestedBool(job, "spec", "suspend"); suspended ||
		o.GetDeletionTimestamp() != nil {
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(job, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["status"] == "True" &&
			(c["type"] == "Complete" || c["type"] == "Failed") {
			return false
		}
	}
	return true
}

// Answers reports whether the cluster of another kubeconfig answers.
func (g *Guard) Answers(kubeconfig string) bool {
	if kubeconfig == "" {
		return false
	}
	is, err := g.getFrom(place{kubeconfig: kubeconfig}, KindNamespace, "", g.of.Platform.Namespace)
	return err == nil && is != nil
}
