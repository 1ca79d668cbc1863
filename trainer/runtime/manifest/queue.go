package manifest

import (
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// Names of the PriorityClasses of pods in a queue, with --queue_priorities=pod.
const (
	PodClassCore    = "high"
	PodClassElastic = "low"
)

// Values of the WorkloadPriorityClasses. Workloads without a class have priority 0, as the core of
// a job has: other workloads of the queue are not preempted by it.
const (
	priorityCore    = 0
	priorityElastic = -1000
)

// KindWorkloadPriority is the kind of the objects that [WorkloadPriorities] returns, in a version
// that Kueue serves from 0.15 on: v1beta1 is not served from 0.20 on.
var KindWorkloadPriority = schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2",
	Kind: "WorkloadPriorityClass"}

// WorkloadPriorities returns the WorkloadPriorityClasses of jobs in queues, which a cluster with
// Kueue has once: they belong to no namespace.
func WorkloadPriorities() (all []*unstructured.Unstructured) {
	for _, class := range []struct {
		name, description string
		value             int64
	}{
		{job.ClassCore, "Master, parameter servers and the workers that an ElasticDL job needs at least.",
			priorityCore},
		{job.ClassElastic, "Workers that an ElasticDL job can do without.", priorityElastic},
	} {
		o := &unstructured.Unstructured{Object: map[string]any{"value": class.value, "description": class.description}}
		o.SetGroupVersionKind(KindWorkloadPriority)
		o.SetName(class.name)
		o.SetLabels(map[string]string{LabelApp: App})
		all = append(all, o)
	}
	return all
}

// enqueue makes a pod of a job in a queue a workload of its own, of the core or not. A pod group
// would be admitted, and evicted, as a whole.
func enqueue(j *job.Job, t *core.PodTemplateSpec, inCore bool) {
	if j.Queue == "" {
		return
	}
	share, class, priority := ShareElastic, job.ClassElastic, PodClassElastic
	if inCore {
		share, class, priority = ShareCore, job.ClassCore, PodClassCore
	}
	t.Labels[LabelQueue], t.Labels[LabelShare] = j.Queue, share
	switch {
	case j.QueuePriorities == job.PrioritiesWorkload:
		t.Labels[labelWorkloadPriority] = class
	case j.QueuePriorities == job.PrioritiesPod && t.Spec.PriorityClassName == "":
		t.Spec.PriorityClassName = priority
	}
}
