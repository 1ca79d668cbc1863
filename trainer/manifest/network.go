package manifest

import (
	network "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/trainer/job"
)

// isolation lets the pods of a job be reached by each other, and by nobody else, where the cluster's network knows policies: the job's
// own ports have whoever dials prove who it is, but those that a program opens, as NCCL and gloo do, ask nobody. Whom the pods
// reach, as their data, it leaves open.
func isolation(j *job.Job) *network.NetworkPolicy {
	its := meta.LabelSelector{MatchLabels: map[string]string{LabelApp: App, LabelJob: j.Name}}
	return &network.NetworkPolicy{
		TypeMeta: kind(network.SchemeGroupVersion.String(), "NetworkPolicy"), ObjectMeta: object(j, SpecName(j.Name)),
		Spec: network.NetworkPolicySpec{
			PodSelector: its,
			PolicyTypes: []network.PolicyType{network.PolicyTypeIngress},
			Ingress:     []network.NetworkPolicyIngressRule{{From: []network.NetworkPolicyPeer{{PodSelector: its.DeepCopy()}}}},
		},
	}
}
