// Package demand computes what the pods of a job request, and whether that fits a limit: of a node,
// a namespace or a queue.
//
//	roles, err := demand.Roles(j)
//	for _, need := range demand.Needs(roles, demand.AtLeast, demand.Requests) {
//		if need.Total.Cmp(limits[need.Name]) > 0 {
//			fmt.Println(need) // the job needs 4500m before it trains (1 master: 500m, 4 workers: 4)
//		}
//	}
//
// Laws:
//
//  1. A pod requests what Kubernetes counts: the sum of its containers, or an init container that
//     requests more. Sidecars run next to both. Pod-level resources replace sums. A limit without a
//     request is a request.
//  2. More pods, or larger ones, never need less.
package demand

import (
	"maps"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
)

// Requests returns what the scheduler, Kueue and a ResourceQuota count as the requests of a pod.
func Requests(p *core.PodSpec) core.ResourceList {
	sum := aggregate(p, requestsOf)
	if p.Resources != nil {
		replace(sum, requestsOf(*p.Resources))
	}
	add(sum, p.Overhead)
	return sum
}

// Limits returns what a ResourceQuota counts as the limits of a pod.
func Limits(p *core.PodSpec) core.ResourceList {
	sum := aggregate(p, limitsOf)
	if p.Resources != nil {
		replace(sum, p.Resources.Limits)
	}
	for name, amount := range p.Overhead {
		if q := sum[name]; !q.IsZero() {
			q.Add(amount)
			sum[name] = q
		}
	}
	return sum
}

// requestsOf returns requests with the default of the API server: the limit.
func requestsOf(r core.ResourceRequirements) core.ResourceList {
	all := core.ResourceList{}
	maps.Copy(all, r.Limits)
	maps.Copy(all, r.Requests)
	return all
}

func limitsOf(r core.ResourceRequirements) core.ResourceList { return r.Limits }

// aggregate returns what the containers of a pod need at the same time.
func aggregate(p *core.PodSpec, of func(core.ResourceRequirements) core.ResourceList) core.ResourceList {
	sum, sidecars, start := core.ResourceList{}, core.ResourceList{}, core.ResourceList{}
	for _, c := range p.Containers {
		add(sum, of(c.Resources))
	}
	for _, c := range p.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == core.ContainerRestartPolicyAlways {
			add(sum, of(c.Resources))
			add(sidecars, of(c.Resources))
			continue
		}
		now := maps.Clone(sidecars)
		add(now, of(c.Resources))
		raise(start, now)
	}
	raise(sum, start)
	return sum
}

func add(to, more core.ResourceList) {
	for name, amount := range more {
		sum := to[name].DeepCopy()
		sum.Add(amount)
		to[name] = sum
	}
}

func raise(to, least core.ResourceList) {
	for name, amount := range least {
		if is, there := to[name]; !there || amount.Cmp(is) > 0 {
			to[name] = amount
		}
	}
}

// replace sets the amounts that a pod as a whole may have.
func replace(in, by core.ResourceList) {
	for name, amount := range by {
		if ofPod(name) {
			in[name] = amount
		}
	}
}

func ofPod(name core.ResourceName) bool {
	return name == core.ResourceCPU || name == core.ResourceMemory ||
		strings.HasPrefix(string(name), core.ResourceHugePagesPrefix)
}

// Short returns the first resource, by name, of which pods request more than the limit. A resource
// that the limit lacks has the limit 0.
func Short(requests, limit core.ResourceList) (name core.ResourceName, short bool) {
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		if q := requests[name]; q.Cmp(limit[name]) > 0 {
			return name, true
		}
	}
	return "", false
}

// Unsaid returns the containers without a request or limit of a resource that a ResourceQuota
// counts under a name such as limits.cpu: the API server refuses their pod. Only processors and
// memory must be given.
func Unsaid(p *core.PodSpec, name string) (containers []string) {
	resource, limit := counted(name)
	if resource != core.ResourceCPU && resource != core.ResourceMemory {
		return nil
	}
	of := requestsOf
	if limit {
		of = limitsOf
	}
	if p.Resources != nil {
		if _, said := of(*p.Resources)[resource]; said {
			return nil
		}
	}
	for _, c := range slices.Concat(p.InitContainers, p.Containers) {
		if _, said := of(c.Resources)[resource]; !said {
			containers = append(containers, c.Name)
		}
	}
	return containers
}

// counted returns the resource that a ResourceQuota counts under a name: cpu and requests.cpu are
// the same.
func counted(name string) (resource core.ResourceName, limit bool) {
	if of, ok := strings.CutPrefix(name, "limits."); ok {
		return core.ResourceName(of), true
	}
	return core.ResourceName(strings.TrimPrefix(strings.TrimPrefix(name, "count/"), "requests.")), false
}
