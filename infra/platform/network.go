package platform

import (
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// networkPolicy returns a policy that blocks connections to the pods of a namespace, unless another
// policy allows them: that of a job allows its own pods. The pods may connect to what jobs need:
// each other, DNS, the API of Kubernetes, HTTPS, and the cloud's metadata server. Shared storage
// needs no rule, because the node mounts it; nor do probes and port forwarding, which come from the
// node.
func networkPolicy(in, cloud string) *networking.NetworkPolicy {
	each := []networking.NetworkPolicyPeer{{PodSelector: &meta.LabelSelector{}}}
	egress := []networking.NetworkPolicyEgressRule{
		{To: each},
		// also to a DNS cache on the node, which no selector can name
		{Ports: ports(core.ProtocolUDP, 53)},
		{Ports: ports(core.ProtocolTCP, 53, 443, 6443, 8443)},
	}
	for _, m := range metadata[cloud] {
		egress = append(egress, networking.NetworkPolicyEgressRule{
			To:    []networking.NetworkPolicyPeer{{IPBlock: &networking.IPBlock{CIDR: m.cidr}}},
			Ports: ports(core.ProtocolTCP, m.port),
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

// metadata has the addresses of the metadata server of each cloud. Google's is at the first address
// in clusters with Dataplane V2, and at the second in others.
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
