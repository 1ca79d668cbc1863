package manifest

import (
	"maps"
	"reflect"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// A launcher may run where its master may, with the labels and annotations that a cluster asks of
// the job's pods. It is small, mounts nothing, and nobody takes it for the master.
func TestLauncher(t *testing.T) {
	j := parse(t, little, "--node_selector=pool=cheap", "--tolerations=key=spot,operator=Exists,effect=NoSchedule",
		"--master_pod_priority=high", "--queue=q", `--cluster_spec_json={
		"pod_spec":{"labels":{"team":"a"},"restartPolicy":"OnFailure"},
		"master_pod_spec":{"labels":{"kueue.x-k8s.io/pod-group-name":"g"},"annotations":{"mesh/inject":"false"},
		"terminationGracePeriodSeconds":100,"schedulerName":"own","hostname":"m",
		"initContainers":[{"name":"i","image":"i"}],"containers":[{"name":"side","image":"s"}],
		"volumes":[{"name":"v","emptyDir":{}}]}}`)
	s, err := Submit(j)
	if err != nil {
		t.Fatal(err)
	}
	l, m := s.Job.Spec.Template, s.Master
	if l.Labels["team"] != "a" || l.Annotations["mesh/inject"] != "false" ||
		l.Labels["kueue.x-k8s.io/queue-name"] != "" || l.Labels["kueue.x-k8s.io/pod-group-name"] != "" {
		t.Errorf("labels %v, annotations %v", l.Labels, l.Annotations)
	}
	if l.Spec.RestartPolicy != core.RestartPolicyNever || m.Spec.RestartPolicy != core.RestartPolicyNever {
		t.Errorf("restarts %v and %v", l.Spec.RestartPolicy, m.Spec.RestartPolicy)
	}
	if !maps.Equal(l.Spec.NodeSelector, m.Spec.NodeSelector) || len(l.Spec.NodeSelector) == 0 ||
		!reflect.DeepEqual(l.Spec.Tolerations, m.Spec.Tolerations) || l.Spec.SchedulerName != "own" ||
		l.Spec.PriorityClassName != "high" || l.Spec.ServiceAccountName != m.Spec.ServiceAccountName ||
		!reflect.DeepEqual(l.Spec.SecurityContext, m.Spec.SecurityContext) {
		t.Errorf("it is not placed like its master: %+v", l.Spec)
	}
	if l.Spec.Hostname != "" || len(l.Spec.InitContainers)+len(l.Spec.Volumes) > 0 || len(l.Spec.Containers) != 1 {
		t.Errorf("it has more than it needs: %+v", l.Spec)
	}
	c := l.Spec.Containers[0]
	if c.Image != mainOf(&m.Spec, "master").Image || len(c.Resources.Requests) != 2 ||
		!c.Resources.Requests.Cpu().IsZero() ||
		!*c.SecurityContext.ReadOnlyRootFilesystem || len(c.VolumeMounts)+len(c.Ports) > 0 {
		t.Errorf("container %+v", c)
	}
	its, grace := *m.Spec.TerminationGracePeriodSeconds, *l.Spec.TerminationGracePeriodSeconds
	if its != 100 || grace <= its {
		t.Errorf("it has %d s to end a master that has %d s", grace, its)
	}
	if labels.SelectorFromSet(s.Services[0].Spec.Selector).Matches(labels.Set(l.Labels)) {
		t.Errorf("the master's Service leads to it: %v", l.Labels)
	}
	if _, id, _, ok := ParseLabels(l.Labels); ok {
		t.Errorf("it is taken for %v", id)
	}
}

// The pod of a master has the name of the tutorials. It belongs to the Job, which does not control
// it: a Job deletes pods that it controls and did not make, and Kueue leaves out pods of a
// controller that it manages.
func TestMaster(t *testing.T) {
	m, err := Master(parse(t, little), Owner("elasticdl-test-mnist-allreduce-master", "u-1"))
	if err != nil {
		t.Fatal(err)
	}
	if m.Name != "elasticdl-test-mnist-allreduce-master" || m.Namespace != "default" {
		t.Errorf("it is %s/%s", m.Namespace, m.Name)
	}
	if len(m.OwnerReferences) != 1 || m.OwnerReferences[0].UID != "u-1" || m.OwnerReferences[0].Controller != nil {
		t.Errorf("owners %v", m.OwnerReferences)
	}
	var uid []core.EnvVar
	for _, v := range mainOf(&m.Spec, "master").Env {
		if v.Name == job.EnvUID {
			uid = append(uid, v)
		}
	}
	if len(uid) != 1 || uid[0].Value != "u-1" {
		t.Errorf("its Job is %v", uid)
	}
	away := m.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	if len(away) != 1 || away[0].PodAffinityTerm.LabelSelector.MatchLabels[LabelRole] != RoleLauncher {
		t.Errorf("it does not avoid the node of its launcher: %v", away)
	}
}
