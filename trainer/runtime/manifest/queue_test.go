package manifest

import (
	"cmp"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

// TestQueue: each pod of a job in a queue is a workload of its own, and its launcher is none.
func TestQueue(t *testing.T) {
	queued := func(priorities string) *job.Job {
		j := parse(t, little, "--distribution_strategy=ParameterServerStrategy", "--num_ps_pods=1", "--num_workers=4",
			"--min_workers=2", "--queue=team-a")
		j.QueuePriorities = priorities
		return j
	}
	for _, tt := range []struct {
		priorities       string
		id               pod.ID
		core             bool
		share            string
		class, podOfPods string
	}{
		{job.PrioritiesWorkload, pod.ID{Role: pod.Master}, false, ShareCore, job.ClassCore, ""},
		{job.PrioritiesWorkload, pod.ID{Role: pod.PS}, false, ShareCore, job.ClassCore, ""},
		{job.PrioritiesWorkload, pod.ID{Role: pod.Worker}, true, ShareCore, job.ClassCore, ""},
		{job.PrioritiesWorkload, pod.ID{Role: pod.Worker}, false, ShareElastic, job.ClassElastic, ""},
		{job.PrioritiesPod, pod.ID{Role: pod.Master}, false, ShareCore, "", "high"},
		{job.PrioritiesPod, pod.ID{Role: pod.Worker}, true, ShareCore, "", "high"},
		{job.PrioritiesPod, pod.ID{Role: pod.Worker}, false, ShareElastic, "", "low"},
		{job.PrioritiesNone, pod.ID{Role: pod.Worker}, false, ShareElastic, "", ""},
		{"", pod.ID{Role: pod.Worker}, true, ShareCore, "", ""},
	} {
		p := podOf(t, queued(tt.priorities), tt.id, tt.core)
		if got := p.Labels; got[LabelQueue] != "team-a" || got[LabelShare] != tt.share ||
			got[labelWorkloadPriority] != tt.class || p.Spec.PriorityClassName != tt.podOfPods {
			t.Errorf("%q %v core %t: labels %v, class %q", tt.priorities, tt.id, tt.core, got, p.Spec.PriorityClassName)
		}
		// Kueue leaves a pod alone whose controller it knows
		if o := meta.GetControllerOf(p); o != nil {
			t.Errorf("%v is controlled by %v", tt.id, o)
		}
		if len(p.OwnerReferences) != 1 {
			t.Errorf("%v is owned by %v", tt.id, p.OwnerReferences)
		}
	}
	s, err := Submit(queued(job.PrioritiesWorkload))
	if err != nil {
		t.Fatal(err)
	}
	for _, labels := range []map[string]string{s.Job.Labels, s.Job.Spec.Template.Labels} {
		if cmp.Or(labels[LabelQueue], labels[LabelShare], labels[labelWorkloadPriority]) != "" {
			t.Errorf("the launcher is queued: %v", labels)
		}
	}
	j := queued("")
	j.Queue = ""
	if got := podOf(t, j, pod.ID{Role: pod.Worker}, false).Labels; got[LabelShare] != "" || got[LabelQueue] != "" {
		t.Errorf("without a queue: %v", got)
	}
}

// podOf returns a pod of a job, owned by its Job.
func podOf(t *testing.T, j *job.Job, id pod.ID, inCore bool) *core.Pod {
	t.Helper()
	var p *core.Pod
	var err error
	if owner := Owner(MasterName(j.Name), "u"); id.Role == pod.Master {
		p, err = Master(j, owner)
	} else {
		p, err = Pod(j, PodSpec{ID: id, Incarnation: 1, Core: inCore}, owner)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestWorkloadPriorities: the core has the priority of workloads without a class, so that a job
// preempts nobody, and the other workers have a lower one.
func TestWorkloadPriorities(t *testing.T) {
	values := map[string]any{}
	for _, o := range WorkloadPriorities() {
		if o.GetAPIVersion() != "kueue.x-k8s.io/v1beta2" || o.GetNamespace() != "" || o.GetLabels()[LabelApp] != App {
			t.Errorf("%v", o.Object)
		}
		values[o.GetName()] = o.Object["value"]
	}
	if len(values) != 2 || values[job.ClassCore] != int64(0) || values[job.ClassElastic] != int64(-1000) {
		t.Errorf("%v", values)
	}
}
