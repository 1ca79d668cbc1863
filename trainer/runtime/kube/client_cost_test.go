package kube

import (
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/elasticdl/elasticdl/test/kubetest"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/price"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// nodeOf returns a node with 2 CPUs and 8 GiB.
func nodeOf(name, machine string, labels ...string) *core.Node {
	n := &core.Node{ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{
		"node.kubernetes.io/instance-type": machine}}}
	for i := 0; i < len(labels); i += 2 {
		n.Labels[labels[i]] = labels[i+1]
	}
	n.Status.Allocatable = core.ResourceList{core.ResourceCPU: resource.MustParse("2"),
		core.ResourceMemory: resource.MustParse("8Gi")}
	return n
}

// asks makes a pod request CPUs, on a node.
func asks(cpu, node string, since time.Duration) func(*core.Pod) {
	return func(p *core.Pod) {
		at := meta.NewTime(time.Now().Add(-since))
		p.Spec.NodeName, p.Status.StartTime = node, &at
		if node == "" {
			p.Status.StartTime = nil
		}
		if cpu != "" {
			p.Spec.Containers[1].Resources.Requests = core.ResourceList{core.ResourceCPU: resource.MustParse(cpu)}
		}
	}
}

// The cost of a job is the sum of its pods' parts of their nodes. Without the right to get nodes,
// or on nodes without a price, none is known.
func TestCost(t *testing.T) {
	worker := func(n int) pod.ID { return pod.ID{Role: pod.Worker, Index: n} }
	for name, test := range map[string]struct {
		objects []runtime.Object
		denied  bool
		want    string // the beginning of the text; "" = no cost
	}{
		"two pods and one without a node": {[]runtime.Object{
			nodeOf("a", "m6i.large"), nodeOf("b", "n1-standard-8", "cloud.google.com/gke-spot", "true"),
			podOf(worker(0), core.PodRunning, asks("1", "a", 10*time.Hour)),
			podOf(worker(1), core.PodRunning, asks("2", "b", 5*time.Hour)),
			podOf(worker(2), core.PodPending, asks("2", "", 0)),
		}, false, "about 1.15 $ so far, 0.18 $/h now (m6i.large on demand, n1-standard-8 spot; prices of " +
			"us-central1, 2026-08; us-east-1, 2026-07)"},
		"a node that was removed, one without a price, and a pod without requests": {[]runtime.Object{
			nodeOf("a", "m6i.large"), nodeOf("c", "k3s"),
			podOf(worker(0), core.PodRunning, asks("1", "a", 10*time.Hour)),
			podOf(worker(1), core.PodRunning, asks("1", "removed", time.Hour)),
			podOf(worker(2), core.PodRunning, asks("1", "c", time.Hour)),
			podOf(worker(3), core.PodRunning, asks("", "a", time.Hour)),
		}, false, "about 0.48 $ so far, 0.05 $/h now (m6i.large on demand; prices of us-east-1, 2026-07); " +
			"not counted: 3 pods without a known price"},
		"no price": {[]runtime.Object{nodeOf("c", "k3s"),
			podOf(worker(0), core.PodRunning, asks("1", "c", time.Hour))}, false, ""},
		"no right": {[]runtime.Object{nodeOf("a", "m6i.large"),
			podOf(worker(0), core.PodRunning, asks("1", "a", time.Hour))}, true, ""},
		"no pod": {nil, false, ""},
	} {
		objects, _ := submitted(t, nil)
		c, set := testClient(append(objects, test.objects...)...)
		if test.denied {
			kubetest.Fail(set, "get", "nodes", 1, kubetest.Forbidden("get", "nodes"))
		}
		got := c.Cost(t.Context(), &wire.JobStatus{Name: "test"})
		if (got != nil) != (test.want != "") || !strings.HasPrefix(got.GetText(), test.want) {
			t.Errorf("%s:\n got %v\nwant %s", name, got.GetText(), test.want)
		}
	}
}

// Pods that only the journal knows are billed from the time at which they joined until their end.
func TestBilledByJournal(t *testing.T) {
	at := func(minutes int) int64 { return morning.Add(time.Duration(minutes) * time.Minute).UnixMilli() }
	past := []journal.Entry{
		{Kind: journal.JobStarted, UnixMs: at(0)},
		{Kind: journal.PodJoined, Pod: "worker-0", Incarnation: 1, UnixMs: at(1)},
		{Kind: journal.PodJoined, Pod: "ps-0", Incarnation: 1, UnixMs: at(2)},
		{Kind: journal.PodLost, Pod: "worker-0", Incarnation: 1, UnixMs: at(31)},
		{Kind: journal.PodJoined, Pod: "worker-0", Incarnation: 2, UnixMs: at(33)},
		{Kind: journal.PodLost, Pod: "worker-7", Incarnation: 1, UnixMs: at(34)}, // it never joined
	}
	// podOf makes the second incarnation of it
	there := *podOf(pod.ID{Role: pod.Worker}, core.PodRunning, nil)
	got := billed([]core.Pod{there}, nil, past, morning.Add(time.Hour))
	want := []price.Pod{
		{Role: "worker", Start: morning.Time},
		{Role: "worker", Start: morning.Add(time.Minute), End: morning.Add(31 * time.Minute)},
		{Role: "ps", Start: morning.Add(2 * time.Minute), End: morning.Add(time.Hour)},
	}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, p := range got {
		if w := want[i]; p.Role != w.Role || !p.Start.Equal(w.Start) || !p.End.Equal(w.End) {
			t.Errorf("%+v, want %+v", p, w)
		}
	}
}
