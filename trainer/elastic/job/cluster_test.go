package job

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// onCluster is the least job that Kubernetes takes, and arguments.
func onCluster(args string) []string {
	return append([]string{"--job_name=j", "--model_def=m", "--training_data=d", "--image_name=i"},
		strings.Fields(args)...)
}

func TestTutorialsOnKubernetes(t *testing.T) {
	for name, command := range map[string]string{"cloud": cloud, "older cloud": cloudOld,
		"minikube": minikube, "AllReduce": allReduce, "elastic": elastic} {
		c, err := Parse(Train, strings.Fields(command))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := c.Job.ValidateCluster(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		survives(t, c.Job)
	}
}

func TestClusterFlags(t *testing.T) {
	c, err := Parse(Train, onCluster("--max_memory=8Gi --ttl=0 --deadline=1h --suspend "+
		"--service_account=elasticdl --node-selector=disktype=ssd,example.com/zone=a"+
		" --tolerations=key=nvidia.com/gpu,operator=Exists;key=k,value=v,effect=NoExecute,seconds=60 --yaml=- --context=c --kubeconfig=k"+
		" --cluster_spec=f.yaml --output=/out --volume=claim_name=c,mount_path=/out/"))
	if err != nil {
		t.Fatal(err)
	}
	j := c.Job
	want := []Toleration{{Key: "nvidia.com/gpu", Operator: "Exists"},
		{Key: "k", Value: "v", Effect: "NoExecute", Seconds: new(int64(60))}}
	if !reflect.DeepEqual(j.Tolerations, want) || j.NodeSelector["disktype"] != "ssd" ||
		j.NodeSelector["example.com/zone"] != "a" {
		t.Errorf("got %+v", j)
	}
	if j.MaxMemory != "8Gi" || *j.TTL != (Duration{}) || j.Deadline.Duration != time.Hour ||
		!j.Suspend || j.ServiceAccount != "elasticdl" {
		t.Errorf("got %+v", j)
	}
	if c.YAML != "-" || c.Context != "c" || c.Kubeconfig != "k" || c.ClusterSpec != "f.yaml" || len(c.Notes) != 0 {
		t.Errorf("got %+v", c)
	}
	survives(t, j)
}

func TestClusterNotes(t *testing.T) {
	const data = "--training_data=d is on no --volume: the image must contain it"
	for args, want := range map[string]string{
		"--output=/out": "--output=/out is on no --volume: it is deleted with the pod that writes it\n" + data,
		"--output=/output --volume=claim_name=c,mount_path=/out": "--output=/output is on no --volume: " +
			"it is deleted with the pod that writes it\n" + data,
		"--output=/out/model --volume=claim_name=c,mount_path=/ --training_data=/d": "",
		"--max_memory=0":                   data,
		"--cluster_spec_json={}":           "",
		"--runtime=local --metrics_from=a": "no effect with --runtime=local: --image_name, --metrics_from",
		"--detach --cluster_spec=f":        "no effect on Kubernetes, where it is always on: --detach",
		"--runtime=local --output=/out --max_memory=8Gi --tolerations=operator=Exists " +
			"--node_selector=a=b --service_account=s --ttl=1 --deadline=1 --suspend --yaml=- " +
			"--follow --context=c --kubeconfig=k": "no effect with --runtime=local: " +
			"--image_name, --max_memory, --tolerations, --node_selector, --service_account, --ttl, " +
			"--deadline, --suspend, --yaml, --follow, --context, --kubeconfig",
	} {
		c, err := Parse(Train, onCluster(args))
		if got := strings.Join(c.Notes, "\n"); err != nil || got != want {
			t.Errorf("%s: notes %q, %v; want %q", args, got, err, want)
		}
	}
}

func TestClusterRefused(t *testing.T) {
	long := strings.Repeat("x", 64)
	for args, want := range map[string]string{
		"--image_name=":           "--image_name is missing",
		"--image_name=Elastic:DL": "--image_name=Elastic:DL: expected an image",
		"--worker_image=a/b/:c":   "--worker_image=a/b/:c: expected an image",
		"--job_name=x-state":      "--job_name=x-state: expected a name that does not end in -state: job x uses it",
		"--namespace=" + long:     "expected at most 63",
		"--namespace=":            "--namespace=: expected at most 63",
		"--envs=A=b,POD_IP=1": "--envs=POD_IP=1: the pods have a " +
			"variable of that name already",
		"--env_secret=A=b/c;A=d/e":              "A occurs twice",
		"--env_secret=A=b/c --env_secret=A=d/e": "A occurs twice",
		"--env_secret=A=b": `--env_secret=A=b: A: expected SECRET/KEY, ` +
			`the name of a Secret and of one of its keys, found "b"`,
		"--env_secret=A=B/c":   "expected SECRET/KEY",
		"--env_secret=A=b/c/d": "expected SECRET/KEY",
		"--env_secret=A-B=b/c": `"A-B": expected the name of a variable`,
		"--env_secret=POD_IP=b/c": "--env_secret=POD_IP=b/c: the " +
			"processes have a variable of that name already",
		"--env_secret=A=b/c --envs=A=1": "--env_secret=A=b/c: --envs has A, too",
		"--image_pull_secret=A":         `"A": expected the name of a Secret`,
		"--image_pull_secret=a;a":       "a occurs twice",
		"--worker_pod_priority=a..b": "expected the " +
			"name of a PriorityClass",
		"--worker_resource_request=a..b/c=1":                   `unknown resource "a..b/c"`,
		"--worker_resource_request=requests.kubernetes.io/c=1": "unknown resource",
		"--worker_resource_request=cpu=2 --worker_resource_limit=cpu=1500m": "--worker_resource_limit: " +
			"cpu=1500m is less than 2 of --worker_resource_request",
		"--ps_resource_request=memory=4Gi --ps_resource_limit=memory=4095Mi": "--ps_resource_limit: " +
			"memory=4095Mi is less than 4Gi of --ps_resource_request",
		"--master_resource_request=memory=1025Mi --master_resource_limit=memory=1G": "--master_resource_limit: " +
			"memory=1G is less than 1025Mi",
		"--worker_resource_request=gpu=1,cpu=1,memory=1Gi " +
			"--worker_resource_limit=gpu=2,cpu=1,memory=2Gi": "--worker_resource_limit: " +
			"nvidia.com/gpu=2, and 1 of --worker_resource_request: expected as many",
		"--max_memory=4Gi": "--max_memory=4Gi: expected more than the memory",
		"--max_memory=8Gi --worker_resource_request=cpu=1 --num_ps_pods=0": "or it has no effect",
		"--max_memory=lots":  "--max_memory=lots: expected bytes like 512Mi or 4Gi",
		"--ttl=1.5":          "--ttl=1.5s: expected whole seconds",
		"--ttl=-1":           "--ttl=-1s: expected whole seconds",
		"--deadline=700000h": "expected whole seconds",
		"--service_account=Me": "--service_account=Me: expected the " +
			"name of a ServiceAccount",
		"--node_selector=a":                                 "--node_selector=a: expected key=value",
		"--node_selector=a=" + long:                         "expected at most 63 letters",
		"--node_selector=a=b,a=c":                           "a occurs twice",
		"--node_selector=a/b/c=d":                           `"a/b/c": expected the key of a label`,
		"--tolerations=key=k,operator=Maybe":                "operator=Maybe: expected Equal or Exists",
		"--tolerations=value=v":                             "expected a key, or operator=Exists",
		"--tolerations=key=k,operator=Exists,value=v":       "value=v: operator=Exists takes none",
		"--tolerations=key=k,effect=NoRun":                  "effect=NoRun: expected NoSchedule",
		"--tolerations=key=k,seconds=5":                     "seconds requires effect=NoExecute",
		"--tolerations=key=k,effect=NoExecute,seconds=soon": "seconds=soon: expected a whole number",
		"--tolerations=key=k,key=l":                         "key occurs twice",
		"--tolerations=taint=k":                             `unknown key "taint"`,
		"--cluster_spec=f --cluster_spec_json={}":           "--cluster_spec=f: sets the same fields as --cluster_spec_json",
		"--follow --detach":                                 "--follow: contradicts --detach",
		"--follow --yaml=-":                                 "--follow: with --yaml=- there is no job to follow",
	} {
		_, err := Parse(Train, onCluster(args))
		if err == nil || lines(err) != 1 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want one problem with %q", args, err, want)
		}
	}
}

// A default is no request: a limit below it brings it down, as Kubernetes does with what is not
// requested.
func TestLimitsBelowDefaults(t *testing.T) {
	for args, want := range map[string]string{
		"--worker_resource_limit=cpu=0.5,memory=1Gi":                                    "cpu=0.5,memory=1Gi",
		"--worker_resource_limit=cpu=8,memory=8Gi":                                      "cpu=1,memory=4096Mi",
		"--worker_memory_limit=1Gi --worker_cpu_request=2":                              "cpu=2,memory=1Gi",
		"--worker_resource_limit=cpu=8,memory=8Gi --worker_resource_request=memory=6Gi": "memory=6Gi",
	} {
		c, err := Parse(Train, onCluster(args))
		if err != nil || c.Job.Worker.Request.String() != want {
			t.Errorf("%s: %v, %v; want %s", args, c.Job.Worker.Request, err, want)
		}
	}
}

// All problems of a job that no flags have made.
func TestValidateCluster(t *testing.T) {
	j := Default()
	j.Name, j.Image, j.Worker.Image, j.Master.Image, j.ServiceAccount = "a-state", "Image", "b c", "C:", "A"
	j.Worker.Request, j.Worker.Limit = Resources{"apples": "1"}, Resources{"cpu": "many"}
	j.PS.Priority.Class = "High"
	j.Volumes = []Volume{{HostPath: "/a", MountPath: "/a"}, {HostPath: "b", MountPath: "/b"},
		{ClaimName: "c", MountPath: "/a"}}
	j.Tolerations, j.NodeSelector = []Toleration{{Effect: "Never"}}, map[string]string{"": "x"}
	j.MaxMemory, j.TTL, j.Deadline = "much", &Duration{-1}, Duration{1}
	j.Envs = map[string]string{"POD_NAME": "x"}
	err := j.ValidateCluster()
	for _, want := range []string{"--job_name=a-state", "--image_name=Image", "--worker_image=b c",
		"master.image=C:", "--service_account=A",
		"--worker_resource_request: unknown resource", "--worker_resource_limit: cpu=many",
		"--ps_pod_priority=High", "--volume=host_path=b", "mount_path occurs twice",
		"--tolerations=effect=Never", "--node_selector==x", "--max_memory=much", "--ttl=-1ns",
		"--deadline=1ns", "--envs=POD_NAME=x"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %s in:\n%v", want, err)
		}
	}
	if lines(err) != 16 {
		t.Errorf("%d problems:\n%v", lines(err), err)
	}
}

func TestAmount(t *testing.T) {
	for in, want := range map[string]float64{"": 0, "1": 1, "0.5": 0.5, "250m": 0.25, "1k": 1e3,
		"1K": 1e3, "2Ki": 2048, "3M": 3e6, "1Mi": 1 << 20, "1G": 1e9, "1Gi": 1 << 30, "1T": 1e12,
		"1Pi": 1 << 50, "1Ei": 1 << 60, "x": 0} {
		if got := amount(in); got != want {
			t.Errorf("%s is %v, want %v", in, got, want)
		}
	}
}
