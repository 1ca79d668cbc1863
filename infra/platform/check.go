package platform

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/demand"
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
	for _, r := range rolesOf(s.Job) {
		for _, complaint := range against(level, r.Pod) {
			bad[complaint] = true
		}
	}
	p.Check(len(bad) == 0, "platform.podSecurity", "%s: the job's pods would be refused: %s", level,
		strings.Join(slices.Sorted(maps.Keys(bad)), "; "))
}

// checkQuota refuses a job that does not fit the quota of the namespace: a pod does not set the
// requests or limits that the quota counts, or the pods with which the job trains exceed it.
func checkQuota(s *settings.Settings, p *settings.Problems) {
	of := rolesOf(s.Job)
	for _, name := range slices.Sorted(maps.Keys(s.Platform.Quota)) {
		path, given := settings.Join("platform.quota", name), s.Platform.Quota[name]
		var silent []string
		for _, r := range of {
			silent = append(silent, demand.Unsaid(&r.Pod.Spec, name)...)
		}
		p.Check(len(silent) == 0, path, "the job's pods would be refused: they do not say how much they want of "+
			"that: %s", strings.Join(silent, ", "))
		limit, err := resource.ParseQuantity(given)
		need, ok := demand.Counted(of, name)
		p.Check(!ok || err != nil || need.Total.Cmp(limit) <= 0, path, "%s: %s, so that it never has all its pods: "+
			fitting, given, need)
	}
}

// together returns a note for each quota that holds every job of a platform, and not all of them at
// a time.
func together(of settings.Platform, jobs []*job.Job) (notes []string) {
	for _, name := range slices.Sorted(maps.Keys(of.Quota)) {
		var total resource.Quantity
		var needing []string
		for _, j := range jobs {
			if need, ok := demand.Counted(rolesOf(j), name); ok {
				total.Add(need.Total)
				needing = append(needing, j.Name)
			}
		}
		limit, err := resource.ParseQuantity(of.Quota[name])
		if err == nil && len(needing) > 1 && total.Cmp(limit) > 0 {
			notes = append(notes, fmt.Sprintf("%s: %s, and the jobs %s need %s together before they train: some wait "+
				"until others have ended", settings.Join("platform.quota", name), of.Quota[name],
				strings.Join(needing, ", "), total.String()))
		}
	}
	return notes
}

// fitting says what makes a job fit a quota.
const fitting = "expected a greater quota, fewer job.minWorkers or smaller requests"

// podSecurity returns the level of the namespace: the one that is set, or else baseline if the pods
// of all jobs pass it, and privileged if not. The default is never restricted, which would also
// refuse pods that people start by hand.
func podSecurity(of settings.Platform, jobs []*job.Job) string {
	if of.PodSecurity != "" {
		return of.PodSecurity
	}
	for _, j := range jobs {
		if slices.ContainsFunc(rolesOf(j), func(r demand.Role) bool { return len(against(baseline, r.Pod)) > 0 }) {
			return privileged
		}
	}
	return baseline
}

// rolesOf returns the roles of a job, or none if the job is not valid.
func rolesOf(of *job.Job) []demand.Role {
	if of == nil {
		return nil
	}
	all, err := demand.Roles(of)
	if err != nil {
		return nil
	}
	return all
}
