//go:build e2e

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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

// The API server validates NodePools by Karpenter's resource definitions.
func (s *site) testNodePools(t *testing.T) {
	tr := &trial{site: s, t: t, namespace: "default"}
	tr.defineNodePools()
	pools, err := os.ReadFile("../test/e2e/scale/testdata/nodepools.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ from, to, want string }{
		{"", "", ""},
		{"consolidationPolicy: WhenEmpty", "consolidationPolicy: Never", `Unsupported value: "Never"`},
		{"operator: In, values: [on-demand]", "operator: Within, values: [on-demand]", `Unsupported value: "Within"`},
		{"expireAfter: Never", "expireAfter: 3 weeks", "spec.template.spec.expireAfter"},
		{"reasons: [Empty]", "reason: [Empty]", `unknown field "spec.disruption.budgets[0].reason"`},
		{"elasticdl.org/pool: core", "karpenter.sh/pool: core", `label domain "karpenter.sh" is restricted`},
	} {
		file := filepath.Join(t.TempDir(), "pools.yaml")
		text := strings.Replace(string(pools), test.from, test.to, 1)
		if text == string(pools) && test.want != "" {
			t.Fatalf("no %q in the pools", test.from)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := tr.try("kubectl", "apply", "--dry-run=server", "--validate=strict", "-f", file)
		if accepted := err == nil; accepted != (test.want == "") || !strings.Contains(out, test.want) {
			t.Errorf("%q instead of %q: %v\n%s\nwant %q", test.to, test.from, err, out, test.want)
		}
	}
}
