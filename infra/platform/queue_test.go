package platform

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/graph"
	"github.com/elasticdl/elasticdl/test/sdk"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

const typeRelease = "kubernetes:helm.sh/v3:Release"

// queued returns settings with a queue, on a cluster of GKE.
func queued(q settings.Queue) *settings.Settings {
	s := configured(settings.CloudGKE)
	if q.Name == "" {
		q.Name = "training"
	}
	s.Platform.Queue, s.Platform.QueuePriorities = &q, q.Install
	return s
}

// installed returns the queue with everything on.
func installed() settings.Queue {
	return settings.Queue{Install: true, Version: settings.KueueVersion, Cohort: "all", Namespaces: []string{"team-b"},
		Quotas: map[string]string{"cpu": "20", "memory": "81920Mi", "nvidia.com/gpu": "8"},
		Flavor: &settings.Flavor{Labels: map[string]string{"pool": "gpu"}, Tolerations: []job.Toleration{
			{Key: "spot", Operator: "Exists", Effect: "NoExecute", Seconds: new(int64(5))}}}}
}

func TestQueueGolden(t *testing.T) {
	all, p, err := record(t, queued(installed()), false)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Ready) != len(within(all)) {
		t.Errorf("the job waits for %d of %d", len(p.Ready), len(within(all)))
	}
	graph.Golden(t, "queue", all)
}

// Kueue is before everything that needs it, and is deleted after it: also after the stack's
// namespace, whose pods may have its finalizer. Each object of a queue is after what it names.
func TestQueueOrder(t *testing.T) {
	for _, shared := range []bool{false, true} {
		s := queued(installed())
		s.Platform.ShareNamespace, s.Platform.NetworkPolicy = shared, false
		all, _, err := record(t, s, true)
		if err != nil {
			t.Fatal(err)
		}
		before := map[string][]string{}
		for _, r := range all {
			for _, d := range r.Options.DependsOn {
				_, name, _ := strings.Cut(d, " ")
				before[r.Name] = append(before[r.Name], append(before[name], name)...)
			}
		}
		for _, r := range within(all) {
			if r.Name != nameOfKueue && r.Name != kueue && !slices.Contains(before[r.Name], kueue) {
				t.Errorf("%s does not wait for Kueue: %v", r.Name, before[r.Name])
			}
		}
		for name, first := range map[string]string{kueue: nameOfKueue, nameClusterQueue: nameFlavor,
			"queue": nameClusterQueue} {
			if !slices.Contains(before[name], first) {
				t.Errorf("%s does not wait for %s", name, first)
			}
		}
	}
}

// Without the installation the stack makes what the settings name, and with a ClusterQueue of
// others only the LocalQueue, which belongs to the namespace.
func TestQueueOfOthers(t *testing.T) {
	for name, test := range map[string]struct {
		q    settings.Queue
		want []string
	}{
		"theirs": {settings.Queue{ClusterQueue: "team-a"}, []string{"LocalQueue training"}},
		"own": {settings.Queue{Quotas: map[string]string{"cpu": "1"}}, []string{"ClusterQueue research-training",
			"LocalQueue training", "ResourceFlavor research-training"}},
		"a flavor of others": {settings.Queue{Quotas: map[string]string{"cpu": "1"},
			Flavor: &settings.Flavor{Name: "gpus"}}, []string{"ClusterQueue research-training", "LocalQueue training"}},
	} {
		all, _, err := record(t, queued(test.q), true)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range within(all) {
			if strings.Contains(r.Type, "kueue") || r.Type == typeRelease || r.Name == nameOfKueue {
				got = append(got, at(r, "kind").StringValue()+" "+at(r, "metadata", "name").StringValue())
				if in := at(r, "metadata", "namespace"); strings.HasPrefix(r.Name, "queue") && r.Name == "queue" !=
					in.IsString() {
					t.Errorf("%s: %s is in %v", name, r.Name, in)
				}
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	all, _, err := record(t, queued(settings.Queue{ClusterQueue: "team-a"}), true)
	if err != nil {
		t.Fatal(err)
	}
	queue := graph.Find(all, "kubernetes:kueue.x-k8s.io/v1beta2:LocalQueue", "queue")
	if o := queue.Options; !o.DeleteBeforeReplace || !slices.Equal(o.ReplaceOnChanges, []string{"spec.clusterQueue"}) ||
		at(*queue, "spec", "clusterQueue").StringValue() != "team-a" {
		t.Errorf("%+v, %v", o, queue.Inputs)
	}
}

// Quantities have the form in which Kueue's webhook writes them.
func TestQueueQuantities(t *testing.T) {
	spec := clusterQueueSpec("research", "f", &settings.Queue{Quotas: map[string]string{"cpu": "20000m",
		"memory": "2048Mi", "pods": "0.5"}})
	text, err := json.Marshal(spec["resourceGroups"])
	if want := `[{"coveredResources":["cpu","memory","pods"],"flavors":[{"name":"f","resources":[` +
		`{"name":"cpu","nominalQuota":"20"},{"name":"memory","nominalQuota":"2Gi"},` +
		`{"name":"pods","nominalQuota":"500m"}]}]}]`; err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
	if spec["cohortName"] != nil {
		t.Error("it has a cohort")
	}
}

// A queue is for its namespace only, takes back what it has lent, and never ends a pod of a higher
// priority, or of the same one, for another of its own.
func TestPreemption(t *testing.T) {
	spec := clusterQueueSpec("research", "f", &settings.Queue{Quotas: map[string]string{"cpu": "20"}, Cohort: "all"})
	delete(spec, "resourceGroups")
	text, err := json.Marshal(spec)
	if want := `{"cohortName":"all",` +
		`"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"research"}},` +
		`"preemption":{"reclaimWithinCohort":"Any","withinClusterQueue":"LowerPriority"}}`; err != nil ||
		string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
}

// Pulumi's SDK knows every input of the release.
func TestReleaseOfTheSDK(t *testing.T) {
	all, _, err := record(t, queued(installed()), true)
	if err != nil {
		t.Fatal(err)
	}
	r := *graph.Find(all, typeRelease, kueue)
	if r.Options.Provider != providerType+" kubernetes" || r.Options.DeletedWith != cloudCluster+" cluster" {
		t.Errorf("%+v", r.Options)
	}
	// the SDK has helm.sh/v3 in its directory helm/v3
	r.Type = "kubernetes:v3:Release"
	sdk.Of(t, "github.com/pulumi/pulumi-kubernetes/sdk/v4", "go/kubernetes/helm").Check(t, r)
}

// The chart of that version has every value which the stack sets, and the settings of the manager
// are those of the chart but for the namespaces and the frameworks.
func TestChart(t *testing.T) {
	dir := chart(t)
	var chart struct{ Version string }
	read(t, filepath.Join(dir, "Chart.yaml"), &chart)
	if chart.Version != settings.KueueVersion {
		t.Errorf("the stack installs Kueue %s, tested is %s", settings.KueueVersion, chart.Version)
	}
	var values map[string]any
	read(t, filepath.Join(dir, "values.yaml"), &values)
	all, _, err := record(t, queued(installed()), true)
	if err != nil {
		t.Fatal(err)
	}
	set := graph.Find(all, typeRelease, kueue).Inputs["values"].Mappable().(map[string]any)
	var walk func(path string, set, has map[string]any)
	walk = func(path string, set, has map[string]any) {
		for key, value := range set {
			if _, ok := has[key]; !ok {
				t.Errorf("the chart has no value %s%s", path, key)
			}
			within, _ := has[key].(map[string]any)
			if value, ok := value.(map[string]any); ok {
				walk(path+key+".", value, within)
			}
		}
	}
	walk("", set, values)
	config := func(values map[string]any) (c map[string]any) {
		said := values["managerConfig"].(map[string]any)["controllerManagerConfigYaml"].(string)
		if err := yaml.Unmarshal([]byte(said), &c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	ours, theirs := config(set), config(values)
	for _, key := range []string{"apiVersion", "kind", "health", "metrics", "webhook", "leaderElection",
		"controller", "clientConnection"} {
		if !reflect.DeepEqual(ours[key], theirs[key]) {
			t.Errorf("%s of the manager is %v, and in the chart %v", key, ours[key], theirs[key])
		}
	}
	frameworks := theirs["integrations"].(map[string]any)["frameworks"].([]any)
	for _, f := range ours["integrations"].(map[string]any)["frameworks"].([]any) {
		if !slices.Contains(frameworks, f) {
			t.Errorf("Kueue has no framework %v", f)
		}
	}
	selector, err := json.Marshal(ours["managedJobsNamespaceSelector"])
	if want := `{"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"In","values":` +
		`["research","team-b"]}]}`; err != nil || string(selector) != want {
		t.Errorf("it manages %s", selector)
	}
}

// chart returns the directory of the chart in the module of Kueue that the tests on a real cluster
// run.
func chart(t *testing.T) string {
	t.Helper()
	const tools = "../../tools/kubernetes/kueue"
	out, err := exec.CommandContext(t.Context(), "go", "mod", "download", "-C", tools, "-json",
		"sigs.k8s.io/kueue").Output()
	var module struct{ Dir string }
	if err == nil {
		err = json.Unmarshal(out, &module)
	}
	if err != nil || module.Dir == "" {
		t.Fatalf("the module of Kueue: %v\n%s", err, out)
	}
	return filepath.Join(module.Dir, "charts", kueue)
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A job that a queue could never admit is refused, with the numbers.
func TestCheckQueue(t *testing.T) {
	const at = "elasticdl:platform.queue.quotas."
	for name, test := range map[string]struct {
		quotas map[string]string
		flags  []string
		change func(s *settings.Settings)
		want   string
	}{
		"it fits": {map[string]string{"cpu": "4.5", "memory": "1536Mi"}, nil, nil, ""},
		"not cpus": {map[string]string{"cpu": "1", "memory": "100Gi"}, nil, nil,
			at + "cpu: 1: the job needs 4500m before"},
		"the workers that it needs": {map[string]string{"cpu": "8", "memory": "100Gi"},
			[]string{"--num_workers=9", "--min_workers=5"}, nil, at + "cpu: 8: the job needs 8500m before it trains " +
				"(1 master: 500m, 5 workers: 5, 3 parameter servers: 3), so that the queue never admits it"},
		"workers beyond the core": {map[string]string{"cpu": "8", "memory": "100Gi"},
			[]string{"--num_workers=90", "--min_workers=2"}, nil, ""},
		"borrowed": {map[string]string{"cpu": "1", "memory": "100Gi"}, nil, func(s *settings.Settings) {
			s.Platform.Queue.Cohort = "all"
		}, ""},
		"both": {map[string]string{"cpu": "1", "memory": "1Gi"}, nil, nil, at + "cpu: 1: the job needs 4500m before " +
			"it trains (1 master: 500m, 1 worker: 1, 3 parameter servers: 3), so that the queue never admits it"},
		"no quota for a resource": {map[string]string{"cpu": "9"}, nil, func(s *settings.Settings) {
			s.Platform.Queue.Cohort = "all"
		}, at + "memory: missing: pods of the job request it (1 master: 512Mi, "},
		"GPUs": {map[string]string{"cpu": "9", "memory": "100Gi"}, []string{"--worker_resource_limit=nvidia.com/gpu=1"},
			nil, at[:len(at)-1] + `["nvidia.com/gpu"]: missing: pods of the job request it (1 worker: 1)`},
		"pods": {map[string]string{"cpu": "99", "memory": "1Ti", "pods": "2"}, nil, nil, at +
			"pods: 2: the job"},
		"another queue": {map[string]string{"cpu": "1"}, []string{"--queue=night"}, nil, ""},
		"of others":     {nil, nil, func(s *settings.Settings) { s.Platform.Queue.ClusterQueue = "a" }, ""},
		"no job":        {map[string]string{"cpu": "1"}, nil, func(s *settings.Settings) { s.Job = nil }, ""},
		"no queue": {map[string]string{"cpu": "1"}, nil, func(s *settings.Settings) { s.Platform.Queue = nil },
			""},
	} {
		s := queued(settings.Queue{Quotas: test.quotas})
		s.Job = aJob(t, append([]string{"--queue=training", "--num_ps_pods=3",
			"--master_resource_request=cpu=500m,memory=512Mi", "--worker_resource_request=cpu=1,memory=256Mi",
			"--ps_resource_request=cpu=1,memory=256Mi"}, test.flags...)...)
		if test.change != nil {
			test.change(s)
		}
		err := s.Verify(Check)
		if (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: got:\n%v\nwant:\n%s", name, err, test.want)
		}
		if lines := 1 + strings.Count(errorText(err), "\n"); name == "both" && lines != 2 {
			t.Errorf("%s: %d problems", name, lines)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
