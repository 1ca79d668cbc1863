package manifest

import (
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

// RoleLauncher is the value of [LabelRole] of a launcher, the pod of a job's Job. It creates the
// pod of the master, and has no index.
const RoleLauncher = "launcher"

// launcherExtra is the number of seconds by which the grace period of a launcher is longer than
// that of its master, which it ends first.
const launcherExtra = 15

// Master returns the pod of the master of a valid job. Its launcher creates it, as [MasterName],
// and again when it has ended too early. It is owned by the launcher's Job.
func Master(j *job.Job, owner meta.OwnerReference) (*core.Pod, error) {
	t, err := masterTemplate(j)
	if err != nil {
		return nil, err
	}
	c := mainOf(&t.Spec, pod.Master.String())
	c.Env = overlaid(c.Env, []core.EnvVar{{Name: job.EnvUID, Value: string(owner.UID)}})
	t.Spec.Affinity = awayFrom(j, t.Spec.Affinity, RoleLauncher)
	// whatever --cluster_spec_json has for all pods: its launcher replaces it
	t.Spec.RestartPolicy = core.RestartPolicyNever
	t.OwnerReferences = []meta.OwnerReference{owner}
	return &core.Pod{TypeMeta: kind("v1", "Pod"), ObjectMeta: t.ObjectMeta, Spec: t.Spec}, nil
}

// launcherTemplate returns the template of the launcher: a pod with one small container, which may
// run where the master may, with its labels and annotations.
func launcherTemplate(j *job.Job) (*core.PodTemplateSpec, error) {
	t, err := masterTemplate(j)
	if err != nil {
		return nil, err
	}
	sum, err := hash(j)
	if err != nil {
		return nil, err
	}
	t.Name, t.Namespace = "", "" // the Job gives them
	t.Labels[LabelRole] = RoleLauncher
	for label := range t.Labels {
		if label == LabelIndex || label == LabelShare || strings.HasPrefix(label, labelsOfKueue) {
			delete(t.Labels, label)
		}
	}
	t.Annotations[AnnotationSpec] = sum
	t.Annotations[defaultContainer] = RoleLauncher
	t.Annotations[safeToEvict] = "true" // the master works on without it
	delete(t.Annotations, doNotDisrupt)

	of, spec := mainOf(&t.Spec, pod.Master.String()), &t.Spec
	confined := Confined()
	confined.ReadOnlyRootFilesystem = new(true)
	env := append(append(downward(), homeOf(j)...),
		field(job.EnvUID, "metadata.labels['batch.kubernetes.io/controller-uid']"),
		core.EnvVar{Name: EnvMemory, Value: launcherMemory})
	spec.Containers = []core.Container{{
		Name: RoleLauncher, Image: of.Image, ImagePullPolicy: of.ImagePullPolicy,
		Args: []string{RoleLauncher, "--job_name=" + j.Name, "--namespace=" + j.Namespace},
		Env:  env, Resources: launcherResources(), SecurityContext: confined,
		TerminationMessagePolicy: core.TerminationMessageFallbackToLogsOnError,
	}}
	spec.InitContainers, spec.Volumes, spec.ResourceClaims, spec.SchedulingGates = nil, nil, nil, nil
	spec.NodeName, spec.Hostname, spec.Subdomain = "", "", ""
	spec.Resources, spec.ActiveDeadlineSeconds = nil, nil
	// a token that the master has from a volume is not here
	spec.AutomountServiceAccountToken = nil
	spec.RestartPolicy = core.RestartPolicyNever
	grace := int64(core.DefaultTerminationGracePeriodSeconds)
	if own := spec.TerminationGracePeriodSeconds; own != nil {
		grace = *own
	}
	spec.TerminationGracePeriodSeconds = new(grace + launcherExtra)
	spec.Affinity = awayFrom(j, spec.Affinity, pod.Master.String())
	return t, nil
}

// launcherMemory is the soft memory limit of a launcher, of the 128 MiB that it may use.
const launcherMemory = "100MiB"

// labelsOfKueue is the prefix of labels by which Kueue manages a pod.
const labelsOfKueue = "kueue.x-k8s.io/"

// launcherResources returns the requests and limits of a launcher, which watches one pod. Any
// request of a CPU would keep a pod that needs a whole one off a node of whole CPUs. It is given as
// 0, not left out: a quota on CPUs refuses pods without one, and a limit alone is a request.
func launcherResources() core.ResourceRequirements {
	list := func(cpu, memory string) core.ResourceList {
		return core.ResourceList{core.ResourceCPU: resource.MustParse(cpu),
			core.ResourceMemory: resource.MustParse(memory)}
	}
	return core.ResourceRequirements{Requests: list("0", "64Mi"), Limits: list("200m", "128Mi")}
}

// mainOf returns the container of a role, nil if there is none.
func mainOf(spec *core.PodSpec, role string) *core.Container {
	i := slices.IndexFunc(spec.Containers, func(c core.Container) bool { return c.Name == role })
	if i < 0 {
		return nil
	}
	return &spec.Containers[i]
}

// awayFrom returns an affinity with a preference added: not on the node of the job's pod of a role.
// So a lost node rarely takes master and launcher, and one of them notices at once.
func awayFrom(j *job.Job, a *core.Affinity, role string) *core.Affinity {
	a = a.DeepCopy()
	if a == nil {
		a = new(core.Affinity)
	}
	if a.PodAntiAffinity == nil {
		a.PodAntiAffinity = new(core.PodAntiAffinity)
	}
	a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(
		a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, core.WeightedPodAffinityTerm{
			Weight: 1,
			PodAffinityTerm: core.PodAffinityTerm{TopologyKey: core.LabelHostname, LabelSelector: &meta.LabelSelector{
				MatchLabels: map[string]string{LabelApp: App, LabelJob: j.Name, LabelRole: role}}},
		})
	return a
}
