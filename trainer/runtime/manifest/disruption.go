package manifest

import (
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

// doNotDisrupt is an annotation for Karpenter: it neither consolidates nor replaces for its age a
// node with a pod that has "true".
const doNotDisrupt = "karpenter.sh/do-not-disrupt"

// disruption returns the budget that lets drains and autoscalers evict one of the master and the
// servers at a time: while the master restarts no server may be evicted, and never two servers at
// once. Workers may be evicted at any time, and so may a pod that is not ready.
func disruption(j *job.Job) *policy.PodDisruptionBudget {
	least := intstr.FromInt32(int32(j.NumPS))
	return &policy.PodDisruptionBudget{
		TypeMeta: kind("policy/v1", "PodDisruptionBudget"), ObjectMeta: object(j, SpecName(j.Name)),
		Spec: policy.PodDisruptionBudgetSpec{
			MinAvailable: &least,
			Selector: &meta.LabelSelector{
				MatchLabels: map[string]string{LabelApp: App, LabelJob: j.Name},
				MatchExpressions: []meta.LabelSelectorRequirement{{
					Key: LabelRole, Operator: meta.LabelSelectorOpIn,
					Values: []string{pod.Master.String(), pod.PS.String()},
				}},
			},
			UnhealthyPodEvictionPolicy: new(policy.AlwaysAllow),
		},
	}
}
