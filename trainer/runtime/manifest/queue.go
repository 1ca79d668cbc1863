package manifest

import (
	core "k8s.io/api/core/v1"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// Names of the PriorityClasses of pods in a queue, with --queue_priorities=pod.
const (
	PodClassCore    = "high"
	PodClassElastic = "low"
)

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
