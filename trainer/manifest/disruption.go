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

// disruption keeps drains and autoscalers off the master and the servers: all of them are to be available, since a job does
// not outlive its master, and a server that moves stops every worker meanwhile. Workers may go at any time. A pod that is
// not ready protects nothing, and may be evicted always.
func disruption(j *job.Job) *policy.PodDisruptionBudget {
	all := intstr.FromInt32(int32(j.NumPS) + 1)
	return &policy.PodDisruptionBudget{
		TypeMeta: kind("policy/v1", "PodDisruptionBudget"), ObjectMeta: object(j, SpecName(j.Name)),
		Spec: policy.PodDisruptionBudgetSpec{
			MinAvailable: &all,
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
