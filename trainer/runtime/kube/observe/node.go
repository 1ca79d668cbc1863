package observe

import (
	"cmp"
	"fmt"
	"slices"

	core "k8s.io/api/core/v1"
)

// notices are the keys of taints that announce that a node will be taken away soon.
var notices = []string{
	// GKE: a spot or preemptible machine is preempted, or a machine is shut down
	"cloud.google.com/impending-node-termination",
	// AWS Node Termination Handler
	"aws-node-termination-handler/spot-itn",
	"aws-node-termination-handler/scheduled-maintenance",
	"aws-node-termination-handler/asg-lifecycle-termination",
	// Karpenter, and EKS Auto Mode
	"karpenter.sh/disrupted",
	// Cluster Autoscaler
	"ToBeDeletedByClusterAutoscaler",
}

// eventScheduled is the condition of a node of AKS of which the cloud has announced an event.
const eventScheduled core.NodeConditionType = "VMEventScheduled"

// Notice returns why a node will be taken away soon, "" if nothing announces that. A cordon does
// not: its pods may stay. More keys of taints that announce it may be given.
func Notice(n *core.Node, more []string) string {
	for _, t := range n.Spec.Taints {
		if slices.Contains(notices, t.Key) || slices.Contains(more, t.Key) {
			return fmt.Sprintf("node %s will be taken away: it has the taint %s", n.Name, t.Key)
		}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == eventScheduled && c.Status == core.ConditionTrue {
			why := because(string(c.Type), cmp.Or(c.Message, c.Reason))
			return fmt.Sprintf("node %s will be taken away: %s", n.Name, why)
		}
	}
	return ""
}
