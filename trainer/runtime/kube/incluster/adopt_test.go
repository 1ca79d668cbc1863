package incluster

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// brief returns an event as a short text.
func brief(e pod.Event) string {
	return strings.TrimSpace(fmt.Sprintf("%v/%d %v %s %d", e.ID, e.Incarnation, e.Phase, e.Node, e.Exit.Code))
}

func (s *apiServer) next(r *Runtime, n int) []string {
	s.Helper()
	var all []string
	for range n {
		select {
		case e := <-r.Events():
			all = append(all, brief(e))
		case <-time.After(30 * time.Second):
			s.Fatalf("%d events, expected %d: %q", len(all), n, all)
		}
	}
	slices.Sort(all)
	return all
}

// A restarted master finds each pod of the earlier one once, with its present phase. Later changes,
// also during the listing, are reported once.
func TestRuntimeAdopts(t *testing.T) {
	s := newAPIServer(t)
	before := testRuntime(t, s)
	worker := func(n int) pod.ID { return pod.ID{Role: pod.Worker, Index: n} }
	name := func(id pod.ID) string { return manifest.PodName("test", id) }
	s.create(before, ps0, 2)
	for n := range 5 {
		s.create(before, worker(n), 1)
	}
	s.change(name(ps0), runs)
	s.change(name(worker(1)), exits(3))
	s.change(name(worker(2)), preempted)
	s.change(name(worker(3)), runs)
	before.Close()
	s.put(&core.Pod{ObjectMeta: meta.ObjectMeta{
		Name: name(worker(7)), Namespace: "default", Labels: manifest.PodLabels("test", worker(7)),
		OwnerReferences: []meta.OwnerReference{manifest.Owner("elasticdl-test-master", "another-job")},
	}})

	r := testRuntime(t, s)
	looked := false
	// when the list is made, and before it is received
	s.after = func(method, path string) error {
		if method == http.MethodGet && strings.HasSuffix(path, "/pods") && !looked {
			looked = true
			s.change(name(worker(0)), nil)
			s.change(name(worker(3)), exits(0))
			// a pod that the earlier master was creating
			late := s.get(name(worker(4))).DeepCopy()
			late.Name, late.Labels = name(worker(9)), manifest.PodLabels("test", worker(9))
			s.put(late)
		}
		return nil
	}
	events, err := r.Adopt(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range events {
		got = append(got, brief(e))
	}
	slices.Sort(got)
	want := []string{"ps-0/2 Running node-1 0", "worker-0/1 Pending node-1 0", "worker-1/1 Failed node-1 3",
		"worker-2/1 Leaving node-1 0", "worker-3/1 Running node-1 0", "worker-4/1 Pending node-1 0"}
	if !slices.Equal(got, want) {
		t.Errorf("it finds\n%q, expected\n%q", got, want)
	}
	want = []string{"worker-0/1 Deleted node-1 0", "worker-3/1 Succeeded node-1 0", "worker-9/0 Pending node-1 0"}
	if got := s.next(r, 3); !slices.Equal(got, want) {
		t.Errorf("meanwhile\n%q, expected\n%q", got, want)
	}

	s.change(name(worker(4)), runs)
	s.expect(r, worker(4), 1, pod.Running)
	creates := s.creates
	// as if the earlier master was lost before its creation was answered
	s.create(r, worker(4), 1)
	if p := s.get(name(worker(4))); s.creates != creates+1 || p.Status.Phase != core.PodRunning {
		t.Errorf("it was made again: %v", p.Status.Phase)
	}
	if err := r.Delete(t.Context(), ps0); err != nil {
		t.Fatal(err)
	}
	s.expect(r, ps0, 2, pod.Leaving)
	s.change(name(ps0), nil)
	s.expect(r, ps0, 2, pod.Deleted)
	s.quiet(r)
}

// Adopt waits for an API server that does not answer, as all requests do.
func TestRuntimeAdoptsLater(t *testing.T) {
	s := newAPIServer(t)
	before := testRuntime(t, s)
	s.create(before, worker0, 1)
	before.Close()
	s.away(true)
	time.AfterFunc(200*time.Millisecond, func() { s.away(false) })
	if events, err := testRuntime(t, s).Adopt(t.Context()); err != nil || len(events) != 1 {
		t.Errorf("%v, %v", events, err)
	}
}
