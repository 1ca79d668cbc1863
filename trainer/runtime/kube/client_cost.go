package kube

import (
	"context"
	"slices"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/elastic/price"
	"github.com/elasticdl/elasticdl/trainer/runtime/demand"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Cost returns what the pods of a job have cost, by the types of their nodes. It is nil if no price
// is known: no node has one, or the user may not read nodes, which belong to no namespace. Pods
// that were deleted are known from the job's journal.
func (c *Client) Cost(ctx context.Context, s *wire.JobStatus) *wire.Cost {
	pods, err := c.pods(ctx, s.Name)
	if err != nil {
		return nil
	}
	names := make(map[string]bool)
	for _, p := range pods {
		if p.Spec.NodeName != "" {
			names[p.Spec.NodeName] = true
		}
	}
	// those that were not found, or are too many, have no price
	nodes, _ := each(ctx, c, "node", names, c.set.CoreV1().Nodes().Get)
	if len(nodes) == 0 {
		return nil
	}
	past, err := c.Journal(ctx, s.Name)
	if err != nil {
		return nil
	}
	now := time.Now()
	last := now
	if s.EndedUnixMs > 0 {
		last = time.UnixMilli(s.EndedUnixMs)
	}
	return costOf(price.Sum(billed(pods, nodes, past.Entries, last), now))
}

// costOf returns a cost as status prints it; nil if no price is known.
func costOf(c price.Cost) *wire.Cost {
	if !c.Known() {
		return nil
	}
	return &wire.Cost{Spent: c.Spent, Hour: c.Hour, Machines: c.Machines, Of: c.Of, Assumed: int32(c.Assumed),
		Unknown: int32(c.Unknown), Text: c.String()}
}

// billed returns the pods of a job, also those that only its journal knows. One of these without an
// end in the journal has ended by last.
func billed(pods []core.Pod, nodes []*core.Node, past []journal.Entry, last time.Time) (all []price.Pod) {
	type key struct {
		name        string
		incarnation int
	}
	there := make(map[key]bool)
	for _, p := range pods {
		if _, id, incarnation, ok := manifest.ParseLabels(p.Labels); ok {
			there[key{id.String(), incarnation}] = true
		}
		all = append(all, billedPod(&p, nodes))
	}
	began := make(map[key]time.Time)
	var order []key
	for _, e := range past {
		k := key{e.Pod, e.Incarnation}
		switch {
		case e.Pod == "" || there[k]:
		case e.Kind == journal.PodJoined:
			began[k] = e.Time()
			order = append(order, k)
		case slices.Contains(ends, e.Kind) && !began[k].IsZero():
			all = append(all, price.Pod{Role: roleOf(k.name), Start: began[k], End: e.Time()})
			delete(began, k)
		}
	}
	for _, k := range order {
		if at := began[k]; !at.IsZero() {
			all = append(all, price.Pod{Role: roleOf(k.name), Start: at, End: last})
			delete(began, k)
		}
	}
	return all
}

// ends lists the kinds of entries with which a pod has ended.
var ends = []journal.Kind{journal.PodEnded, journal.PodLost, journal.PodFailed, journal.PodRejected,
	journal.PodReplaced}

// roleOf returns the role of a pod of the journal: "worker" of "worker-1".
func roleOf(name string) string {
	for i := len(name) - 1; i > 0; i-- {
		if name[i] == '-' {
			return name[:i]
		}
	}
	return name
}

// billedPod returns a pod of the cluster with its node.
func billedPod(p *core.Pod, nodes []*core.Node) price.Pod {
	b := price.Pod{Role: p.Labels[manifest.LabelRole]}
	if p.Spec.NodeName == "" {
		return b
	}
	b.Start = p.CreationTimestamp.Time
	if at := p.Status.StartTime; at != nil {
		b.Start = at.Time
	}
	if p.Status.Phase == core.PodSucceeded || p.Status.Phase == core.PodFailed {
		b.End = endOf(p)
	}
	i := slices.IndexFunc(nodes, func(n *core.Node) bool { return n.Name == p.Spec.NodeName })
	if i < 0 {
		return b
	}
	has := amounts(nodes[i].Status.Allocatable)
	b.Share = price.Share(amounts(demand.Requests(&p.Spec)), has)
	b.Machine, _ = price.MachineOf(nodes[i].Labels, int(has["nvidia.com/gpu"]))
	return b
}

func amounts(list core.ResourceList) map[string]float64 {
	all := make(map[string]float64)
	for resource, n := range list {
		all[string(resource)] = n.AsApproximateFloat64()
	}
	return all
}
