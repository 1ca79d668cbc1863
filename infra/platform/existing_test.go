package platform

import (
	"strings"
	"testing"

	core "k8s.io/api/core/v1"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/graph"
	"github.com/elasticdl/elasticdl/test/sdk"
)

// K15: a claim for which the cluster makes the volume is protected, and asks for what the settings
// name; a shared one is not requested at all. The provider gets no kubeconfig, so that it reads
// that of its machine: the SDK would store the path of this one.
func TestOnDemand(t *testing.T) {
	t.Setenv("KUBECONFIG", "/home/somebody/config")
	s := configured(settings.CloudMinikube)
	all, p, err := record(t, s, false, onDemand)
	if err != nil {
		t.Fatal(err)
	}
	if p.Claim != "data" {
		t.Errorf("the claim is %q", p.Claim)
	}
	claim := graph.Find(all, "kubernetes:core/v1:PersistentVolumeClaim", "claim")
	spec := claim.Inputs["spec"].ObjectValue()
	if class, mode := spec["storageClassName"].V, spec["accessModes"].ArrayValue()[0].V; class != "nfs" ||
		mode != "ReadWriteMany" || spec["volumeName"].HasValue() {
		t.Errorf("the claim asks for %v", spec)
	}
	if !claim.Options.Protect {
		t.Error("`pulumi destroy` deletes the claim, and the data")
	}
	provider := graph.Find(all, providerType, "kubernetes")
	if provider.Inputs["kubeconfig"].HasValue() || provider.Inputs["context"].V != "mine" {
		t.Errorf("the provider has %v", provider.Inputs)
	}

	all, p, err = record(t, s, false, onDemand, func(c *infra.Cluster) {
		c.Volume.OnDemand, c.Volume.Shared = nil, true
	})
	if err != nil || p.Claim != "data" {
		t.Errorf("a shared claim is %q, %v", p.Claim, err)
	}
	for _, r := range all {
		if strings.Contains(r.Type, "PersistentVolume") {
			t.Errorf("%s %s is requested, which is not of the stack", r.Type, r.Name)
		}
	}

	all, _, err = record(t, s, false, onDemand, func(c *infra.Cluster) {
		c.Volume.OnDemand = &infra.OnDemand{AccessMode: core.ReadWriteOnce}
	})
	if err != nil {
		t.Fatal(err)
	}
	claim = graph.Find(all, "kubernetes:core/v1:PersistentVolumeClaim", "claim")
	if claim.Inputs["spec"].ObjectValue()["storageClassName"].HasValue() || claim.Options.Protect {
		t.Errorf("without a class, which is the default of the cluster: %v", claim)
	}
}

// The provider's version is that of its SDK.
func TestSDKVersion(t *testing.T) {
	if is := sdk.Of(t, "github.com/pulumi/pulumi-kubernetes/sdk/v4", "go/kubernetes").Version; is != sdkVersion {
		t.Errorf("the provider is of version %s, go.mod has %s", sdkVersion, is)
	}
}
