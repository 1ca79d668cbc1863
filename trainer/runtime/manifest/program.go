package manifest

import (
	"slices"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

// Volumes of workers that run a program, in addition to the job's own.
const (
	volumeAgent = "elasticdl-agent"
	volumeShm   = "elasticdl-shm"
)

// shm is the file system through which processes of a pod share memory. Container runtimes limit it
// to 64 MiB, with which PyTorch's data loaders crash.
const shm = "/dev/shm"

// runsProgram reports whether the pods of a role run a program of the user.
func runsProgram(j *job.Job, r pod.Role) bool { return j.Runs() && r == pod.Worker }

// runProgram completes the pod of a worker that runs a program. It adds shared memory, which counts
// against the container's limit, and, if the image has no elasticdl, an init container that adds
// the binary. It is called after the cluster spec was applied, so that the init container gets the
// worker's settings.
func runProgram(j *job.Job, t *core.PodTemplateSpec, name string) {
	c := &t.Spec.Containers[slices.IndexFunc(t.Spec.Containers, func(c core.Container) bool { return c.Name == name })]
	add := func(volume, path string, readOnly bool, of core.EmptyDirVolumeSource) {
		t.Spec.Volumes = append(t.Spec.Volumes,
			core.Volume{Name: volume, VolumeSource: core.VolumeSource{EmptyDir: &of}})
		c.VolumeMounts = append(c.VolumeMounts, core.VolumeMount{Name: volume, MountPath: path, ReadOnly: readOnly})
	}
	if !mounted(c, shm) { // by the job itself
		add(volumeShm, shm, false, core.EmptyDirVolumeSource{Medium: core.StorageMediumMemory})
	}
	if j.Program.AgentImage == "" {
		return
	}
	add(volumeAgent, job.AgentDir, true, core.EmptyDirVolumeSource{})
	if len(c.Command) == 0 {
		c.Command = []string{job.AgentDir + "/elasticdl"}
	}
	bring := core.Container{
		Name: "install-elasticdl", Image: j.Program.AgentImage, ImagePullPolicy: c.ImagePullPolicy,
		Args: []string{"install", job.AgentDir},
		// as many as the worker has: a pod asks for the larger of the two
		Resources:       withoutDevices(c.Resources),
		VolumeMounts:    []core.VolumeMount{{Name: volumeAgent, MountPath: job.AgentDir}},
		SecurityContext: sealed(c.SecurityContext), TerminationMessagePolicy: c.TerminationMessagePolicy,
	}
	t.Spec.InitContainers = slices.Insert(t.Spec.InitContainers, 0, bring)
}

// LikeWorker makes a pod of one container run on the nodes that the workers of a job may use, as
// their user, with the same credentials for images. Such a pod copies data for the workers, and
// writes nowhere else. It may be the first to mount their claim, and then the volume is created in
// the zone of its node.
func LikeWorker(j *job.Job, spec *core.PodSpec) error {
	p, err := Pod(j, PodSpec{ID: pod.ID{Role: pod.Worker}, Incarnation: 1}, meta.OwnerReference{})
	if err != nil {
		return err
	}
	spec.NodeSelector, spec.Tolerations, spec.SecurityContext, spec.ImagePullSecrets =
		p.Spec.NodeSelector, p.Spec.Tolerations, p.Spec.SecurityContext, p.Spec.ImagePullSecrets
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		spec.Affinity = &core.Affinity{NodeAffinity: a.NodeAffinity}
	}
	spec.ServiceAccountName = j.ServiceAccount // the job's own is made with it
	c := p.Spec.Containers[slices.IndexFunc(p.Spec.Containers, func(c core.Container) bool {
		return c.Name == pod.Worker.String()
	})]
	spec.Containers[0].SecurityContext = sealed(c.SecurityContext)
	return nil
}

// sealed returns a container's security context with a read-only root file system.
func sealed(c *core.SecurityContext) *core.SecurityContext {
	if c = c.DeepCopy(); c == nil { // as --cluster_spec_json wants it
		c = new(core.SecurityContext)
	}
	c.ReadOnlyRootFilesystem = new(true)
	return c
}

func withoutDevices(all core.ResourceRequirements) core.ResourceRequirements {
	pick := func(list core.ResourceList) core.ResourceList {
		picked := make(core.ResourceList)
		for name, q := range list {
			if !isDevice(name) {
				picked[name] = q
			}
		}
		return picked
	}
	return core.ResourceRequirements{Requests: pick(all.Requests), Limits: pick(all.Limits)}
}
