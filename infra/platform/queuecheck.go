package platform

import (
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/trainer/runtime/demand"
)

// checkQueue refuses a job that the stack's queue can never admit: one of its pods requests what
// the queue has no quota for, or its core requests more than the quotas, and no cohort lends the
// rest. The quotas of a ClusterQueue of others are not known here.
func checkQueue(s *settings.Settings, p *settings.Problems) {
	q := s.Platform.Queue
	if q == nil || len(q.Quotas) == 0 || s.Job == nil || s.Job.Queue != q.Name {
		return
	}
	for _, need := range demand.Needs(rolesOf(s.Job), demand.InQueue, demand.Requests) {
		path := settings.Join("platform.queue.quotas", string(need.Name))
		given, limited := q.Quotas[string(need.Name)]
		limit, err := resource.ParseQuantity(given)
		switch {
		case !limited:
			// pods are counted only where there is a quota for them
			p.Check(need.Name == core.ResourcePods, path, "missing: pods of the job request it (%s), and Kueue "+
				"admits no pod that requests what its queue has no quota for", need.List())
		case err == nil && need.Total.Cmp(limit) > 0:
			p.Check(q.Cohort != "", path, "%s: %s, so that the queue never admits it: "+fitting+
				", or a platform.queue.cohort from which it borrows", given, need)
		}
	}
}
