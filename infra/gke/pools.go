package gke

import (
	"maps"
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// labelsOf returns the labels of the nodes of a pool, besides Google's own.
func labelsOf(of settings.PoolOfGKE) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, of.Labels)
	if of.Accelerator != "" {
		labels[gpuLabel] = "true"
	}
	if of.Listed {
		labels[settings.LabelPool] = of.Name
	}
	if of.OnDemand {
		labels[settings.LabelClass] = of.Name
	}
	return labels
}

// taintsOf returns the taints of the nodes of a pool, besides Google's own.
func taintsOf(of settings.PoolOfGKE) []settings.Taint {
	taints := slices.Clone(of.Taints)
	own := func(key, value string) {
		taints = append(taints, settings.Taint{Key: key, Value: value, Effect: "NoSchedule"})
	}
	if of.OnDemand {
		own(settings.LabelClass, of.Name)
	}
	switch {
	case of.Accelerator != "":
		own(gpuTaint, gpuTaintValue)
	case of.Listed:
		own(settings.LabelPool, of.Name)
	case of.Spot:
		own(spotLabel, "true")
	case of.Name == workerPool:
		own(workerTaint, "true")
	}
	return taints
}

// nodesOf returns what workers must select and tolerate to run on the nodes of a pool. They
// tolerate the taint of GPUs anyway if they request any.
func nodesOf(of settings.PoolOfGKE) *infra.Nodes {
	taints := slices.DeleteFunc(taintsOf(of), func(t settings.Taint) bool { return t.Key == gpuTaint })
	if of.Arm() {
		// Google sets it
		taints = append(taints, settings.Taint{Key: "kubernetes.io/arch", Value: "arm64", Effect: "NoSchedule"})
	}
	n := &infra.Nodes{Tolerations: settings.Tolerations(taints)}
	switch {
	case of.OnDemand:
		n.NodeSelector = map[string]string{settings.LabelClass: of.Name}
	case of.Listed:
		n.NodeSelector = map[string]string{settings.LabelPool: of.Name}
	case of.Accelerator != "":
		n.NodeSelector = map[string]string{gpuLabel: "true"}
	default:
		n.NodeSelector = map[string]string{spotLabel: "true"}
	}
	return n
}

// workersOn returns the nodes of workers.
func (p *parts) workersOn(pool string, gpus bool) *infra.Nodes {
	on := p.s.PoolFor(pool, gpus)
	for _, of := range p.g.AllPools() {
		if of.Name == on {
			return nodesOf(of)
		}
	}
	return nil
}

// place sets which nodes the pods of jobs select and tolerate.
func (p *parts) place(c *infra.Cluster) {
	c.WorkersOn = p.workersOn
	for _, of := range p.g.AllPools() {
		if of.Accelerator != "" {
			c.GPU.NodeSelector = map[string]string{gpuLabel: "true"}
		}
	}
	if w := p.g.WorkerPool; w == nil || !w.Spot {
		// also without the pool: to add one does not change the job
		c.Tolerations = []job.Toleration{{Key: workerTaint, Operator: "Equal", Value: "true", Effect: "NoSchedule"}}
	}
	c.Nodes = p.makers
}

// addFallback creates the pool of on-demand nodes for which a pool of spot nodes has none, and the
// ComputeClass by which GKE prefers the latter.
//
// Source: https://cloud.google.com/kubernetes-engine/docs/concepts/about-custom-compute-classes.
func (p *parts) addFallback(of settings.PoolOfGKE, spot *pulumi.CustomResourceState, after []pulumi.Resource) error {
	fallback := of
	fallback.GKEPool = of.Fallback()
	other, err := p.addPool(of.OnDemandName(), fallback, after...)
	if err != nil {
		return err
	}
	// GKE's names of the pools end their IDs
	name := func(r *pulumi.CustomResourceState) pulumi.StringInput {
		return r.ID().ApplyT(func(id pulumi.ID) string { return path.Base(string(id)) }).(pulumi.StringOutput)
	}
	p.makers = append(p.makers, infra.Object{Name: "class-" + of.Name, Object: ComputeClass(of.Name, holeSpot,
		holeOnDemand),
		Holes: map[string]pulumi.StringInput{holeSpot: name(spot), holeOnDemand: name(other)}})
	return nil
}

// Placeholders in a ComputeClass.
const (
	holeSpot     = "{pool-of-spot-nodes}"
	holeOnDemand = "{pool-of-nodes-on-demand}"
)

// ComputeClass returns a class of nodes of two pools, the first of which is preferred. Pods are not
// moved when the first has nodes again.
func ComputeClass(name, first, second string) *unstructured.Unstructured {
	pools := func(pool string) any { return map[string]any{"nodepools": []any{pool}} }
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"priorities":        []any{pools(first), pools(second)},
		"activeMigration":   map[string]any{"optimizeRulePriority": false},
		"whenUnsatisfiable": "DoNotScaleUp",
	}}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "cloud.google.com", Version: "v1", Kind: "ComputeClass"})
	u.SetName(name)
	return u
}
