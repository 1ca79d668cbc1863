package manifest

import (
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/pod"
)

// doNotDisrupt is read by Karpenter: a node with a pod that says "true" is not consolidated, nor replaced for its age.
const doNotDisrupt = "karpenter.sh/do-not-disrupt"

// disruption lets drains and autoscalers take one at a time of the master and the servers: a master comes back and the pods work on
// meanwhile, but while it is away no server may be evicted, and no two servers at once. Workers may go at any time. A pod
// that is not ready protects nothing, and may be evicted always.
func disruption(j *job.Job) *policy.PodDisruptionBudget {
	least := intstr.FromInt32(int32(j.NumPS))
	return &policy.PodDisruptionBudget{
		TypeMeta: kind("policy/v1", "PodDisruptionBudget"), ObjectMeta: object(j, SpecName(j.Name)),
		Spec: policy.PodDisruptionBudgetSpec{
			MinAvailable: &least,
			Selector: &meta.LabelSelector{
				MatchLabels: map[string]string{LabelApp: App, LabelJob: j.Name},
				MatchExpressions: []meta.LabelSelectorRequirement{{
					Key: LabelRole, Operator: meta.LabelSelectorOpIn, Values: []string{pod.Master.String(), pod.PS.String()},
				}},
			},
			UnhealthyPodEvictionPolicy: new(policy.AlwaysAllow),
		},
	}
}
