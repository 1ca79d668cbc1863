//go:build e2e

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/elasticdl/elasticdl/infra/gke"
	"github.com/elasticdl/elasticdl/infra/karpenter"
)

// karpenterDefinitions has Karpenter's resource definitions, which `make karpenter` writes.
const karpenterDefinitions = "../build/tools/karpenter.yaml"

// defineNodePools has the API server know NodePools and the other kinds of Karpenter. It can be
// called again. Karpenter itself does not run on this cluster.
func (tr *trial) defineNodePools() {
	tr.t.Helper()
	tr.run("kubectl", "apply", "--server-side", "--force-conflicts", "-f", karpenterDefinitions)
	tr.run("kubectl", "wait", "--for=condition=Established", "--timeout=1m", "-f", karpenterDefinitions)
}

// The API server validates the pools and classes of stacks: by Karpenter's resource definitions,
// and by testdata/definitions.yaml where only the cloud has them.
func (s *site) testNodePools(t *testing.T) {
	tr := &trial{site: s, t: t, namespace: "default"}
	tr.defineNodePools()
	tr.run("kubectl", "apply", "--server-side", "-f", "testdata/definitions.yaml")
	tr.run("kubectl", "wait", "--for=condition=Established", "--timeout=1m", "-f", "testdata/definitions.yaml")
	workers := karpenter.Pool{Name: "workers", Class: karpenter.EC2, Types: []string{"m6i.large"}, Arch: "amd64",
		Zones: []string{"us-west-2a"}, Capacity: []string{"spot", "on-demand"}, Limit: 20, CPUs: 40,
		Labels:    map[string]string{"elasticdl.org/pool": "workers"},
		Taints:    []karpenter.Taint{{Key: "elasticdl.org/pool", Value: "workers", Effect: "NoSchedule"}},
		IdleAfter: 5 * time.Minute}
	core, auto, reserved := workers, workers, workers
	core.Name, core.Core, core.Taints, core.CPUs, core.Zones = "core", true, nil, 0, nil
	auto.Name, auto.Class, auto.Expire = "auto", karpenter.Auto, karpenter.AutoExpire
	reserved.Name, reserved.Capacity = "reserved", []string{"reserved"}
	class := karpenter.Class{Name: "workers", Kind: karpenter.EC2, Identity: "profile", Subnets: []string{"subnet-1"},
		Group: "sg-1", DiskGB: 100, Tags: map[string]string{"team": "ml"}, Image: "al2023@latest"}
	held := class
	held.Name, held.Reservation = "held", "cr-0123456789abcdef0"
	ofAuto := held
	ofAuto.Name, ofAuto.Kind = "auto", karpenter.Auto
	var text strings.Builder
	for _, o := range []any{karpenter.NodePool(core), karpenter.NodePool(workers), karpenter.NodePool(auto),
		karpenter.NodePool(reserved), karpenter.NodeClass(class), karpenter.NodeClass(held),
		karpenter.NodeClass(ofAuto),
		gke.ComputeClass("cheap", "cheap-1", "cheap-on-demand-1")} {
		one, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString("---\n" + string(one))
	}
	for _, test := range []struct{ from, to, want string }{
		{"", "", ""},
		{"consolidationPolicy: WhenEmpty", "consolidationPolicy: Never", `Unsupported value: "Never"`},
		{"operator: In", "operator: Within", `Unsupported value: "Within"`},
		{"expireAfter: Never", "expireAfter: 3 weeks", "spec.template.spec.expireAfter"},
		{"reasons:", "reason:", `unknown field "spec.disruption.budgets[0].reason"`},
		{"elasticdl.org/pool: workers", "karpenter.sh/pool: core", `label domain "karpenter.sh" is restricted`},
		{"httpTokens: required", "httpTokens: maybe", `Unsupported value: "maybe"`},
		{"id: subnet-1", "id: sub-1", "spec.subnetSelectorTerms[0].id"},
		{"ephemeralStorage:", "storage:", `unknown field "spec.storage"`},
		{"whenUnsatisfiable: DoNotScaleUp", "whenUnsatisfiable: Wait", `Unsupported value: "Wait"`},
	} {
		file := filepath.Join(t.TempDir(), "pools.yaml")
		changed := strings.Replace(text.String(), test.from, test.to, 1)
		if changed == text.String() && test.want != "" {
			t.Fatalf("no %q in the pools", test.from)
		}
		if err := os.WriteFile(file, []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := tr.try("kubectl", "apply", "--dry-run=server", "--validate=strict", "-f", file)
		if accepted := err == nil; accepted != (test.want == "") || !strings.Contains(out, test.want) {
			t.Errorf("%q instead of %q: %v\n%s\nwant %q", test.to, test.from, err, out, test.want)
		}
	}
}
