package manifest

import (
	"strings"

	core "k8s.io/api/core/v1"
)

// avoids is the annotation of a pod that avoids nodes by name.
const avoids = "elasticdl.dev/avoids-nodes"

// Avoids reports whether a pod was made by [Avoid].
func Avoids(p *core.Pod) bool { return p.Annotations[avoids] != "" }

// Avoid makes the scheduler not place a pod on these nodes.
func Avoid(p *core.Pod, nodes []string) {
	if len(nodes) == 0 {
		return
	}
	if p.Annotations == nil {
		p.Annotations = make(map[string]string)
	}
	p.Annotations[avoids] = strings.Join(nodes, ",")
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = new(core.Affinity)
	}
	if p.Spec.Affinity.NodeAffinity == nil {
		p.Spec.Affinity.NodeAffinity = new(core.NodeAffinity)
	}
	a := p.Spec.Affinity.NodeAffinity
	if a.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		a.RequiredDuringSchedulingIgnoredDuringExecution = &core.NodeSelector{
			NodeSelectorTerms: make([]core.NodeSelectorTerm, 1)}
	}
	// a node has to match one of the terms, and of that all requirements
	terms := a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i := range terms {
		for _, name := range nodes { // the API takes one value each
			terms[i].MatchFields = append(terms[i].MatchFields, core.NodeSelectorRequirement{
				Key: "metadata.name", Operator: core.NodeSelectorOpNotIn, Values: []string{name}})
		}
	}
}
