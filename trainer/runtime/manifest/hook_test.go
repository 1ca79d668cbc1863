package manifest

import (
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

func TestHooksRefused(t *testing.T) {
	for spec, want := range map[string]string{
		`{"pods":{}}`: `unknown field "pods"`,
		`{"worker_pod_spec":{"containers":[{"name":"worker","imagee":"x"}]}}`: `unknown field ` +
			`"worker_pod_spec.containers[0].imagee"`,
		`{"service_spec":{"clusterip":"None"}}`:                `unknown field "service_spec.clusterip"`,
		`{"pod_spec":{"env":[{"name":"A","val":"x"}]}}`:        `unknown field "pod_spec.env[0].val"`,
		`{"pod_spec":{"tolerations":[{"operater":"Exists"}]}}`: `unknown field "pod_spec.tolerations[0].operater"`,
		`{"ps_pod_spec":{"spec":{}}}`:                          `unknown field "ps_pod_spec.spec"`,
		`{"pod_spec":{"$patch":"delete"}}`:                     `unknown field "pod_spec.$patch"`,
		`{"pod_spec":{"priority":"high"}}`: "pod_spec.priority: " +
			"expected a number, found a JSON string",
		`{"pod_spec":[]}`: "pod_spec: expected " +
			"an object, found a JSON array",
		`{"pod_spec":{"hostIPC":true,"hostIPC":false}}`: `duplicate field "pod_spec.hostIPC"`,
		`{"pod_spec":{"labels":{"app":"x"}}}`: "pod_spec.labels.app: elasticdl " +
			"selects the job's objects by this label",
		`{"service_spec":{"labels":{"elasticdl-job-name":"x"}}}`: "service_spec.labels.elasticdl-job-name: " +
			"elasticdl selects the job's objects by this label",
		`{"job_spec":{"labels":{"app":"x"}}}`: "job_spec.labels.app: elasticdl " +
			"selects the job's objects by this label",
		`{"worker_pod_spec":{"labels":{"elasticdl-share":"core"}}}`: "worker_pod_spec.labels.elasticdl-share: " +
			"--queue sets this label",
		`{"job_spec":{"backoffLimit":3}}`:                `unknown field "job_spec.backoffLimit"`,
		`{"master_pod_spec":{"restartPolicy":"Always"}}`: "master_pod_spec.restartPolicy: expected Never",
		`{"worker_pod_spec":{"containers":null}}`:        "worker_pod_spec.containers: the container worker is missing",
	} {
		_, err := Submit(parse(t, little, "--cluster_spec_json="+spec))
		if err == nil || !strings.HasPrefix(err.Error(), "--cluster_spec_json: ") ||
			!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", spec, err, want)
		}
	}
}

func TestClusterSpecFile(t *testing.T) {
	got, err := ClusterSpec([]byte("# comment\nworker_pod_spec:\n  nodeSelector: {a: b}\n  env:\n  " +
		"- {name: A, value: \"1\"}\n"))
	want := `{"worker_pod_spec":{"env":[{"name":"A","value":"1"}],"nodeSelector":{"a":"b"}}}`
	if err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
	if got, err = ClusterSpec([]byte(`{"service_spec": {"type": "NodePort"}}`)); err != nil ||
		got != `{"service_spec":{"type":"NodePort"}}` {
		t.Errorf("%s, %v", got, err)
	}
	for text, want := range map[string]string{
		"class Cluster:\n  def with_pod(self, pod):\n    return pod\ncluster = Cluster()\n": "Python is not run",
		"":                               "expected YAML or JSON",
		"[1]":                            "expected YAML or JSON",
		"pod_spec: {a: 1, b: 2}":         "unknown field \"pod_spec.a\"\nunknown field \"pod_spec.b\"",
		"pod_spec: {}\npod_spec: {}\n":   "expected YAML or JSON",
		"pod_spec: {hostNetwork: maybe}": "pod_spec.hostNetwork: expected true or false, found a JSON string",
	} {
		if _, err := ClusterSpec([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// Hooks add to what is there, in the order all, role; what they name they change.
func TestHooksMerge(t *testing.T) {
	j := parse(t, little, "--envs=A=1,B=1,C=1", "--node_selector=x=1", `--cluster_spec_json={
		"pod_spec":{"labels":{"l":"all","m":"all"},"env":[{"name":"A","value":"2"},{"name":"B","value":"2"}],"nodeSelector":{"y":"2"},"priorityClassName":"p","terminationGracePeriodSeconds":5},
		"worker_pod_spec":{"labels":{"l":"mine"},"env":[{"name":"A","value":"3"},{"name":"D","value":"3"}],"securityContext":{"fsGroup":7},
			"containers":[{"name":"side","image":"s"},{"name":"worker","command":["/bin/sh"],"volumeMounts":[{"name":"shm","mountPath":"/dev/shm"}]}],
			"volumes":[{"name":"shm","emptyDir":{}}],"terminationGracePeriodSeconds":null}}`)
	p := mustPod(t, j, PodSpec{ID: worker(0)})
	if p.Labels["l"] != "mine" || p.Labels["m"] != "all" || p.Labels[LabelRole] != "worker" {
		t.Errorf("labels %v", p.Labels)
	}
	if n := p.Spec.NodeSelector; n["x"] != "1" || n["y"] != "2" || p.Spec.PriorityClassName != "p" ||
		p.Spec.TerminationGracePeriodSeconds != nil {
		t.Errorf("%+v", p.Spec)
	}
	if s := p.Spec.SecurityContext; *s.FSGroup != 7 || s.SeccompProfile == nil ||
		len(p.Spec.Volumes) != 4 || len(p.Spec.Containers) != 2 {
		t.Errorf("%+v", p.Spec)
	}
	for _, c := range p.Spec.Containers {
		envs := make(map[string]string)
		for _, v := range c.Env {
			envs[v.Name] += v.Value
		}
		if envs["A"] != "3" || envs["B"] != "2" || envs["D"] != "3" {
			t.Errorf("%s has %v", c.Name, envs)
		}
		if c.Name == "worker" && (envs["C"] != "1" || c.Image != "elasticdl:mnist_allreduce" ||
			len(c.Args) == 0 || len(c.VolumeMounts) != 4 || c.Command[0] != "/bin/sh") {
			t.Errorf("%+v", c)
		}
	}
	s, err := Submit(j)
	if err != nil {
		t.Fatal(err)
	}
	if spec := s.Master.Spec; *spec.TerminationGracePeriodSeconds != 5 ||
		spec.SecurityContext.FSGroup != nil || len(spec.Containers) != 1 {
		t.Errorf("the master has %+v", spec)
	}
}

// Whatever a hook says, a pod is made that is the job's, or an error.
func FuzzHooks(f *testing.F) {
	for _, s := range []string{
		`{"pod_spec":{"env":[{"name":"A","value":"2"}],"containers":[{"name":"worker"}]}}`,
		`{"worker_pod_spec":{"tolerations":[{"key":"k"}],"volumes":null}}`,
		`{"service_spec":{"ports":[{"port":50001,"nodePort":3}],"selector":null}}`,
		"pod_spec:\n  hostNetwork: true\n", `{"master_pod_spec":null}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		object, err := ClusterSpec([]byte(text))
		if err != nil {
			return
		}
		again, err := ClusterSpec([]byte(object))
		if err != nil || again != object {
			t.Fatalf("%q was written as %q, and then as %q: %v", text, object, again, err)
		}
		j := job.Default()
		j.Name, j.Image, j.ModelDef, j.TrainingData, j.ClusterSpecJSON = "j", "i", "m", "d", object
		s, err := Submit(j)
		if err != nil {
			return
		}
		p, err := Pod(j, PodSpec{ID: worker(3), Incarnation: 2}, meta.OwnerReference{})
		if err != nil {
			t.Fatalf("%s: submitted, and then: %v", object, err)
		}
		for _, labels := range []map[string]string{p.Labels, s.Services[1].Labels, s.Master.Labels} {
			if name, _, _, ok := ParseLabels(labels); !ok || name != "j" {
				t.Errorf("%s: labels %v", object, labels)
			}
		}
		launcher := s.Job.Spec.Template
		for role, spec := range map[string]core.PodSpec{"master": s.Master.Spec, "launcher": launcher.Spec} {
			if spec.RestartPolicy != core.RestartPolicyNever {
				t.Errorf("%s: the %s restarts %s", object, role, spec.RestartPolicy)
			}
		}
		if launcher.Labels[LabelRole] != RoleLauncher || launcher.Labels[LabelJob] != "j" {
			t.Errorf("%s: labels of the launcher %v", object, launcher.Labels)
		}
	})
}
