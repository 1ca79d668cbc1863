package manifest

import (
	"slices"
	"testing"

	core "k8s.io/api/core/v1"

	"github.com/elasticdl/elasticdl/test/flags"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// asks holds the request of a pod, as Kubernetes computes it: the larger of all its containers
// together and of each init container.
func asks(p *core.Pod) core.ResourceList {
	sum := make(core.ResourceList)
	for _, c := range p.Spec.Containers {
		for name, q := range c.Resources.Requests {
			total := sum[name]
			total.Add(q)
			sum[name] = total
		}
	}
	for _, c := range p.Spec.InitContainers {
		for name, q := range c.Resources.Requests {
			if q.Cmp(sum[name]) > 0 {
				sum[name] = q
			}
		}
	}
	return sum
}

// A worker in an image of the user's takes elasticdl along, under what holds for the worker itself,
// and asks for no more than without.
func TestProgramTakesElasticDLAlong(t *testing.T) {
	const strict = `--cluster_spec_json={"worker_pod_spec":{"securityContext":{"runAsNonRoot":true},"containers":[{"name":"worker","resources":{"requests":{"memory":"1Gi"}},"securityContext":{"runAsUser":1000}}]}}`
	for _, more := range [][]string{nil, {"--worker_resource_limit=cpu=8,memory=16Gi"}, {strict}} {
		p := mustPod(t, running(t, more...), PodSpec{ID: worker(0), Incarnation: 1})
		if len(p.Spec.InitContainers) != 1 {
			t.Fatalf("%v: %d init containers", more, len(p.Spec.InitContainers))
		}
		bring, c := p.Spec.InitContainers[0], p.Spec.Containers[0]
		alone := p.DeepCopy()
		alone.Spec.InitContainers = nil
		for name, q := range asks(p) {
			if was := asks(alone)[name]; was.Cmp(q) != 0 {
				t.Errorf("%v: the pod asks for %v of %s, and %v without its init container", more, &q, name, &was)
			}
		}
		if _, gpu := bring.Resources.Limits["nvidia.com/gpu"]; gpu ||
			bring.Resources.Limits.Memory().Cmp(*c.Resources.Limits.Memory()) != 0 {
			t.Errorf("%v: limits of what brings elasticdl: %v", more, bring.Resources.Limits)
		}
		if *bring.SecurityContext.AllowPrivilegeEscalation ||
			!slices.Equal(bring.SecurityContext.Capabilities.Drop, c.SecurityContext.Capabilities.Drop) ||
			(bring.SecurityContext.RunAsUser == nil) != (c.SecurityContext.RunAsUser == nil) {
			t.Errorf("%v: %+v, and the worker %+v", more, bring.SecurityContext, c.SecurityContext)
		}
		if c.Image != "pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime" ||
			bring.Image != "registry.example/elasticdl:v1" || c.Command[0] != bring.Args[1]+
			"/elasticdl" || c.Args[0] != "worker" {
			t.Errorf("%s brings with %q, %s runs %q %q", bring.Image, bring.Args, c.Image, c.Command, c.Args)
		}
	}
}

// Without an image for it elasticdl is the image's own; shared memory is there all the same, unless
// the job mounts some itself.
func TestProgramInItsOwnImage(t *testing.T) {
	c, err := flags.Job(job.Run, "--job_name=p", "--image_name=registry.example/mine:1", "--", "main.py")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Submit(c.Job)
	if err != nil {
		t.Fatal(err)
	}
	p := mustPod(t, c.Job, PodSpec{ID: worker(0), Incarnation: 1})
	if w := p.Spec.Containers[0]; len(p.Spec.InitContainers) > 0 || len(w.Command) > 0 ||
		len(w.VolumeMounts) != 2 || w.VolumeMounts[1].MountPath != shm {
		t.Errorf("%+v", p.Spec)
	}
	// its /tmp
	if got := s.Master.Spec; got.Containers[0].Image != "registry.example/mine:1" ||
		len(got.Volumes) != 1 || got.Volumes[0].EmptyDir == nil {
		t.Errorf("the master: %+v", got)
	}
	own :=
		`--cluster_spec_json={"worker_pod_spec":{"volumes":[{"name":"s","emptyDir":{"medium":"Memory","sizeLimit":"1Gi"}}],"containers":[{"name":"worker","volumeMounts":[{"name":"s","mountPath":"/dev/shm"}]}]}}`
	mounts := mustPod(t, running(t, own), PodSpec{ID: worker(0), Incarnation: 1}).Spec.Containers[0].VolumeMounts
	if n := len(slices.DeleteFunc(slices.Clone(mounts), func(m core.VolumeMount) bool {
		return m.MountPath != shm
	})); n != 1 {
		t.Errorf("%d mounts at %s: %v", n, shm, mounts)
	}
}
