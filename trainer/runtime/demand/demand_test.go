package demand

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/test/flags"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// list parses a list such as cpu=1,memory=2Gi.
func list(text string) core.ResourceList {
	all := core.ResourceList{}
	for item := range strings.SplitSeq(text, ",") {
		if name, amount, ok := strings.Cut(item, "="); ok {
			all[core.ResourceName(name)] = resource.MustParse(amount)
		}
	}
	return all
}

// container has requests and limits, "cpu=1 cpu=2,memory=1Gi".
func container(text string) core.Container {
	requests, limits, _ := strings.Cut(text, " ")
	return core.Container{Name: "c",
		Resources: core.ResourceRequirements{Requests: list(requests), Limits: list(limits)}}
}

func containers(all ...string) (made []core.Container) {
	for _, text := range all {
		made = append(made, container(text))
	}
	return made
}

func sidecar(text string) core.Container {
	c := container(text)
	c.RestartPolicy = new(core.ContainerRestartPolicyAlways)
	return c
}

func text(all core.ResourceList) string {
	var items []string
	for name, amount := range all {
		items = append(items, fmt.Sprintf("%s=%s", name, amount.String()))
	}
	slices.Sort(items)
	return strings.Join(items, ",")
}

// Requests and limits of a pod are those that resource.PodRequests and PodLimits of
// k8s.io/component-helpers return, after the defaults of the API server.
func TestPod(t *testing.T) {
	for name, test := range map[string]struct {
		pod              core.PodSpec
		requests, limits string
	}{
		"nothing": {core.PodSpec{Containers: containers("")}, "", ""},
		"sum": {core.PodSpec{Containers: containers("cpu=1,memory=1Gi cpu=2", "cpu=500m")},
			"cpu=1500m,memory=1Gi", "cpu=2"},
		"a limit is a request": {core.PodSpec{Containers: containers("cpu=1 memory=1Gi,nvidia.com/gpu=2")},
			"cpu=1,memory=1Gi,nvidia.com/gpu=2", "memory=1Gi,nvidia.com/gpu=2"},
		"a larger init container": {core.PodSpec{Containers: containers("cpu=1,memory=1Gi"),
			InitContainers: containers("cpu=3", "cpu=2,memory=2Gi")}, "cpu=3,memory=2Gi", ""},
		"a smaller one": {core.PodSpec{Containers: containers("cpu=1", "cpu=1"),
			InitContainers: containers("cpu=1500m")}, "cpu=2", ""},
		"a sidecar runs with the containers": {core.PodSpec{Containers: containers("cpu=1"),
			InitContainers: []core.Container{sidecar("cpu=1")}}, "cpu=2", ""},
		"and with later init containers": {core.PodSpec{Containers: containers("cpu=1"),
			InitContainers: []core.Container{container("cpu=4"), sidecar("cpu=1"), container("cpu=3500m")}},
			"cpu=4500m", ""},
		"the pod as a whole": {core.PodSpec{Containers: containers("cpu=1,nvidia.com/gpu=1"),
			Resources: &core.ResourceRequirements{Requests: list("cpu=3,nvidia.com/gpu=9"),
				Limits: list("memory=1Gi")}},
			"cpu=3,memory=1Gi,nvidia.com/gpu=1", "memory=1Gi"},
		"overhead": {core.PodSpec{Containers: containers("cpu=1 cpu=1"), Overhead: list("cpu=100m,memory=1Mi")},
			"cpu=1100m,memory=1Mi", "cpu=1100m"},
	} {
		if got := text(Requests(&test.pod)); got != test.requests {
			t.Errorf("%s: requests %s, want %s", name, got, test.requests)
		}
		if got := text(Limits(&test.pod)); got != test.limits {
			t.Errorf("%s: limits %s, want %s", name, got, test.limits)
		}
	}
}

// Larger containers, and more of them, never request less; what is computed changes no pod.
func TestMoreIsNeverLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		made := func(label string) core.Container {
			c := container(fmt.Sprintf("cpu=%dm", rapid.IntRange(0, 9).Draw(t, label)))
			if rapid.Bool().Draw(t, "sidecar") {
				c.RestartPolicy = new(core.ContainerRestartPolicyAlways)
			}
			return c
		}
		p := core.PodSpec{Containers: containers("cpu=1m")}
		for range rapid.IntRange(0, 4).Draw(t, "n") {
			p.InitContainers = append(p.InitContainers, made("cpu"))
		}
		cpus := func() resource.Quantity { return Requests(&p)[core.ResourceCPU] }
		was := cpus()
		if again := cpus(); again.Cmp(was) != 0 {
			t.Fatalf("%s, then %s", was.String(), again.String())
		}
		at := rapid.IntRange(0, len(p.InitContainers)).Draw(t, "at")
		p.InitContainers = slices.Insert(p.InitContainers, at, made("more"))
		if now := cpus(); now.Cmp(was) < 0 {
			t.Fatalf("%s, and with another container %s", was.String(), now.String())
		}
	})
}

func TestShort(t *testing.T) {
	for _, test := range []struct{ asks, limit, want string }{
		{"cpu=1,memory=1Gi", "cpu=1,memory=1Gi", ""},
		{"cpu=2,memory=2Gi", "cpu=1,memory=1Gi", "cpu"},
		{"cpu=1,memory=2Gi", "cpu=1,memory=1Gi", "memory"},
		{"nvidia.com/gpu=1", "cpu=9", "nvidia.com/gpu"},
		{"nvidia.com/gpu=0", "cpu=9", ""},
	} {
		got, short := Short(list(test.asks), list(test.limit))
		if string(got) != test.want || short != (test.want != "") {
			t.Errorf("%s of %s: %s, %v", test.asks, test.limit, got, short)
		}
	}
}

// The API server refuses pods by containers that do not say what a quota counts: also by init
// containers, and not by a limit that is a request.
func TestUnsaid(t *testing.T) {
	for _, test := range []struct{ container, init, name, want string }{
		{"cpu=1", "cpu=1", "cpu", ""},
		{"cpu=1", "cpu=1", "requests.cpu", ""},
		{"cpu=1", "", "requests.cpu", "i"},
		{"", "cpu=1", "cpu", "c"},
		{" cpu=1", "cpu=1", "cpu", ""},
		{"cpu=1", " cpu=1", "limits.cpu", "c"},
		{"", "", "pods", ""},
		{"", "", "requests.nvidia.com/gpu", ""},
	} {
		p := core.PodSpec{Containers: containers(test.container), InitContainers: containers(test.init)}
		p.InitContainers[0].Name = "i"
		if got := strings.Join(Unsaid(&p, test.name), ","); got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
	p := core.PodSpec{Containers: containers(""), Resources: &core.ResourceRequirements{Requests: list("cpu=1")}}
	if got := Unsaid(&p, "cpu"); got != nil {
		t.Errorf("of a pod that says it as a whole: %q", got)
	}
}

// A job needs its launcher, master, servers and least workers before it trains. Quotas of a
// namespace count all of it by several names.
func TestJob(t *testing.T) {
	c, err := flags.Job(job.Train, strings.Fields("--job_name=j --model_def=m.f --training_data=/data/train "+
		"--namespace=research --image_name=i --num_ps_pods=2 --num_workers=5 --min_workers=3 --max_workers=9 "+
		"--master_resource_request=cpu=500m,memory=512Mi --worker_resource_request=cpu=1,memory=256Mi "+
		"--ps_resource_request=cpu=2,memory=256Mi --worker_resource_limit=cpu=4,memory=256Mi")...)
	if err != nil {
		t.Fatal(err)
	}
	c.Job.Image = ""
	roles, err := Roles(c.Job)
	if err != nil || c.Job.Image != "" {
		t.Fatal(err, c.Job.Image)
	}
	var counts []string
	for _, r := range roles {
		counts = append(counts, fmt.Sprintf("%s %d-%d-%d", r.Name, r.Least, r.First, r.Most))
	}
	if got := strings.Join(counts, ", "); got != "launcher 1-1-1, master 1-1-1, worker 3-5-9, ps 2-2-2" {
		t.Errorf("roles: %s", got)
	}
	for name, want := range map[string]string{
		"cpu":          "the job needs 7500m before it trains (1 master: 500m, 3 workers: 3, 2 parameter servers: 4)",
		"requests.cpu": "the job needs 7500m before it trains (1 master: 500m, 3 workers: 3, 2 parameter servers: 4)",
		"limits.cpu":   "the job needs 17200m before it trains (1 launcher: 200m, 1 master: 1, 3 workers: 12, 2 param",
		"pods":         "the job needs 7 before it trains (1 launcher: 1, 1 master: 1, 3 workers: 3, 2 parameter ser",
		"count/pods":   "the job needs 7 before",
		"secrets":      "", "requests.nvidia.com/gpu": "", "count/secrets": "",
	} {
		need, ok := Counted(roles, name)
		if ok != (want != "") || ok && !strings.HasPrefix(need.String(), want) {
			t.Errorf("%s: %s", name, need)
		}
	}
	for _, need := range Needs(roles, InQueue, Requests) {
		if need.Name == core.ResourcePods && need.Total.String() != "6" {
			t.Errorf("in a queue: %s", need)
		}
	}
}
