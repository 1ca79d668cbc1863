package observe

import (
	"testing"

	core "k8s.io/api/core/v1"
)

// A pod fits no node if the scheduler would not run it even after evictions, on any node. The
// messages are those of Kubernetes 1.36.
func TestFitsNoNode(t *testing.T) {
	for message, want := range map[string]bool{
		"0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. no new " +
			"claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful " +
			"for scheduling.": true,
		"0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s). " +
			"preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.": true,
		"0/2 nodes are available: 2 Insufficient memory. preemption: 0/2 nodes are available: 2 No " +
			"preemption victims found for incoming pod.": false,
		"0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node " +
			"affinity/selector. preemption: 0/2 nodes are available: 1 No preemption victims found " +
			"for incoming pod, 1 Preemption is not helpful for scheduling.": false,
		"no nodes available to schedule pods": false,
		"0/2 nodes are available: 2 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never.": false,
	} {
		p := &core.Pod{Status: core.PodStatus{
			Conditions: []core.PodCondition{{Type: core.PodScheduled, Status: core.ConditionFalse,
				Reason: core.PodReasonUnschedulable, Message: message}}}}
		if got := FitsNoNode(p); got != want {
			t.Errorf("%s: %v", message, got)
		}
		p.Status.Conditions[0].Reason = core.PodReasonSchedulingGated
		if FitsNoNode(p) {
			t.Error("a pod that waits for a queue fits no node")
		}
	}
	if FitsNoNode(new(core.Pod)) {
		t.Error("a pod that nobody has looked at fits no node")
	}
}
