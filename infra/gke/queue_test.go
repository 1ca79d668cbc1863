package gke

import (
	"slices"
	"testing"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/sdk"
)

const typeFirewall = "gcp:compute/firewall:Firewall"

// The Kubernetes API reaches the webhooks of a Kueue that the stack installs on private nodes, and
// nobody else does.
func TestFirewallOfKueue(t *testing.T) {
	source := sdk.Of(t, "github.com/pulumi/pulumi-gcp/sdk/v7", "go/gcp")
	for name, test := range map[string]struct {
		queue   *settings.Queue
		private bool
		want    int
	}{
		"no queue":           {nil, true, 0},
		"a queue of others":  {&settings.Queue{ClusterQueue: "team-a"}, true, 0},
		"on public nodes":    {&settings.Queue{Install: true}, false, 0},
		"on private nodes":   {&settings.Queue{Install: true}, true, 1},
		"an own queue there": {&settings.Queue{Quotas: map[string]string{"cpu": "1"}}, true, 0},
	} {
		s := configured()
		s.GKE.PrivateNodes, s.Platform.Queue = test.private, test.queue
		all, _ := record(t, s, true)
		rules := of(all, typeFirewall)
		if len(rules) != test.want {
			t.Errorf("%s: %d firewalls, want %d", name, len(rules), test.want)
		}
		for _, r := range rules {
			source.Check(t, r)
			want(t, &r, "sourceRanges[0]=172.16.0.32/28", "sourceRanges[1]", "allows[0].protocol=tcp",
				"allows[0].ports[0]=8082", "allows[0].ports[1]=9443", "allows[0].ports[2]", "allows[1]",
				"direction=INGRESS")
			in := find(t, all, typeCluster, "cluster").Options.DependsOn
			if !slices.Contains(in, typeFirewall+" kueue") {
				t.Errorf("the cluster is before the firewall: %v", in)
			}
		}
	}
}
