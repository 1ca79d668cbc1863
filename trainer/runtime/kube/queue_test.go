package kube

import (
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	scheduling "k8s.io/api/scheduling/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/elasticdl/elasticdl/test/kubetest"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// queueClient returns a client of a cluster with Kueue, with objects of Kueue's, as YAML, and
// others.
func queueClient(t *testing.T, ofKueue []string,
	objects ...runtime.Object) (*Client, *fake.Clientset, *strings.Builder) {
	t.Helper()
	c, set := testClient(objects...)
	set.Resources = []*meta.APIResourceList{{GroupVersion: groupOfKueue + "/v1beta2"}}
	var all []runtime.Object
	for _, text := range ofKueue {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		o.SetAPIVersion(groupOfKueue + "/v1beta2")
		all = append(all, o)
	}
	kind := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: groupOfKueue, Version: "v1beta2", Resource: resource}
	}
	c.objects = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{kind("localqueues"): "LocalQueueList",
			kind("workloads"): "WorkloadList", kind("workloadpriorityclasses"): "WorkloadPriorityClassList"}, all...)
	notes := new(strings.Builder)
	c.notes = notes
	return c, set, notes
}

const (
	queueA   = "kind: LocalQueue\nmetadata: {name: team-a, namespace: default}"
	inactive = "kind: LocalQueue\nmetadata: {name: team-a, namespace: default}\nstatus: {conditions: [{type: Active, " +
		"status: 'False', message: Can't submit new workloads to clusterQueue}]}"
	coreClass    = "kind: WorkloadPriorityClass\nmetadata: {name: elasticdl-core}\nvalue: 0"
	elasticClass = "kind: WorkloadPriorityClass\nmetadata: {name: elasticdl-elastic}\nvalue: -1000"
)

func queuedJob() *job.Job {
	j := kubetest.Job()
	j.Queue = "team-a"
	return j
}

func TestCheckQueue(t *testing.T) {
	for name, test := range map[string]struct {
		ofKueue    []string
		want, note string
	}{
		"there":    {[]string{queueA}, "", ""},
		"none":     {nil, "--queue=team-a: namespace default has no such LocalQueue; it has none", ""},
		"another":  {[]string{strings.ReplaceAll(queueA, "team-a", "team-b")}, "no such LocalQueue; it has team-b", ""},
		"inactive": {[]string{inactive}, "", "queue team-a admits nothing now: Can't submit new workloads"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, notes := queueClient(t, test.ofKueue)
			err := c.checkQueue(t.Context(), queuedJob())
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, expected %q", err, test.want)
			}
			if got := notes.String(); (got == "") != (test.note == "") || !strings.Contains(got, test.note) {
				t.Errorf("notes %q, expected %q", got, test.note)
			}
		})
	}
	c, _ := testClient()
	if err := c.checkQueue(t.Context(), queuedJob()); err == nil || !strings.Contains(err.Error(), "has no Kueue") {
		t.Error(err)
	}
}

// The pods of a namespace that Kueue leaves out would run without quota.
func TestUnqueued(t *testing.T) {
	p := &core.Pod{ObjectMeta: meta.ObjectMeta{Labels: map[string]string{manifest.LabelQueue: "team-a"}}}
	if err := unqueued(queuedJob(), p); err == nil || !strings.Contains(err.Error(), "leaves the pods of namespace") {
		t.Error(err)
	}
	p.Labels[manifest.LabelManaged] = "true"
	if err := unqueued(queuedJob(), p); err != nil {
		t.Error(err)
	}
	if err := unqueued(kubetest.Job(), &core.Pod{}); err != nil {
		t.Error(err)
	}
}

func TestPrioritize(t *testing.T) {
	class := func(name string) runtime.Object {
		return &scheduling.PriorityClass{ObjectMeta: meta.ObjectMeta{Name: name}}
	}
	for name, test := range map[string]struct {
		given      string
		ofKueue    []string
		objects    []runtime.Object
		want, note string
	}{
		"workload classes": {"", []string{coreClass, elasticClass}, nil, job.PrioritiesWorkload, ""},
		"one is missing":   {"", []string{coreClass}, nil, job.PrioritiesNone, "Kueue may preempt the master"},
		"pod classes": {"", nil, []runtime.Object{class("high"), class("low")}, job.PrioritiesPod,
			"PriorityClasses high and low are used"},
		"given": {job.PrioritiesNone, []string{coreClass, elasticClass}, nil, job.PrioritiesNone, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, notes := queueClient(t, test.ofKueue, test.objects...)
			j := queuedJob()
			j.QueuePriorities = test.given
			c.prioritize(t.Context(), j)
			if got := notes.String(); j.QueuePriorities != test.want || (got == "") != (test.note == "") ||
				!strings.Contains(got, test.note) {
				t.Errorf("%s, notes %q", j.QueuePriorities, got)
			}
		})
	}
	c, _ := testClient()
	j := kubetest.Job()
	if c.prioritize(t.Context(), j); j.QueuePriorities != "" {
		t.Errorf("without a queue: %s", j.QueuePriorities)
	}
}

// A job whose classes do not exist is refused: Kueue would ignore its pods.
func TestCheckPriorities(t *testing.T) {
	j := queuedJob()
	j.QueuePriorities = job.PrioritiesWorkload
	c, _, _ := queueClient(t, []string{coreClass})
	if err := c.checkPriorities(t.Context(), j); err == nil || !strings.Contains(err.Error(), "rbac --queues") {
		t.Errorf("one is missing: %v", err)
	}
	c, _, _ = queueClient(t, []string{coreClass, elasticClass})
	if err := c.checkPriorities(t.Context(), j); err != nil {
		t.Errorf("the cluster has both: %v", err)
	}
	j.QueuePriorities = job.PrioritiesNone
	c, _, _ = queueClient(t, nil)
	if err := c.checkPriorities(t.Context(), j); err != nil {
		t.Errorf("none is needed: %v", err)
	}
}

func TestNoteUnsaved(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*job.Job)
		noted  bool
	}{
		"no checkpoints": {func(j *job.Job) { j.CheckpointDir = "" }, true},
		"checkpoints":    {func(j *job.Job) { j.CheckpointDir = "/data/c" }, false},
		"program":        {func(j *job.Job) { j.Type, j.CheckpointDir = job.Run, "" }, false},
	} {
		c, _, notes := queueClient(t, nil)
		j := queuedJob()
		test.change(j)
		if c.noteUnsaved(j); strings.Contains(notes.String(), "starts over") != test.noted {
			t.Errorf("%s: notes %q", name, notes)
		}
	}
}

// gatedPod returns a pod of a job in a queue, which waits for quota.
func gatedPod(t *testing.T, id pod.ID, uid string) *core.Pod {
	t.Helper()
	owner := manifest.Owner(manifest.MasterName("test"), "the-job")
	var p *core.Pod
	var err error
	if id.Role == pod.Master {
		p, err = manifest.Master(queuedJob(), owner)
	} else {
		p, err = manifest.Pod(queuedJob(), manifest.PodSpec{ID: id, Incarnation: 1}, owner)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.Namespace, p.UID = "default", types.UID(uid)
	p.Spec.SchedulingGates = []core.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
	p.Status.Phase = core.PodPending
	return p
}

// workload returns the Workload of a pod that is not admitted.
func workload(uid, message string) string {
	return "kind: Workload\nmetadata: {name: w-" + uid + ", namespace: default, labels: {kueue.x-k8s.io/job-uid: " +
		uid + "}}\nstatus: {conditions: [{type: QuotaReserved, status: 'False', message: \"" + message + "\"}]}"
}

const insufficient = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor " +
	"default, 1 more needed"

func TestStatusOfQueue(t *testing.T) {
	objects, _ := submitted(t, func(j *job.Job) { j.Queue, j.NumWorkers = "team-a", 3 })
	waits := gatedPod(t, pod.ID{Role: pod.Worker, Index: 2}, "waits")
	runs := gatedPod(t, pod.ID{Role: pod.Worker, Index: 1}, "runs")
	runs.Spec.SchedulingGates, runs.Status.Phase = nil, core.PodRunning
	for name, test := range map[string]struct {
		ofKueue []string
		want    string
	}{
		"too little": {[]string{workload("waits", insufficient)}, "waits for quota of queue team-a (1 of 3 workers " +
			"admitted): " + insufficient},
		// the pods of the test were made long ago
		"no workload": {nil, "waits for quota of queue team-a (1 of 3 workers admitted): it has no Workload: Kueue " +
			"does not work, see its pods in namespace kueue-system"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, _ := queueClient(t, test.ofKueue, append(objects, waits, runs)...)
			s, err := c.Status(t.Context(), "test")
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range s.Pods {
				if p.Index == 2 && p.Reason != test.want {
					t.Errorf("worker-2: %s", p.Reason)
				}
			}
		})
	}
	c, _, _ := queueClient(t, nil, append(objects, waits, runs)...)
	c.objects.(*dynamicfake.FakeDynamicClient).PrependReactor("list", "workloads",
		func(kubetesting.Action) (bool, runtime.Object, error) {
			return true, nil, api.NewForbidden(schema.GroupResource{Resource: "workloads"}, "", nil)
		})
	s, err := c.Status(t.Context(), "test")
	if err != nil || !strings.Contains(s.String(), "you may not list workloads.kueue.x-k8s.io") {
		t.Errorf("%v, %v", s, err)
	}
}

// A job whose queue holds it is not resumed: its pods would wait all the same.
func TestResumeOfQueued(t *testing.T) {
	inQueue := func(j *job.Job) { j.Queue = "team-a" }
	objects, _ := submitted(t, inQueue)
	master := gatedPod(t, pod.ID{Role: pod.Master}, "the-master")
	c, _, _ := queueClient(t, []string{workload("the-master", insufficient)}, append(objects, master)...)
	want := "job test waits for quota of queue team-a, which starts it when it admits it: " + insufficient
	if err := c.Resume(t.Context(), "test"); err == nil || err.Error() != want {
		t.Errorf("its master waits: %v", err)
	}

	objects, root := submitted(t, nil)
	root.Labels[manifest.LabelQueue], root.Spec.Suspend = "team-b", new(true)
	c, set := testClient(objects...)
	want = "job test waits for quota of queue team-b, which starts it when it admits it"
	if err := c.Resume(t.Context(), "test"); err == nil || err.Error() != want || len(verbs(set)) > 0 {
		t.Errorf("Kueue has suspended it: %v", err)
	}

	objects, _ = submitted(t, inQueue)
	for _, o := range objects {
		if m, ok := o.(*core.ConfigMap); ok && m.Name == manifest.StateName("test") {
			until := time.Now().Add(time.Hour)
			m.Data = map[string]string{manifest.KeyUID: "the-job", manifest.KeyRest: until.Format(time.RFC3339),
				manifest.KeyStatus: `{"state": "Pending", "reason": "1 of 4 core pods have quota"}`}
			want = "1 of 4 core pods have quota; the job returned its quota and tries again at " +
				until.Format(time.TimeOnly)
		}
	}
	c, _, _ = queueClient(t, nil, objects...)
	if err := c.Resume(t.Context(), "test"); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("it rests: %v", err)
	}
	if s, err := c.Status(t.Context(), "test"); err != nil || s.Reason != want || s.State != "Pending" {
		t.Errorf("it rests: %v, %v", s, err)
	}
}
