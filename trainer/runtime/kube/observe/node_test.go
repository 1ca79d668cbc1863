package observe

import (
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Taints and conditions that announce the end of a node do, others do not.
func TestNotice(t *testing.T) {
	taint := func(key string) core.NodeSpec {
		return core.NodeSpec{Unschedulable: true, Taints: []core.Taint{
			{Key: "nvidia.com/gpu", Effect: core.TaintEffectNoSchedule},
			{Key: key, Effect: core.TaintEffectNoSchedule}}}
	}
	condition := func(status core.ConditionStatus) core.NodeStatus {
		return core.NodeStatus{Conditions: []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue},
			{Type: "VMEventScheduled", Status: status, Reason: "PreemptScheduled", Message: "Preempt Scheduled\nsoon"}}}
	}
	for _, c := range []struct {
		node core.Node
		want string
	}{
		{core.Node{Spec: taint("cloud.google.com/impending-node-termination")},
			"node n will be taken away: it has the taint cloud.google.com/impending-node-termination"},
		{core.Node{Spec: taint("aws-node-termination-handler/spot-itn")},
			"node n will be taken away: it has the taint aws-node-termination-handler/spot-itn"},
		{core.Node{Spec: taint("karpenter.sh/disrupted")},
			"node n will be taken away: it has the taint karpenter.sh/disrupted"},
		{core.Node{Spec: taint("ToBeDeletedByClusterAutoscaler")},
			"node n will be taken away: it has the taint ToBeDeletedByClusterAutoscaler"},
		{core.Node{Spec: taint("example.com/maintenance")},
			"node n will be taken away: it has the taint example.com/maintenance"},
		{core.Node{Spec: taint("example.com/maintenance-window")}, ""},
		{core.Node{Spec: taint("node.kubernetes.io/unschedulable")}, ""},
		{core.Node{Spec: taint("DeletionCandidateOfClusterAutoscaler")}, ""},
		{core.Node{Spec: taint("node.kubernetes.io/not-ready")}, ""},
		{core.Node{Status: condition(core.ConditionTrue)},
			"node n will be taken away: VMEventScheduled: Preempt Scheduled soon"},
		{core.Node{Status: condition(core.ConditionFalse)}, ""},
		{core.Node{}, ""},
	} {
		c.node.ObjectMeta = meta.ObjectMeta{Name: "n"}
		if got := Notice(&c.node, []string{"example.com/maintenance"}); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
