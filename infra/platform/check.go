package platform

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/manifest"
	"github.com/elasticdl/elasticdl/trainer/pod"
)

// Check reports what a stack's job would be refused for when its pods are made, and what only some clouds have. It is a
// [settings.Check].
func Check(s *settings.Settings, p *settings.Problems) {
	checkPodSecurity(s, p)
	checkQuota(s, p)
	class, shared := s.Platform.StorageClass, s.EKS != nil && s.EKS.EFS != nil
	p.Check(class == "" || shared, "platform.storageClass", "%s: %s", class, needsEFS)
}

const needsEFS = "expected eks.efs, where volumes on demand are directories; elsewhere each were a disk or file server that outlives the stack: use subPath with the stack's claim"

// checkPodSecurity refuses a job whose pods the namespace would not take.
func checkPodSecurity(s *settings.Settings, p *settings.Problems) {
	level := podSecurity(s)
	bad := map[string]bool{}
	for _, t := range pods(s.Job) {
		for _, complaint := range against(level, &t) {
			bad[complaint] = true
		}
	}
	p.Check(len(bad) == 0, "platform.podSecurity", "%s: the job's pods would be refused: %s", level, strings.Join(slices.Sorted(maps.Keys(bad)), "; "))
}

// checkQuota refuses a job whose pods do not say how much they want of what a quota counts.
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
		p.Check(len(silent) == 0, settings.Join("platform.quota", name), "the job's pods would be refused: they do not say how much they want of that: %s", strings.Join(silent, ", "))
	}
}

// podSecurity returns the level of the namespace: as set, or the strictest that the job's pods pass, of those that are not the
// strictest of all: that one refuses also what people start by hand.
func podSecurity(s *settings.Settings) string {
	level := cmp.Or(s.Platform.PodSecurity, baseline)
	if s.Platform.PodSecurity == "" && slices.ContainsFunc(pods(s.Job), func(t core.PodTemplateSpec) bool { return len(against(baseline, &t)) > 0 }) {
		level = privileged
	}
	return level
}

// pods returns one of each role of a job, none of one that is not valid. Its image may be made by the stack later.
func pods(of *job.Job) []core.PodTemplateSpec {
	if of == nil {
		return nil
	}
	j := new(*of)
	j.Image = cmp.Or(j.Image, manifest.App)
	s, err := manifest.Submit(j)
	if err != nil {
		return nil
	}
	all := []core.PodTemplateSpec{s.Job.Spec.Template}
	roles := []pod.Role{pod.Worker}
	if j.NumPS > 0 {
		roles = append(roles, pod.PS)
	}
	for _, role := range roles {
		if p, err := manifest.Pod(j, manifest.PodSpec{ID: pod.ID{Role: role}, Launch: 1}, meta.OwnerReference{}); err == nil {
			all = append(all, core.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec})
		}
	}
	return all
}
