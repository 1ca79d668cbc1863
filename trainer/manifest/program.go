package manifest

import (
	"slices"

	core "k8s.io/api/core/v1"

	"github.com/elasticdl/elasticdl/trainer/job"
)

// Volumes of workers that run a program, beside the job's own.
const (
	volumeAgent = "elasticdl-agent"
	volumeShm   = "elasticdl-shm"
)

// shm is where processes of a pod share memory. Runtimes give it 64 MiB, and data loaders of PyTorch die of that.
const shm = "/dev/shm"

// runProgram completes the pod of a worker that runs a program: shared memory as large as the container's limit, which it counts against, and, in an
// image that has no elasticdl, the binary, which a container before it brings. It goes by what the cluster spec has made of the worker: what holds for that holds for both.
func runProgram(j *job.Job, t *core.PodTemplateSpec, name string) {
	c := &t.Spec.Containers[slices.IndexFunc(t.Spec.Containers, func(c core.Container) bool { return c.Name == name })]
	mounted := func(path string) bool {
		return slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return m.MountPath == path })
	}
	add := func(volume, path string, readOnly bool, of core.EmptyDirVolumeSource) {
		t.Spec.Volumes = append(t.Spec.Volumes, core.Volume{Name: volume, VolumeSource: core.VolumeSource{EmptyDir: &of}})
		c.VolumeMounts = append(c.VolumeMounts, core.VolumeMount{Name: volume, MountPath: path, ReadOnly: readOnly})
	}
	if !mounted(shm) { // by the job itself
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
		Name: "install-elasticdl", Image: j.Program.AgentImage, ImagePullPolicy: c.ImagePullPolicy, Args: []string{"install", job.AgentDir},
		Resources:       withoutDevices(c.Resources), // as many as the worker has: a pod asks for the larger of the two
		VolumeMounts:    []core.VolumeMount{{Name: volumeAgent, MountPath: job.AgentDir}},
		SecurityContext: c.SecurityContext.DeepCopy(), TerminationMessagePolicy: c.TerminationMessagePolicy,
	}
	t.Spec.InitContainers = slices.Insert(t.Spec.InitContainers, 0, bring)
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
