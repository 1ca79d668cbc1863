package platform

import (
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/trainer/manifest"
)

// networkPolicy lets nobody talk to the pods of a namespace, but where another policy does: that of a job lets its own pods. They may
// talk to what jobs need: each other, names, the API of Kubernetes, HTTPS, and the address where the cloud tells a pod who it is. Shared
// storage needs no rule, since it is the node that mounts it, nor do probes and port forwarding, which come from the node.
func networkPolicy(in, cloud string) *networking.NetworkPolicy {
	each := []networking.NetworkPolicyPeer{{PodSelector: &meta.LabelSelector{}}}
	egress := []networking.NetworkPolicyEgressRule{
		{To: each},
		{Ports: ports(core.ProtocolUDP, 53)}, // also to a cache of the node, which no selector names
		{Ports: ports(core.ProtocolTCP, 53, 443, 6443, 8443)},
	}
	for _, m := range metadata[cloud] {
		egress = append(egress, networking.NetworkPolicyEgressRule{
			To: []networking.NetworkPolicyPeer{{IPBlock: &networking.IPBlock{CIDR: m.cidr}}}, Ports: ports(core.ProtocolTCP, m.port),
		})
	}
	return &networking.NetworkPolicy{
		TypeMeta: kind("networking.k8s.io/v1", "NetworkPolicy"), ObjectMeta: object(in, manifest.App),
		Spec: networking.NetworkPolicySpec{
			PolicyTypes: []networking.PolicyType{networking.PolicyTypeIngress, networking.PolicyTypeEgress},
			Egress:      egress,
		},
	}
}

// metadata is where a cloud tells a pod who it is. Google's is at the first address where the cluster is of Dataplane
// V2, and at the second where it is not.
var metadata = map[string][]struct {
	cidr string
	port int32
}{
	settings.CloudGKE: {{"169.254.169.254/32", 80}, {"169.254.169.252/32", 988}},
	settings.CloudEKS: {{"169.254.170.23/32", 80}, {"fd00:ec2::23/128", 80}},
}

func ports(protocol core.Protocol, numbers ...int32) []networking.NetworkPolicyPort {
	var all []networking.NetworkPolicyPort
	for _, n := range numbers {
		all = append(all, networking.NetworkPolicyPort{Protocol: new(protocol), Port: new(intstr.FromInt32(n))})
	}
	return all
}
