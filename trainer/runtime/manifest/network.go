package manifest

import (
	"slices"

	core "k8s.io/api/core/v1"
	network "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// isolation returns the policy by which only pods of the job can connect to its pods, if the
// cluster's network enforces policies. The job's own ports authenticate callers, but those that a
// program opens, as NCCL and gloo do, do not. Pods of the namespaces of --metrics_from can connect
// to the port of the metrics, and to no other. Connections from the pods, to their data for
// example, are not restricted.
func isolation(j *job.Job) *network.NetworkPolicy {
	its := meta.LabelSelector{MatchLabels: map[string]string{LabelApp: App, LabelJob: j.Name}}
	rules := []network.NetworkPolicyIngressRule{{From: []network.NetworkPolicyPeer{{PodSelector: its.DeepCopy()}}}}
	if len(j.MetricsFrom) > 0 {
		rules = append(rules, metricsFrom(j))
	}
	return &network.NetworkPolicy{
		TypeMeta: kind(network.SchemeGroupVersion.String(), "NetworkPolicy"), ObjectMeta: object(j, SpecName(j.Name)),
		Spec: network.NetworkPolicySpec{
			PodSelector: its,
			PolicyTypes: []network.PolicyType{network.PolicyTypeIngress},
			Ingress:     rules,
		},
	}
}

// metricsFrom returns the rule by which pods of other namespaces read the metrics.
func metricsFrom(j *job.Job) network.NetworkPolicyIngressRule {
	of := &meta.LabelSelector{MatchExpressions: []meta.LabelSelectorRequirement{{
		Key: core.LabelMetadataName, Operator: meta.LabelSelectorOpIn, Values: slices.Clone(j.MetricsFrom)}}}
	return network.NetworkPolicyIngressRule{
		From: []network.NetworkPolicyPeer{{NamespaceSelector: of}},
		Ports: []network.NetworkPolicyPort{{Protocol: new(core.ProtocolTCP),
			Port: new(intstr.FromInt32(int32(j.ServesMetrics())))}},
	}
}
