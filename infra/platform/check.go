package platform

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// Check reports why Kubernetes would refuse the job's pods when they are created, and settings that
// only some clouds support. It is a [settings.Check].
func Check(s *settings.Settings, p *settings.Problems) {
	checkPodSecurity(s, p)
	checkQuota(s, p)
	checkQueue(s, p)
	class, shared := s.Platform.StorageClass, s.EKS != nil && s.EKS.EFS != nil
	p.Check(class == "" || shared, "platform.storageClass", "%s: %s", class, needsEFS)
}

const needsEFS = "expected eks.efs, where volumes on demand are directories; elsewhere each were a " +
	"disk or file server that outlives the stack: use subPath with the stack's claim"

// checkPodSecurity refuses a job whose pods violate the Pod Security level of the namespace.
func checkPodSecurity(s *settings.Settings, p *settings.Problems) {
	level := podSecurity(s.Platform, []*job.Job{s.Job})
	bad := map[string]bool{}
	for _, t := range pods(s.Job) {
		for _, complaint := range against(level, &t) {
			bad[complaint] = true
		}
	}
	p.Check(len(bad) == 0, "platform.podSecurity", "%s: the job's pods would be refused: %s", level,
		strings.Join(slices.Sorted(maps.Keys(bad)), "; "))
}

// checkQuota refuses a job whose pods do not set the requests or limits that the quota counts.
func checkQuota(s *settings.Settings, p *settings.Problems) {
	for _, name := range slices.Sorted(maps.Keys(s.Platform.Quota)) {
		of, limit := strings.CutPrefix(name, "limits.")
		of = strings.TrimPrefix(of, "requests.")
		if of != "cpu" && of != "memory" {
			continue
		}
		var silent []string
		for _, t := range pods(s.Job) {
			for _, c := range t.Spec.Containers {
				list := c.Resources.Requests
				if limit {
					list = c.Resources.Limits
				}
				if _, ok := list[core.ResourceName(of)]; !ok {
					silent = append(silent, c.Name)
				}
			}
		}
		p.Check(len(silent) == 0, settings.Join("platform.quota", name),
			"the job's pods would be refused: they do not say how much they want of that: %s",
			strings.Join(silent, ", "))
	}
}

// podSecurity returns the level of the namespace: the one that is set, or else baseline if the pods
// of all jobs pass it, and privileged if not. The default is never restricted, which would also
// refuse pods that people start by hand.
func podSecurity(of settings.Platform, jobs []*job.Job) string {
	if of.PodSecurity != "" {
		return of.PodSecurity
	}
	for _, j := range jobs {
		if slices.ContainsFunc(pods(j), func(t core.PodTemplateSpec) bool { return len(against(baseline, &t)) > 0 }) {
			return privileged
		}
	}
	return baseline
}

// pods returns one pod template for each role of a job, and its launcher's, or none if the job is
// not valid. The stack may build the image later.
func pods(of *job.Job) (all []core.PodTemplateSpec) {
	for _, r := range roleSpecs(of) {
		all = append(all, r.PodTemplateSpec)
	}
	return all
}

// roleSpec has the pods of one role.
type roleSpec struct {
	name string
	// number of its pods in the job's core, which need quota of a queue
	inCore int
	core.PodTemplateSpec
}

func roleSpecs(of *job.Job) []roleSpec {
	if of == nil {
		return nil
	}
	j := new(*of)
	j.Image = cmp.Or(j.Image, manifest.App)
	s, err := manifest.Submit(j)
	if err != nil {
		return nil
	}
	all := []roleSpec{{"launcher", 0, s.Job.Spec.Template},
		{"master", 1, core.PodTemplateSpec{ObjectMeta: s.Master.ObjectMeta, Spec: s.Master.Spec}}}
	add := func(role pod.Role, name string, inCore int) {
		if p, err := manifest.Pod(j, manifest.PodSpec{ID: pod.ID{Role: role}, Incarnation: 1},
			meta.OwnerReference{}); err == nil {
			all = append(all, roleSpec{name, inCore, core.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec}})
		}
	}
	add(pod.Worker, "worker", j.Core())
	if j.NumPS > 0 {
		add(pod.PS, "parameter server", j.NumPS)
	}
	return all
}
