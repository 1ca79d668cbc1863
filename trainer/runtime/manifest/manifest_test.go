package manifest

import (
	"bytes"
	"encoding/json"
	"flag"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/elasticdl/elasticdl/test/flags"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

var update = flag.Bool("update", false, "write the golden files again")

// everything has each flag that a manifest shows; little is the tutorial's second job.
const (
	everything = `--image_name=registry.example/elasticdl:mnist --worker_image=registry.example/elasticdl:gpu
		--namespace=research --model_def=mnist.mnist_functional_api.custom_model
		--training_data=/data/mnist/train --validation_data=/data/mnist/test
		--job_name=test-mnist --num_ps_pods=2 --num_workers=4 --evaluation_steps=200 --output=/data/model
		--master_resource_request=cpu=0.2,memory=1024Mi --master_resource_limit=cpu=1,memory=2048Mi --master_pod_priority=high
		--ps_resource_request=cpu=2,memory=2G,disk=1Gi --ps_pod_priority=high
		--worker_resource_request=cpu=250m,memory=32Mi,gpu=1 --worker_resource_limit=cpu=2,memory=64Mi,gpu=1,vendor.example/nic=2
		--worker_pod_priority=0.5 --max_memory=1Gi --image_pull_policy=IfNotPresent --restart_policy=OnFailure
		--volume=claim_name=fileserver-claim,mount_path=/data;claim_name=fileserver-claim,mount_path=/old,sub_path=2025;host_path=/mnt/ssd,type=DirectoryOrCreate,mount_path=/scratch
		--envs=A=1,URL=http://h?q=1,2 --env_secret=HF_TOKEN=hub/token;WANDB_API_KEY=wandb/key --image_pull_secret=registry --populate_env_names=AWS_.* --log_level=DEBUG
		--tolerations=key=team,value=vision,effect=NoSchedule;key=node.kubernetes.io/unreachable,operator=Exists,effect=NoExecute,seconds=60
		--node_selector=disktype=ssd,example.com/zone=a --ttl=1h --deadline=86400 --suspend
		--cluster_spec_json={"pod_spec":{"labels":{"team":"vision"},"annotations":{"note":"all"},"env":[{"name":"B","value":"2"}],"imagePullSecrets":[{"name":"pull"}]},"master_pod_spec":{"serviceAccountName":"strong"},"worker_pod_spec":{"env":[{"name":"A","value":"3"}],"tolerations":[{"key":"spot","operator":"Exists"}],"affinity":{"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"podAffinityTerm":{"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchLabels":{"team":"vision"}}}}]}},"containers":[{"name":"worker","resources":{"limits":{"cpu":"3"}}}],"volumes":[{"name":"shm","emptyDir":{"medium":"Memory"}}]},"service_spec":{"clusterIP":"None","annotations":{"note":"headless"}},"job_spec":{"labels":{"kueue.x-k8s.io/queue-name":"research"}}}`
	little = `--image_name=elasticdl:mnist_allreduce --model_zoo=model_zoo
		--model_def=mnist.mnist_functional_api.custom_model
		--training_data=/data/mnist/train --num_workers=2 --job_name=test-mnist-allreduce --image_pull_policy=Never
		--volume=host_path=/data,mount_path=/data --distribution_strategy=AllreduceStrategy`
)

// anyProgram runs a script in an image that has no elasticdl.
const anyProgram = `--job_name=imagenet --image_name=pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime --agent_image_name=registry.example/elasticdl:v1
	--num_workers=2 --min_workers=1 --max_workers=3 --gpus=1 --worker_resource_request=cpu=4,memory=16Gi --volume=claim_name=efs-claim,mount_path=/data
	-- s3://bucket/main.py --input_path /data/tiny-imagenet-200/train --epochs 10`

func parse(t testing.TB, command string, more ...string) *job.Job {
	t.Helper()
	return parsed(t, job.Train, append(strings.Fields(command), more...))
}

// running is the job of a program, with flags before the others.
func running(t testing.TB, more ...string) *job.Job {
	t.Helper()
	return parsed(t, job.Run, append(more, strings.Fields(anyProgram)...))
}

func parsed(t testing.TB, of job.Type, args []string) *job.Job {
	t.Helper()
	c, err := flags.Job(of, args...)
	if err != nil {
		t.Fatal(err)
	}
	return c.Job
}

func worker(n int) pod.ID { return pod.ID{Role: pod.Worker, Index: n} }
func ps(n int) pod.ID     { return pod.ID{Role: pod.PS, Index: n} }

func mustPod(t testing.TB, j *job.Job, p PodSpec) *core.Pod {
	t.Helper()
	o, err := Pod(j, p, Owner(MasterName(j.Name), "11111111-2222-3333-4444-555555555555"))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestGolden(t *testing.T) {
	for name, j := range map[string]*job.Job{"everything": parse(t, everything),
		"little": parse(t, little), "program": running(t)} {
		s, err := Submit(j)
		if err != nil {
			t.Fatal(err)
		}
		text, err := s.YAML()
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name+".yaml", text)
		var pods []runtime.Object
		if j.NumPS > 0 {
			pods = append(pods, mustPod(t, j, PodSpec{ID: ps(1), Incarnation: 2, Slot: 1, OOMs: 1, Authority: "MIIB"}))
		}
		pods = append(pods, s.Master, mustPod(t, j, PodSpec{ID: worker(5), Incarnation: 1, Slot: 1, OOMs: 2,
			Environ: []string{"AWS_REGION=us-west-2", "PATH=/bin"}, Authority: "MIIB"}))
		if text, err = YAML(pods...); err != nil {
			t.Fatal(err)
		}
		golden(t, name+"-pods.yaml", text)
	}
	text, err := YAML(objectsOf(Permissions("research", "elasticdl"))...)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "permissions.yaml", text)
}

func objectsOf(a, b, c runtime.Object) []runtime.Object { return []runtime.Object{a, b, c} }

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not as before (go test -update writes it again):\n%s", name, got)
	}
}

// The master reads the job from the spec as it was.
func TestSpec(t *testing.T) {
	j := parse(t, everything)
	s, err := Submit(j)
	if err != nil {
		t.Fatal(err)
	}
	var got job.Job
	if err := json.Unmarshal([]byte(s.Spec.Data[KeyJob]), &got); err != nil {
		t.Fatal(err)
	}
	got.Suspend = true // which the Job says
	if !reflect.DeepEqual(&got, j) || s.Spec.Data[KeyNumWorkers] != "4" || len(s.Spec.Data) != 2 {
		t.Errorf("got %+v\nof %+v", got, s.Spec.Data)
	}
	if len(s.State.Data) != 0 {
		t.Errorf("the state has %v", s.State.Data)
	}
	if len(s.Identity.Data)+len(s.Identity.StringData) != 0 {
		t.Errorf("the Secret has %v, %v: it would be in clear in every file and state", s.Identity.Data,
			s.Identity.StringData)
	}
}

func TestOwners(t *testing.T) {
	s, err := Submit(parse(t, everything))
	if err != nil {
		t.Fatal(err)
	}
	// Job, 2 ConfigMaps, a Secret, 3 of permissions, 3 Services, a PodDisruptionBudget, a
	// NetworkPolicy
	if n := len(s.Objects()); n != 12 {
		t.Errorf("%d objects, want 12", n)
	}
	s.OwnedBy("u")
	want := []meta.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "elasticdl-test-mnist-master", UID: "u"}}
	for i, o := range s.Objects() {
		got := o.(meta.Object).GetOwnerReferences()
		if (i == 0) != (len(got) == 0) || i > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("object %d is owned by %+v", i, got)
		}
	}
}

func TestServiceAccountOfTheUser(t *testing.T) {
	s, err := Submit(parse(t, little, "--service_account=elasticdl"))
	if err != nil {
		t.Fatal(err)
	}
	if s.ServiceAccount != nil || s.Role != nil || s.RoleBinding != nil || len(s.Objects()) != 7 {
		t.Errorf("%d objects, want 7: %+v", len(s.Objects()), s)
	}
	if got := s.Master.Spec.ServiceAccountName; got != "elasticdl" {
		t.Errorf("the master runs as %s", got)
	}
}

// All pods run under the job's account, which has an identity of the cloud; only the master has a
// token of it.
func TestAccounts(t *testing.T) {
	for _, command := range []string{little, little + " --service_account=elasticdl"} {
		j := parse(t, command)
		s, err := Submit(j)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range []core.PodSpec{s.Master.Spec,
			mustPod(t, j, PodSpec{ID: worker(0)}).Spec, mustPod(t, j, PodSpec{ID: ps(0)}).Spec} {
			token := spec.AutomountServiceAccountToken == nil
			if spec.ServiceAccountName != AccountName(j) || token != (spec.Containers[0].Name == "master") {
				t.Errorf("%s runs as %q, with a token: %v", spec.Containers[0].Name, spec.ServiceAccountName, token)
			}
		}
		if s.ServiceAccount != nil && s.ServiceAccount.Name != AccountName(j) {
			t.Errorf("there is an account %s, and pods run as %s", s.ServiceAccount.Name, AccountName(j))
		}
	}
}

// Law 6: what differs between a job and one that is changed.
func TestWhatAChangeChanges(t *testing.T) {
	differ := func(change func(*job.Job)) string {
		j := parse(t, everything)
		before, err := Submit(j)
		if err != nil {
			t.Fatal(err)
		}
		change(j)
		after, err := Submit(j)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, part := range []struct {
			name     string
			old, new any
		}{
			{"data", &before.Spec.Data, &after.Spec.Data},
			{"suspend", &before.Job.Spec.Suspend, &after.Job.Spec.Suspend},
			{"ttl", &before.Job.Spec.TTLSecondsAfterFinished, &after.Job.Spec.TTLSecondsAfterFinished},
			{"deadline", &before.Job.Spec.ActiveDeadlineSeconds, &after.Job.Spec.ActiveDeadlineSeconds},
			{"template", &before.Job.Spec.Template, &after.Job.Spec.Template},
		} {
			if !reflect.DeepEqual(part.old, part.new) {
				found = append(found, part.name)
			}
			old := reflect.ValueOf(part.old).Elem()
			old.Set(reflect.ValueOf(part.new).Elem())
		}
		if !reflect.DeepEqual(before, after) {
			found = append(found, "more")
		}
		return strings.Join(found, " ")
	}
	for _, test := range []struct {
		want   string
		change func(*job.Job)
	}{
		{"", func(*job.Job) {}},
		{"data", func(j *job.Job) { j.NumWorkers = 8 }},
		{"suspend", func(j *job.Job) { j.Suspend = false }},
		{"data ttl", func(j *job.Job) { j.TTL = nil }},
		{"data deadline", func(j *job.Job) { j.Deadline.Duration *= 2 }},
		{"data template", func(j *job.Job) { j.NumEpochs = 2 }},
		{"data template", func(j *job.Job) { j.Worker.Image = "other" }},
		{"data template", func(j *job.Job) { j.MaxWorkers = 9 }},
		{"data template more", func(j *job.Job) { j.NumPS = 3 }}, // and a Service
	} {
		if got := differ(test.change); got != test.want {
			t.Errorf("%q differs, want %q", got, test.want)
		}
	}
}

func TestMemoryGrows(t *testing.T) {
	for _, test := range []struct {
		request, limit, most string
		ooms                 int
		want                 string // request and limit
	}{
		{"memory=1Gi", "", "", 3, "1Gi 1Gi"},
		{"memory=1Gi", "", "8Gi", 0, "1Gi 1Gi"},
		{"memory=1Gi", "", "8Gi", 1, "2Gi 2Gi"},
		{"memory=1Gi", "memory=3Gi", "8Gi", 1, "2Gi 6Gi"},
		{"memory=1Gi", "memory=3Gi", "8Gi", 2, "4Gi 8Gi"},
		{"memory=1Gi", "memory=3Gi", "8Gi", 3, "8Gi 8Gi"},
		{"memory=1Gi", "memory=3Gi", "8Gi", 99, "8Gi 8Gi"},
		{"memory=1Gi", "memory=16Gi", "8Gi", 2, "4Gi 16Gi"},
		{"memory=1G", "", "4G", 1, "2G 2G"},
		{"memory=1G", "", "7Ei", 99, "7Ei 7Ei"},
		{"memory=1Gi", "cpu=4", "8Gi", 1, "2Gi 0"},
	} {
		request, err := job.ParseResources(test.request)
		if err != nil {
			t.Fatal(err)
		}
		of := job.Pod{Request: request}
		if test.limit != "" {
			if of.Limit, err = job.ParseResources(test.limit); err != nil {
				t.Fatal(err)
			}
		}
		r, err := requirements(of, test.ooms, test.most)
		if got := r.Requests.Memory().String() + " " + r.Limits.Memory().String(); err != nil || got != test.want {
			t.Errorf("%+v: %s, %v", test, got, err)
		}
	}
}

// Kubernetes refuses a device that is asked for and not limited alike.
func TestDevices(t *testing.T) {
	for _, of := range []job.Pod{
		{Request: job.Resources{"nvidia.com/gpu": "2"}},
		{Limit: job.Resources{"nvidia.com/gpu": "2"}},
		{Request: job.Resources{"nvidia.com/gpu": "2"}, Limit: job.Resources{"cpu": "1"}},
		{Request: job.Resources{"cpu": "1"}, Limit: job.Resources{"nvidia.com/gpu": "2"}},
	} {
		r, err := requirements(of, 0, "")
		request, limit := r.Requests["nvidia.com/gpu"], r.Limits["nvidia.com/gpu"]
		if err != nil || request.String() != "2" || limit.String() != "2" {
			t.Errorf("%+v: %+v, %v", of, r, err)
		}
	}
}

func TestTolerations(t *testing.T) {
	j := parse(t, little, "--worker_resource_request=gpu=1,amd.com/gpu=1",
		"--tolerations=operator=Exists;key=amd.com/gpu;key=node.kubernetes.io/not-ready,effect=NoExecute,operator=Exists")
	var got []string
	for _, tol := range mustPod(t, j, PodSpec{ID: worker(0)}).Spec.Tolerations {
		text := tol.Key + ":" + string(tol.Effect)
		if tol.TolerationSeconds != nil {
			text += ":5"
		}
		got = append(got, text)
	}
	// The job's value of a key stands; the rest is added.
	want := []string{"node.kubernetes.io/unreachable:NoExecute:5", ":", "amd.com/gpu:",
		"node.kubernetes.io/not-ready:NoExecute", "nvidia.com/gpu:NoSchedule"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestInherited(t *testing.T) {
	environ := []string{"AWS_REGION=us=1", "AWS_KEY=a$(B)", "AWS_OWN=x", "XAWS_A=1", "POD_IP=1", "HOSTNAME=h", "EMPTY="}
	for pattern, want := range map[string]string{
		"": "", "AWS_.*": "AWS_KEY=a$$(B),AWS_REGION=us=1", "AWS": "", "EMPTY|AWS_R.*": "AWS_REGION=us=1,EMPTY=",
		".*": "AWS_KEY=a$$(B),AWS_REGION=us=1,EMPTY=,XAWS_A=1",
	} {
		j := &job.Job{PopulateEnvNames: pattern, Envs: map[string]string{"AWS_OWN": "mine"}}
		vars, err := inherited(j, environ)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, v := range vars {
			got = append(got, v.Name+"="+v.Value)
		}
		if strings.Join(got, ",") != want {
			t.Errorf("%q takes over %q, want %s", pattern, got, want)
		}
	}
}

// Containers of any user get no more rights than they begin with; with --run_as_user the pods of
// all roles, and all of their containers, meet the restricted standard of Kubernetes.
func TestRestricted(t *testing.T) {
	for _, user := range []int64{0, 1000} {
		flag := "--run_as_user=" + strconv.FormatInt(user, 10)
		for _, j := range []*job.Job{parse(t, little, flag),
			parse(t, little, flag, "--distribution_strategy=ParameterServerStrategy",
				"--num_ps_pods=1"), running(t, flag)} {
			s, err := Submit(j)
			if err != nil {
				t.Fatal(err)
			}
			specs := []core.PodSpec{s.Master.Spec,
				mustPod(t, j, PodSpec{ID: worker(0), Incarnation: 1}).Spec}
			if j.NumPS > 0 {
				specs = append(specs, mustPod(t, j, PodSpec{ID: ps(0), Incarnation: 1}).Spec)
			}
			for _, spec := range specs {
				of := spec.SecurityContext
				if of.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault ||
					(of.RunAsNonRoot != nil) != (user > 0) ||
					user > 0 && (!*of.RunAsNonRoot || *of.RunAsUser != user || *of.RunAsGroup != user ||
						*of.FSGroup != user) {
					t.Errorf("user %d, %s: %+v", user, spec.Containers[0].Name, of)
				}
				for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
					if k := c.SecurityContext; *k.AllowPrivilegeEscalation ||
						!slices.Equal(k.Capabilities.Drop, []core.Capability{"ALL"}) ||
						k.RunAsUser != nil || k.Privileged != nil {
						t.Errorf("%s: %+v", c.Name, k)
					}
				}
				home := slices.ContainsFunc(spec.Containers[0].Env, func(v core.EnvVar) bool {
					return v.Name == "HOME" && v.Value == "/tmp"
				})
				if home != (user > 0) {
					t.Errorf("user %d, %s: HOME is set: %t", user, spec.Containers[0].Name, home)
				}
			}
		}
	}
}

// No image of a role of ours can be written to, unless the job reports it, or has its model written
// there. It has a /tmp, which is the job's own if it mounts one. A user's program writes where its
// image lets it. The container that brings the binary does not.
func TestRootsAreReadOnly(t *testing.T) {
	const own, undo = "--volume=claim_name=c,mount_path=/tmp/",
		`--cluster_spec_json={"worker_pod_spec":{"containers":[{"name":"worker","securityContext":{"readOnlyRootFilesystem":false}}]}}`
	specs := func(j *job.Job) map[string]core.PodSpec {
		s, err := Submit(j)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]core.PodSpec{"master": s.Master.Spec,
			"worker": mustPod(t, j, PodSpec{ID: worker(0), Incarnation: 1}).Spec}
		if j.NumPS > 0 {
			all["ps"] = mustPod(t, j, PodSpec{ID: ps(0), Incarnation: 1}).Spec
		}
		return all
	}
	servers := []string{"--distribution_strategy=ParameterServerStrategy", "--num_ps_pods=1"}
	for name, tt := range map[string]struct {
		job *job.Job
		// containers that may write to their images, by regexp
		writers string
		// kind of volume
		tmp string
	}{
		"train":        {parse(t, little, servers...), "", "empty"},
		"its own /tmp": {parse(t, little, append(servers, own)...), "", "claim"},
		"in the pod":   {parse(t, little, "--output=/model"), "master|worker", "empty"},
		"changed":      {parse(t, little, undo), "worker", "empty"},
		"run":          {running(t, "--agent_image_name=a:1"), "worker", "empty"},
	} {
		for role, spec := range specs(tt.job) {
			for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
				if sealed, may := c.SecurityContext.ReadOnlyRootFilesystem,
					regexp.MustCompile("^("+tt.writers+")$").MatchString(c.Name); (sealed == nil || !*sealed) != may {
					t.Errorf("%s: container %s of the %s may write to its image: %t", name, c.Name, role, !may)
				}
			}
			at := slices.IndexFunc(spec.Containers[0].VolumeMounts, func(m core.VolumeMount) bool {
				return strings.TrimSuffix(m.MountPath, "/") == "/tmp"
			})
			if runs := tt.job.Runs() && role == "worker"; runs != (at < 0) {
				t.Errorf("%s: the %s has a /tmp other than its image's: %t", name, role, at >= 0)
				continue
			} else if runs {
				continue
			}
			of := spec.Volumes[slices.IndexFunc(spec.Volumes, func(v core.Volume) bool {
				return v.Name == spec.Containers[0].VolumeMounts[at].Name
			})]
			if (of.EmptyDir != nil) != (tt.tmp == "empty") || (of.PersistentVolumeClaim != nil) != (tt.tmp == "claim") {
				t.Errorf("%s: /tmp of the %s is %+v", name, role, of.VolumeSource)
			}
		}
	}
}

// The permissions of named jobs are those that the jobs would have of their own, and no object of
// another name may be touched.
func TestPermissionsByName(t *testing.T) {
	j := parse(t, little)
	s, err := Submit(j)
	if err != nil {
		t.Fatal(err)
	}
	_, role, _ := Permissions("default", "elasticdl", j.Name)
	if !reflect.DeepEqual(role.Rules, s.Role.Rules) {
		t.Errorf("%+v, and of its own the job has %+v", role.Rules, s.Role.Rules)
	}
	_, role, _ = Permissions("default", "elasticdl", "a", "b")
	byName := func(verb string) bool { return verb == "get" || verb == "update" || verb == "patch" }
	for _, r := range role.Rules {
		for _, verb := range r.Verbs {
			if byName(verb) && (len(r.ResourceNames) != 2 ||
				!strings.Contains(r.ResourceNames[0], "elasticdl-a") ||
				!strings.Contains(r.ResourceNames[1], "elasticdl-b")) {
				t.Errorf("%s %v of %v", verb, r.Resources, r.ResourceNames)
			}
		}
	}
}

// No pod gets an address of IPv4, which a cluster of IPv6 lacks: servers and masters listen on all
// that they have.
func TestNoAddressOfIPv4(t *testing.T) {
	for _, j := range []*job.Job{parse(t, everything), parse(t, little), running(t)} {
		for _, id := range []pod.ID{worker(0), ps(0)} {
			for _, arg := range mustPod(t, j, PodSpec{ID: id, Incarnation: 1}).Spec.Containers[0].Args {
				if _, address, _ := strings.Cut(arg, "="); address != "" &&
					net.ParseIP(strings.Split(address, ":")[0]) != nil {
					t.Errorf("%v of %s: %s", id, j.Name, arg)
				}
			}
		}
	}
}

// The master's values of Secrets are never in the spec of another pod, with any
// --populate_env_names.
func TestInheritedSecrets(t *testing.T) {
	ref := func(name, secret string) core.EnvVar {
		from := &core.SecretKeySelector{LocalObjectReference: core.LocalObjectReference{Name: secret}, Key: "key"}
		return core.EnvVar{Name: name, ValueFrom: &core.EnvVarSource{SecretKeyRef: from}}
	}
	text, err := json.Marshal(map[string]any{
		"pod_spec": map[string]any{"env": []core.EnvVar{ref("A", "all")}},
		"master_pod_spec": map[string]any{"env": []core.EnvVar{ref("B", "masters")},
			"containers": []core.Container{{Name: "master", Env: []core.EnvVar{ref("C", "container")}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	j := parse(t, little, "--populate_env_names=.*", "--env_secret=D=given/key", "--cluster_spec_json="+string(text))
	p := mustPod(t, j, PodSpec{ID: worker(0), Incarnation: 1, Environ: []string{"A=hunter2", "B=hunter2",
		"C=hunter2", "D=hunter2", "E=shown"}})
	got := make(map[string]string)
	for _, v := range p.Spec.Containers[0].Env {
		if v.ValueFrom != nil && v.ValueFrom.SecretKeyRef != nil {
			got[v.Name] = v.ValueFrom.SecretKeyRef.Name
		} else if v.Value == "hunter2" {
			t.Errorf("%s is in clear", v.Name)
		}
	}
	for name, want := range map[string]string{"A": "all", "B": "masters", "C": "container", "D": "given"} {
		if got[name] != want {
			t.Errorf("%s is of Secret %q, want %q", name, got[name], want)
		}
	}
}

// Everybody who works on a model has the job's variables of Secrets; of a program only its workers.
// All pull their images by the job's Secrets.
func TestWhoHasSecrets(t *testing.T) {
	const flags = "--env_secret=HF_TOKEN=hub/token"
	has := func(s *core.PodSpec) bool {
		return slices.ContainsFunc(s.Containers[0].Env, func(v core.EnvVar) bool {
			return v.Name == "HF_TOKEN" && v.Value == "" && v.ValueFrom.SecretKeyRef.Name == "hub" &&
				v.ValueFrom.SecretKeyRef.Key == "token"
		})
	}
	for _, j := range []*job.Job{parse(t, little, flags, "--image_pull_secret=a;b"),
		running(t, flags, "--image_pull_secret=a;b")} {
		s, err := Submit(j)
		if err != nil {
			t.Fatal(err)
		}
		specs := []*core.PodSpec{&s.Master.Spec, &mustPod(t, j, PodSpec{ID: worker(0), Incarnation: 1}).Spec}
		if has(specs[0]) == j.Runs() || !has(specs[1]) {
			t.Errorf("%s: the master has the secret: %t, a worker: %t", j.Type, has(specs[0]), has(specs[1]))
		}
		for _, spec := range specs {
			if want := []core.LocalObjectReference{{Name: "a"}, {Name: "b"}}; !slices.Equal(
				spec.ImagePullSecrets, want) {
				t.Errorf("%s: images are pulled by %v, want %v", j.Type, spec.ImagePullSecrets, want)
			}
		}
	}
}

func TestPriorities(t *testing.T) {
	j := parse(t, little, "--num_workers=4", "--worker_pod_priority=0.5")
	var got []string
	for slot := range 6 {
		got = append(got, mustPod(t, j, PodSpec{ID: worker(slot + 7), Slot: slot}).Spec.PriorityClassName)
	}
	if want := strings.Fields("high low low high low low"); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSubmitReportsAll(t *testing.T) {
	j := parse(t, little)
	j.NumWorkers, j.Image, j.ClusterSpecJSON = 0, "", `{"pod_spec":{"afinity":{}},"jobs":{}}`
	_, err := Submit(j)
	want := []string{"--num_workers=0: expected 1 or more",
		"--image_name is missing: name an image, as elasticdl zoo build makes one",
		`--cluster_spec_json: unknown field "pod_spec.afinity"`, `--cluster_spec_json: unknown field "jobs"`}
	if err == nil || err.Error() != strings.Join(want, "\n") {
		t.Errorf("got:\n%v\nwant:\n%s", err, strings.Join(want, "\n"))
	}
}

// Users replace placeholders in what --yaml writes, as sed 's/<BUCKET>/mine/' does.
func TestSpecIsReadable(t *testing.T) {
	const text = "https://<HOST>/?a=1&b=2"
	j := parse(t, little, "--envs=URL="+text)
	o, err := spec(j)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(o.Data[KeyJob], text) {
		t.Errorf("the specification has no %s:\n%s", text, o.Data[KeyJob])
	}
}
