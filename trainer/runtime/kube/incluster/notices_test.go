package incluster

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/test/kubetest"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// node returns a node with taints of these keys.
func node(name string, taints ...string) *core.Node {
	n := &core.Node{ObjectMeta: meta.ObjectMeta{Name: name}}
	for _, key := range taints {
		n.Spec.Taints = append(n.Spec.Taints, core.Taint{Key: key, Effect: core.TaintEffectNoSchedule})
	}
	return n
}

const impending = "cloud.google.com/impending-node-termination"

// When a node will be taken away, the pods on it are asked to leave at once, once each, and their
// end says why. Those on other nodes stay, and so do pods that were created there since.
func TestNoticeOfANode(t *testing.T) {
	s := newAPIServer(t)
	s.nodes = make(map[string]*core.Node)
	s.put(node("node-1"))
	s.put(node("node-2"))
	r := testRuntime(t, s)
	other := pod.ID{Role: pod.Worker, Index: 7}
	s.create(r, worker0, 1)
	s.expect(r, worker0, 1, pod.Pending)
	s.change("elasticdl-test-worker-0", runs)
	s.expect(r, worker0, 1, pod.Running)
	s.create(r, other, 1)
	s.expect(r, other, 1, pod.Pending)
	s.change("elasticdl-test-worker-7", func(p *core.Pod) {
		runs(p)
		p.Spec.NodeName = "node-2"
	})
	s.expect(r, other, 1, pod.Running)

	s.put(node("node-1", "node.kubernetes.io/unschedulable"))
	s.put(node("node-1", "node.kubernetes.io/unschedulable", impending))
	const why = "node node-1 will be taken away: it has the taint " + impending
	if e := s.expect(r, worker0, 1, pod.Leaving); !e.Exit.Preempted || e.Exit.Reason != why {
		t.Errorf("it leaves with %+v", e.Exit)
	}
	s.change("elasticdl-test-worker-0", exits(0))
	if e := s.expect(r, worker0, 1, pod.Succeeded); e.Exit.Cause() != "preempted" || e.Exit.Reason != why {
		t.Errorf("it ended with %+v", e.Exit)
	}
	s.change("elasticdl-test-worker-0", nil)

	// it tolerates the taint
	s.born = meta.NewTime(time.Now().Add(time.Minute))
	s.create(r, worker0, 2)
	s.expect(r, worker0, 2, pod.Pending)
	s.change("elasticdl-test-worker-0", runs)
	s.expect(r, worker0, 2, pod.Running)
	s.put(node("node-1", impending))
	if s.get("elasticdl-test-worker-7").DeletionTimestamp != nil {
		t.Error("the pod on the other node was asked to leave")
	}
	s.put(node("node-2", "example.com/maintenance"))
	s.quiet(r)
}

// A pod may hear from its cloud what the node does not show: all pods of the node are asked to
// leave, and their replacements are not created there for a while. Neither a later state of the
// node nor another report changes that.
func TestNoticeByAPod(t *testing.T) {
	s := newAPIServer(t)
	s.nodes = make(map[string]*core.Node)
	s.put(node("node-1"))
	r := testRuntime(t, s)
	beside, other := pod.ID{Role: pod.Worker, Index: 1}, pod.ID{Role: pod.Worker, Index: 2}
	const why = "AWS announces: terminate at 2026-11-28T08:22:00Z"
	if r.takenAway(worker0, 1, why) {
		t.Error("the node of a pod that does not exist is known")
	}
	for id, node := range map[pod.ID]string{worker0: "node-1", beside: "node-1", other: "node-2"} {
		s.create(r, id, 1)
		s.expect(r, id, 1, pod.Pending)
		s.change("elasticdl-test-"+id.String(), func(p *core.Pod) {
			runs(p)
			p.Spec.NodeName = node
		})
		s.expect(r, id, 1, pod.Running)
	}
	if r.takenAway(worker0, 2, why) {
		t.Error("the node of a pod of which the watch has not heard is known")
	}
	for range 2 {
		if !r.takenAway(worker0, 1, why) {
			t.Error("the node is not known")
		}
	}
	left := map[pod.ID]pod.Exit{}
	for range 2 {
		e := <-r.Events()
		left[e.ID] = e.Exit
	}
	for _, id := range []pod.ID{worker0, beside} {
		if e := left[id]; !e.Preempted || e.Reason != "node node-1 will be taken away: "+why {
			t.Errorf("%v leaves with %+v", id, e)
		}
		s.change("elasticdl-test-"+id.String(), exits(143))
		s.expect(r, id, 1, pod.Failed)
		s.change("elasticdl-test-"+id.String(), nil)
	}
	s.put(node("node-1", "node.kubernetes.io/unschedulable"))
	s.create(r, worker0, 2)
	s.expect(r, worker0, 2, pod.Pending)
	avoids := s.get("elasticdl-test-worker-0").Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if f := avoids.NodeSelectorTerms[0].MatchFields; len(f) != 1 || f[0].Values[0] != "node-1" {
		t.Errorf("the replacement avoids %+v", f)
	}
	if s.get("elasticdl-test-worker-2").DeletionTimestamp != nil {
		t.Error("the pod on the other node was asked to leave")
	}
	if names := r.avoided(time.Now().Add(avoidFor)); names != nil {
		t.Errorf("it avoids %q for ever", names)
	}
	s.quiet(r)
}

// A pod that finds no node while it avoids one is replaced after a while: the node may be back. One
// that waits for quota is not.
func TestNoNodeIsAvoidedForEver(t *testing.T) {
	s := newAPIServer(t)
	r := testRuntime(t, s)
	r.start()
	s.born = meta.NewTime(time.Now())
	worker := func(i int) pod.ID { return pod.ID{Role: pod.Worker, Index: i} }
	for i, avoided := range [][]string{nil, {"node-2"}, {"node-2"}, {"node-2"}} {
		p, err := manifest.Pod(kubetest.Job(), manifest.PodSpec{ID: worker(i), Incarnation: 1},
			manifest.Owner("elasticdl-test-master", "the-job"))
		if err != nil {
			t.Fatal(err)
		}
		manifest.Avoid(p, avoided)
		p.Status.Phase = core.PodPending
		if i != 2 { // it gets no node
			p.Spec.SchedulingGates = []core.PodSchedulingGate{{Name: "example.com/gate"}}
			p.Status.Conditions = []core.PodCondition{{Type: core.PodScheduled, Status: core.ConditionFalse,
				Reason: core.PodReasonUnschedulable}}
		}
		if i == 3 { // it waits for quota
			p.Status.Conditions[0].Reason = core.PodReasonSchedulingGated
		}
		s.put(p)
		s.expect(r, worker(i), 1, pod.Pending)
	}
	r.reconcile(time.Now().Add(avoidFor - time.Minute))
	for _, k := range r.known {
		if k.notice != "" {
			t.Errorf("%s leaves too early", k.name)
		}
	}
	r.reconcile(time.Now().Add(avoidFor + time.Minute))
	const why = "the node that it avoids may be back"
	if e := s.expect(r, worker(1), 1, pod.Deleted); !e.Exit.Preempted || e.Exit.Reason != why {
		t.Errorf("it leaves with %+v", e.Exit)
	}
	s.quiet(r)
}

// A notice by a pod and a taint do not hide each other: a node that came back under its name may
// get a taint, and a pod that tolerates a taint may hear from its cloud.
func TestNoticesByBoth(t *testing.T) {
	s := newAPIServer(t)
	r := testRuntime(t, s)
	r.Close() // the test acts as the watch
	s.create(r, worker0, 1)
	p := s.get(manifest.PodName("test", worker0)).DeepCopy()
	begins := func(at time.Time) {
		p.UID += "-next"
		runs(p)
		p.Spec.NodeName, p.CreationTimestamp = "node-1", meta.NewTime(at)
		r.last[worker0] = p.UID
		r.seen(p, at)
		if why := r.known[p.UID].notice; why != "" {
			t.Fatalf("it leaves: %s", why)
		}
	}
	now := time.Now()
	begins(now.Add(-time.Minute))
	r.takenAway(worker0, 1, "AWS announces: stop")
	if r.known[p.UID].notice == "" {
		t.Error("it stays although its cloud takes its node")
	}
	now = now.Add(2 * avoidFor)
	begins(now)
	now = now.Add(time.Minute)
	r.noticed(node("node-1", impending), now)
	if why := r.known[p.UID].notice; !strings.HasSuffix(why, impending) {
		t.Errorf("after an old notice of the cloud it leaves the taint by %q", why)
	}
	if names := r.avoided(now); names != nil {
		t.Errorf("%q are avoided, although the scheduler sees the taint", names)
	}

	herald{r}.Delete(node("node-1"))
	r.noticed(node("node-1", impending), now.Add(-3*avoidFor))
	begins(time.Now().Add(-time.Second)) // it tolerates the taint
	if !r.takenAway(worker0, 1, "AWS announces: terminate") || !strings.Contains(r.known[p.UID].notice, "terminate") {
		t.Errorf("it leaves by %q", r.known[p.UID].notice)
	}
	if names := r.avoided(time.Now()); len(names) != 1 {
		t.Errorf("%q are avoided", names)
	}
}

// Taints that the job names are notices, too. A master asks the pods that were there before it.
func TestNoticeBeforeTheMaster(t *testing.T) {
	s := newAPIServer(t)
	s.nodes = make(map[string]*core.Node)
	s.put(node("node-1", "example.com/maintenance"))
	s.create(testRuntime(t, s), worker0, 1)
	s.change("elasticdl-test-worker-0", runs)
	j := kubetest.Job()
	j.NoticeTaints = []string{"example.com/maintenance"}
	r := NewRuntime(RuntimeConfig{Client: s.client(), Job: j, Rate: 10_000,
		Owner: manifest.Owner("elasticdl-test-master", "the-job"),
		Log:   slog.New(logline.New(t.Output(), slog.LevelDebug))})
	t.Cleanup(r.Close)
	if _, err := r.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.await("the pod to be asked to leave", func() bool {
		return s.pods["elasticdl-test-worker-0"].DeletionTimestamp != nil
	})
}

// A master that may not watch nodes logs that once, with what to do, and works.
func TestNoticesNotAllowed(t *testing.T) {
	s := newAPIServer(t)
	var log strings.Builder
	said := make(chan struct{}, 100)
	r := NewRuntime(RuntimeConfig{Client: s.client(), Job: kubetest.Job(), Rate: 10_000,
		Owner: manifest.Owner("elasticdl-test-master", "the-job"),
		Log: slog.New(slog.NewTextHandler(writer(func(p []byte) {
			log.Write(p)
			if strings.Contains(string(p), "elasticdl rbac --nodes") {
				said <- struct{}{}
			}
		}), nil))})
	t.Cleanup(r.Close)
	s.create(r, worker0, 1)
	s.expect(r, worker0, 1, pod.Pending)
	<-said
	s.quiet(r)
	r.Close()
	if n := strings.Count(log.String(), "rbac --nodes"); n != 1 {
		t.Errorf("said %d times: %s", n, log.String())
	}
}

// writer is a function that takes what is written.
type writer func([]byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}
