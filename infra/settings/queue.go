package settings

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// Queue describes the queue of Kueue through which the stack's job gets its pods:
// elasticdl:platform.queue.
type Queue struct {
	// name of the LocalQueue in the stack's namespace, and the default of job.queue
	Name string `json:"name"`
	// the stack installs Kueue; default: true on clusters that the stack makes
	Install bool `json:"install"`
	// version of Kueue that is installed: "0.17.0"
	Version string `json:"version,omitempty"`
	// Namespaces lists other namespaces whose pods the installed Kueue manages, such as those of
	// other stacks on the cluster.
	Namespaces []string `json:"namespaces,omitempty"`
	// an existing ClusterQueue, which belongs to someone else; "" = the stack makes one
	ClusterQueue string `json:"clusterQueue,omitempty"`
	// nominal quota of the stack's ClusterQueue, by resource: cpu, memory, nvidia.com/gpu
	Quotas map[string]string `json:"quotas,omitempty"`
	// ClusterQueues of one cohort lend each other what they do not use; "" = none
	Cohort string `json:"cohort,omitempty"`
	// nodes that the quotas are for; nil = any
	Flavor *Flavor `json:"flavor,omitempty"`
}

// Flavor describes a ResourceFlavor of Kueue, which the stack makes unless it is named.
type Flavor struct {
	// an existing ResourceFlavor, which belongs to someone else; "" = the stack makes one
	Name string `json:"name,omitempty"`
	// labels of the nodes, which admitted pods select
	Labels map[string]string `json:"labels,omitempty"`
	// what admitted pods tolerate in addition
	Tolerations []job.Toleration `json:"tolerations,omitempty"`
}

// KueueVersion is the version of Kueue that a stack installs unless its file names another.
const KueueVersion = "0.17.0"

// settleQueue sets the values of the queue that follow from others.
func (s *Settings) settleQueue(given func(path string) bool) {
	q := s.Platform.Queue
	if q == nil {
		return
	}
	if !given("platform.queue.install") {
		q.Install = s.Existing == nil && (s.Minikube == nil || !s.Minikube.Adopt)
	}
	if !q.Install && !given("platform.queue.version") {
		q.Version = ""
	}
	if q.Install && !given("platform.queuePriorities") {
		s.Platform.QueuePriorities = true
	}
	// a name that is not valid is reported once
	if s.Job != nil && !given("job.queue") && valid(validation.IsDNS1123Label(q.Name)) {
		s.Job.Queue = q.Name
	}
}

// isKueue matches versions of Kueue with the API v1beta2: 0.15 and later.
var isKueue = regexp.MustCompile(`^(0\.(1[5-9]|[2-9][0-9])|[1-9][0-9]*\.[0-9]+)\.[0-9]+$`)

func (q *Queue) check(p *Problems) {
	const at = "platform.queue."
	p.Check(valid(validation.IsDNS1123Label(q.Name)), at+"name",
		"%s: expected at most 63 lower-case letters, digits and '-'", orMissing(q.Name))
	q.checkInstall(p)
	if q.ClusterQueue != "" {
		const own = "goes with a ClusterQueue that the stack makes: drop it, or platform.queue.clusterQueue"
		p.Check(valid(validation.IsDNS1123Subdomain(q.ClusterQueue)), at+"clusterQueue",
			"%s: expected a name of `kubectl get clusterqueues`", q.ClusterQueue)
		p.Check(len(q.Quotas) == 0, at+"quotas", own)
		p.Check(q.Cohort == "", at+"cohort", own)
		p.Check(q.Flavor == nil, at+"flavor", own)
		return
	}
	p.Check(len(q.Quotas) > 0, at+"quotas", "missing: what the queue grants, as {cpu: 20, memory: 80Gi}; or name a "+
		"ClusterQueue of the cluster's administrator: platform.queue.clusterQueue")
	for _, name := range slices.Sorted(maps.Keys(q.Quotas)) {
		path, value := Join(at+"quotas", name), q.Quotas[name]
		p.Check(isQueueQuota(name), path, "unknown resource%s", nearest(strings.TrimPrefix(name, "requests."),
			queueQuotas))
		p.Check(isQuantity.MatchString(value), path, "%s: expected a quantity, as 16, 500m or 64Gi", value)
	}
	p.Check(q.Cohort == "" || valid(validation.IsDNS1123Subdomain(q.Cohort)), at+"cohort",
		"%s: expected a name of lower-case letters, digits, '-' and '.'", q.Cohort)
	q.Flavor.check(p)
}

// checkInstall checks how Kueue is installed.
func (q *Queue) checkInstall(p *Problems) {
	const at = "platform.queue."
	if !q.Install {
		const why = "is of a Kueue that the stack installs: drop it, or give platform.queue.install: true"
		p.Check(q.Version == "", at+"version", "%s: "+why, q.Version)
		p.Check(len(q.Namespaces) == 0, at+"namespaces", why)
		return
	}
	p.Check(q.ClusterQueue == "", at+"clusterQueue", "%s: a Kueue that the stack installs has no queues yet: give "+
		"platform.queue.quotas, or platform.queue.install: false", q.ClusterQueue)
	p.Check(isKueue.MatchString(q.Version), at+"version",
		"%s: expected a version of Kueue from 0.15.0 on, as %s", orMissing(q.Version), KueueVersion)
	for i, name := range q.Namespaces {
		p.Check(valid(validation.IsDNS1123Label(name)) && !slices.Contains(clusterNamespaces, name),
			fmt.Sprintf(at+"namespaces[%d]", i),
			"%s: expected a namespace of jobs: while Kueue is away, no pod can start there", orMissing(name))
	}
}

// maxOfFlavor is the greatest number of labels, and of tolerations, that Kueue accepts.
const maxOfFlavor = 8

func (f *Flavor) check(p *Problems) {
	const at = "platform.queue.flavor."
	if f == nil {
		return
	}
	if f.Name != "" {
		const own = "goes with a ResourceFlavor that the stack makes: drop it, or platform.queue.flavor.name"
		p.Check(valid(validation.IsDNS1123Subdomain(f.Name)), at+"name",
			"%s: expected a name of `kubectl get resourceflavors`", f.Name)
		p.Check(len(f.Labels) == 0, at+"labels", own)
		p.Check(len(f.Tolerations) == 0, at+"tolerations", own)
		return
	}
	p.Check(len(f.Labels)+len(f.Tolerations) > 0, "platform.queue.flavor",
		"expected labels of nodes, tolerations, or the name of a ResourceFlavor that is there")
	p.Check(len(f.Labels) <= maxOfFlavor, at+"labels", "%d: expected at most %d", len(f.Labels), maxOfFlavor)
	p.Check(len(f.Tolerations) <= maxOfFlavor, at+"tolerations", "%d: expected at most %d", len(f.Tolerations),
		maxOfFlavor)
	checkSelector(at+"labels", f.Labels, p)
	checkTolerations(at+"tolerations", f.Tolerations, p)
}

var queueQuotas = []string{"cpu", "memory", "ephemeral-storage", "pods"}

// isQueueQuota reports whether a queue can grant a resource: one of Kubernetes, or a device by the
// name that pods request, as nvidia.com/gpu.
func isQueueQuota(name string) bool {
	return slices.Contains(queueQuotas, name) ||
		strings.Contains(name, "/") && !strings.HasPrefix(name, "requests.") && valid(validation.IsQualifiedName(name))
}
