package manifest

import (
	"slices"
	"testing"

	core "k8s.io/api/core/v1"
)

// A pod that is to avoid nodes keeps the terms of its own affinity, and avoids them in each: the
// terms are alternatives.
func TestAvoid(t *testing.T) {
	fields := func(p *core.Pod) (names [][]string) {
		selector := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		for _, term := range selector.NodeSelectorTerms {
			var values []string
			for _, f := range term.MatchFields {
				if f.Key != "metadata.name" || f.Operator != core.NodeSelectorOpNotIn || len(f.Values) != 1 {
					t.Errorf("the API refuses %+v", f)
				}
				values = append(values, f.Values...)
			}
			names = append(names, values)
		}
		return names
	}
	plain := mustPod(t, parse(t, little), PodSpec{ID: worker(0), Incarnation: 1})
	had := plain.Spec.Affinity
	if Avoid(plain, nil); plain.Spec.Affinity != had || Avoids(plain) {
		t.Error("an affinity for no node")
	}
	Avoid(plain, []string{"node-1", "node-2"})
	if !Avoids(plain) {
		t.Error("it does not say that it avoids nodes")
	}
	if got := fields(plain); len(got) != 1 || !slices.Equal(got[0], []string{"node-1", "node-2"}) {
		t.Errorf("it avoids %q", got)
	}
	zone := func(name string) core.NodeSelectorTerm {
		return core.NodeSelectorTerm{MatchExpressions: []core.NodeSelectorRequirement{
			{Key: "zone", Operator: core.NodeSelectorOpIn, Values: []string{name}}}}
	}
	choosy := mustPod(t, parse(t, little), PodSpec{ID: worker(0), Incarnation: 1})
	choosy.Spec.Affinity = &core.Affinity{NodeAffinity: &core.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &core.NodeSelector{
			NodeSelectorTerms: []core.NodeSelectorTerm{zone("a"), zone("b")}}}}
	Avoid(choosy, []string{"node-1"})
	terms := choosy.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if got := fields(choosy); len(got) != 2 || len(got[0]) != 1 || len(got[1]) != 1 ||
		terms[1].MatchExpressions[0].Values[0] != "b" {
		t.Errorf("its terms are %+v", terms)
	}
}
