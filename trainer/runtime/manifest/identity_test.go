package manifest

import (
	"strings"
	"testing"

	core "k8s.io/api/core/v1"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// A server or worker proves who it is by a token for the master of its Job alone, which the kubelet
// renews; it has no other way into the cluster. Its own container has it, and neither what fetches
// its program nor a sidecar.
func TestToken(t *testing.T) {
	j := parse(t, everything,
		`--cluster_spec_json={"worker_pod_spec":{"containers":[{"name":"side","image":"s"}]},"ps_pod_spec":{"initContainers":[{"name":"first","image":"s"}]}}`)
	const uid = "11111111-2222-3333-4444-555555555555" // of mustPod
	for _, id := range []PodSpec{{ID: ps(1), Incarnation: 3, Authority: "MIIB"},
		{ID: worker(4), Incarnation: 1, Authority: "MIIB"}} {
		p := mustPod(t, j, id)
		var volume string
		for _, v := range p.Spec.Volumes {
			if v.Projected == nil {
				continue
			}
			volume = v.Name
			if n := len(v.Projected.Sources); n != 1 {
				t.Fatalf("%v: %d sources", id.ID, n)
			}
			its := v.Projected.Sources[0].ServiceAccountToken
			if its.Audience != uid || *its.ExpirationSeconds > 3600 {
				t.Errorf("%v: a token for %q, for %d s", id.ID, its.Audience, *its.ExpirationSeconds)
			}
		}
		env := map[string]string{}
		for _, c := range append(append([]core.Container{}, p.Spec.InitContainers...), p.Spec.Containers...) {
			own := c.Name == id.ID.Role.String()
			var path string
			for _, m := range c.VolumeMounts {
				if m.Name != volume {
					continue
				}
				if path = m.MountPath; !own || !m.ReadOnly {
					t.Errorf("%v: container %s has the token: %+v", id.ID, c.Name, m)
				}
			}
			if own && path == "" {
				t.Errorf("%v has no token", id.ID)
			}
			for _, v := range c.Env {
				if env[v.Name] = v.Value; own && v.Name == job.EnvToken && !strings.HasPrefix(v.Value, path+"/") {
					t.Errorf("%v looks for its token at %s, which is at %s", id.ID, v.Value, path)
				}
			}
		}
		if env[job.EnvUID] != uid || env[job.EnvAuthority] != "MIIB" || *p.Spec.AutomountServiceAccountToken {
			t.Errorf("%v: %v, and the token of its ServiceAccount: %t", id.ID, env,
				*p.Spec.AutomountServiceAccountToken)
		}
	}
}

// No pod is given what is in the Secret, the master's among them, which reads it; nor does any
// object tell it.
func TestNoKeyInAnyPod(t *testing.T) {
	for name, j := range map[string]*job.Job{"everything": parse(t, everything),
		"little": parse(t, little), "program": running(t)} {
		s, err := Submit(j)
		if err != nil {
			t.Fatal(err)
		}
		specs := map[string]core.PodSpec{"master": s.Master.Spec,
			"worker": mustPod(t, j, PodSpec{ID: worker(0), Incarnation: 1}).Spec}
		if j.NumPS > 0 {
			specs["ps"] = mustPod(t, j, PodSpec{ID: ps(0), Incarnation: 1}).Spec
		}
		for role, spec := range specs {
			text, err := YAML(&core.Pod{Spec: spec})
			if err != nil {
				t.Fatal(err)
			}
			for _, word := range []string{IdentityName(j.Name), KeyAuthority, "PRIVATE KEY"} {
				if strings.Contains(string(text), word) {
					t.Errorf("%s: the %s has %s:\n%s", name, role, word, text)
				}
			}
		}
		text, err := s.YAML()
		if err != nil || strings.Contains(string(text), "PRIVATE KEY") || strings.Contains(string(text), KeyAuthority) {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
}
