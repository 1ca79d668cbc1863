package settings

import (
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
)

// A quota may contain every resource that Kubernetes itself counts.
func TestCountedByQuotas(t *testing.T) {
	for _, name := range []core.ResourceName{
		core.ResourceCPU, core.ResourceMemory, core.ResourceEphemeralStorage, core.ResourcePods,
		core.ResourceServices, core.ResourceReplicationControllers,
		core.ResourceQuotas, core.ResourceSecrets, core.ResourceConfigMaps,
		core.ResourcePersistentVolumeClaims, core.ResourceServicesNodePorts,
		core.ResourceServicesLoadBalancers, core.ResourceRequestsCPU, core.ResourceRequestsMemory,
		core.ResourceRequestsStorage,
		core.ResourceRequestsEphemeralStorage, core.ResourceLimitsCPU, core.ResourceLimitsMemory,
		core.ResourceLimitsEphemeralStorage,
		"requests.nvidia.com/gpu", "count/jobs.batch",
	} {
		if !isQuota(string(name)) {
			t.Errorf("%s is refused", name)
		}
	}
	for _, name := range []string{"nvidia.com/gpu", "limits.nvidia.com/gpu", "requests.gpu", "count/",
		strings.ToUpper("pods")} {
		if isQuota(name) {
			t.Errorf("%s is taken", name)
		}
	}
}
