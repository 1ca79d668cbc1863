package manifest

import (
	network "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// isolation returns the policy by which only pods of the job can connect to its pods, if the
// cluster's network enforces policies. The job's own ports authenticate callers, but those that a
// program opens, as NCCL and gloo do, do not. Connections from the pods, to their data for example,
// are not restricted.
func isolation(j *job.Job) *network.NetworkPolicy {
	its := meta.LabelSelector{MatchLabels: map[string]string{LabelApp: App, LabelJob: j.Name}}
	return &network.NetworkPolicy{
		TypeMeta: kind(network.SchemeGroupVersion.String(), "NetworkPolicy"), ObjectMeta: object(j, SpecName(j.Name)),
		Spec: network.NetworkPolicySpec{
			PodSelector: its,
			PolicyTypes: []network.PolicyType{network.PolicyTypeIngress},
			Ingress: []network.NetworkPolicyIngressRule{
				{From: []network.NetworkPolicyPeer{{PodSelector: its.DeepCopy()}}}},
		},
	}
}
