package platform

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// checkQueue refuses a job that the stack's queue can never admit: one of its pods requests what
// the queue has no quota for, or its core requests more than the quotas, and no cohort lends the
// rest. The quotas of a ClusterQueue of others are not known here.
func checkQueue(s *settings.Settings, p *settings.Problems) {
	q := s.Platform.Queue
	if q == nil || len(q.Quotas) == 0 || s.Job == nil || s.Job.Queue != q.Name {
		return
	}
	needs := demandOf(roleSpecs(s.Job))
	for _, name := range slices.Sorted(maps.Keys(needs)) {
		path, need := settings.Join("platform.queue.quotas", name), needs[name]
		given, limited := q.Quotas[name]
		quota, err := resource.ParseQuantity(given)
		switch {
		case !limited:
			// pods are counted only where there is a quota for them
			p.Check(name == string(core.ResourcePods), path, "missing: pods of the job request it (%s), and Kueue "+
				"admits no pod that requests what its queue has no quota for", need.parts())
		case err == nil && need.total.Cmp(quota) > 0:
			p.Check(q.Cohort != "", path, "%s: the job needs %s before it trains (%s), so that the queue never admits "+
				"it: expected a greater quota, fewer job.minWorkers or smaller requests, or a "+
				"platform.queue.cohort from which it borrows", given, need.total.String(), need.parts())
		}
	}
}

// demand is the amount of a resource that the core of a job requests.
type demand struct {
	total resource.Quantity
	of    []string
}

func (d *demand) parts() string { return strings.Join(d.of, ", ") }

// demandOf returns what the pods of a job's core request, by resource, without what they request
// none of.
func demandOf(roles []roleSpec) map[string]*demand {
	needs := map[string]*demand{}
	for _, r := range roles {
		for name, amount := range requests(&r.Spec) {
			if r.inCore == 0 || amount.IsZero() {
				continue
			}
			amount.Mul(int64(r.inCore))
			need := needs[string(name)]
			if need == nil {
				need = &demand{}
				needs[string(name)] = need
			}
			need.total.Add(amount)
			need.of = append(need.of, fmt.Sprintf("%d %s: %s", r.inCore, plural(r.name, r.inCore), amount.String()))
		}
	}
	return needs
}

func plural(name string, n int) string {
	if n == 1 {
		return name
	}
	return name + "s"
}

// requests returns what a pod requests, as the scheduler and Kueue count it: the sum of its
// containers, or an init container that requests more. A limit without a request is requested, too.
func requests(p *core.PodSpec) core.ResourceList {
	of := func(c *core.Container) core.ResourceList {
		all := core.ResourceList{}
		maps.Copy(all, c.Resources.Limits)
		maps.Copy(all, c.Resources.Requests)
		return all
	}
	sum := core.ResourceList{core.ResourcePods: resource.MustParse("1")}
	for i := range p.Containers {
		for name, amount := range of(&p.Containers[i]) {
			amount.Add(sum[name])
			sum[name] = amount
		}
	}
	for i := range p.InitContainers {
		for name, amount := range of(&p.InitContainers[i]) {
			if is := sum[name]; amount.Cmp(is) > 0 {
				sum[name] = amount
			}
		}
	}
	for name, amount := range p.Overhead {
		amount.Add(sum[name])
		sum[name] = amount
	}
	return sum
}
