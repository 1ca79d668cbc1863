package manifest

import (
	"slices"
	"testing"

	network "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

// Every pod of a job is reached by every pod of the same job, on all ports, and by no other; where
// they connect to is not limited.
func TestIsolation(t *testing.T) {
	j := parse(t, everything)
	s, err := Submit(j)
	if err != nil {
		t.Fatal(err)
	}
	s.OwnedBy("u")
	its := s.Isolation
	if !slices.Equal(its.Spec.PolicyTypes, []network.PolicyType{network.PolicyTypeIngress}) ||
		len(its.Spec.Egress) != 0 || len(its.OwnerReferences) != 1 {
		t.Errorf("%+v", its)
	}
	if len(its.Spec.Ingress) != 1 || len(its.Spec.Ingress[0].Ports) != 0 || len(its.Spec.Ingress[0].From) != 1 {
		t.Fatalf("%+v", its.Spec.Ingress)
	}
	from := its.Spec.Ingress[0].From[0]
	if from.NamespaceSelector != nil || from.IPBlock != nil {
		t.Errorf("from outside the namespace: %+v", from)
	}
	pods := map[string]map[string]string{"master": s.Master.Labels}
	for _, id := range []pod.ID{ps(0), ps(1), worker(0), worker(7)} {
		pods[id.String()] = mustPod(t, j, PodSpec{ID: id, Incarnation: 2}).Labels
	}
	for what, selector := range map[string]*meta.LabelSelector{"may be reached": from.PodSelector,
		"is protected": &its.Spec.PodSelector} {
		selects, err := meta.LabelSelectorAsSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		for name, of := range pods {
			if !selects.Matches(labels.Set(of)) {
				t.Errorf("%s: not that it %s", name, what)
			}
		}
		for name, of := range map[string]map[string]string{
			"another job": PodLabels("another", worker(0)), "anybody": {},
			"another App": {LabelJob: j.Name}, "any job": {LabelApp: App},
		} {
			if selects.Matches(labels.Set(of)) {
				t.Errorf("%s %s", name, what)
			}
		}
	}
}
