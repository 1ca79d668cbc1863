package manifest

import (
	"testing"

	core "k8s.io/api/core/v1"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

// kubectl chooses the container of the role in every pod: in addition to an init container, a
// sidecar of the job's, and one that admission adds. A job may choose another.
func TestDefaultContainer(t *testing.T) {
	const sidecar = `--cluster_spec_json={"pod_spec":{"containers":[{"name":"a-sidecar","image":"proxy"}]}}`
	const other = `--cluster_spec_json={"pod_spec":{"annotations":{"kubectl.kubernetes.io/default-container":"a-sidecar"},"containers":[{"name":"a-sidecar","image":"proxy"}]}}`
	for name, c := range map[string]struct {
		more []string
		want func(pod.Role) string
	}{
		"brings elasticdl": {nil, pod.Role.String},
		"a sidecar":        {[]string{sidecar}, pod.Role.String},
		"chosen":           {[]string{other}, func(pod.Role) string { return "a-sidecar" }},
	} {
		j := running(t, c.more...)
		s, err := Submit(j)
		if err != nil {
			t.Fatal(err)
		}
		master, w := s.Master, mustPod(t, j, PodSpec{ID: worker(0), Incarnation: 1})
		for _, p := range []struct {
			role        pod.Role
			annotations map[string]string
			containers  []core.Container
		}{{pod.Master, master.Annotations, master.Spec.Containers}, {pod.Worker, w.Annotations, w.Spec.Containers}} {
			if got := p.annotations["kubectl.kubernetes.io/default-container"]; got != c.want(p.role) {
				t.Errorf("%s: kubectl chooses %q in the %v, of %d containers", name, got, p.role, len(p.containers))
			}
		}
	}
	if got := mustPod(t, parse(t, everything),
		PodSpec{ID: ps(0), Incarnation: 1}).Annotations["kubectl.kubernetes.io/default-container"]; got != "ps" {
		t.Errorf("kubectl chooses %q in a server", got)
	}
}
