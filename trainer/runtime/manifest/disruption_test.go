package manifest

import (
	"testing"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

// A drain takes the master or a server only if all the others of them are ready; who is not ready
// may be evicted always. Workers go.
func TestDisruption(t *testing.T) {
	for _, servers := range []int{0, 2} {
		j := parse(t, little)
		if servers > 0 {
			j = parse(t, everything)
		}
		s, err := Submit(j)
		if err != nil {
			t.Fatal(err)
		}
		s.OwnedBy("u")
		b := s.Disruption
		selector, err := meta.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			t.Fatal(err)
		}
		protects := func(id pod.ID, annotations, of map[string]string, want bool) {
			t.Helper()
			if got := selector.Matches(labels.Set(of)); got != want {
				t.Errorf("%s is protected: %t", id, got)
			}
			if (annotations[doNotDisrupt] == "true") != want || (annotations[safeToEvict] == "false") != want {
				t.Errorf("%s is annotated %v", id, annotations)
			}
		}
		master := s.Master
		protects(pod.ID{Role: pod.Master}, master.Annotations, master.Labels, true)
		for _, id := range []pod.ID{ps(0), worker(0)} {
			if id.Role == pod.PS && servers == 0 {
				continue
			}
			p := mustPod(t, j, PodSpec{ID: id, Incarnation: 1})
			protects(id, p.Annotations, p.Labels, id.Role == pod.PS)
		}
		other := PodLabels("another", ps(0))
		if selector.Matches(labels.Set(other)) {
			t.Error("it protects the servers of another job")
		}
		if b.Spec.MinAvailable.IntValue() != servers ||
			*b.Spec.UnhealthyPodEvictionPolicy != "AlwaysAllow" || b.OwnerReferences[0].UID != types.UID("u") {
			t.Errorf("with %d servers: %+v", servers, b)
		}
	}
}
