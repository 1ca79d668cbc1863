package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Without kwok its nodes would never be ready, and without its program there is nothing to start.
func TestAddKarpenterRefuses(t *testing.T) {
	for _, test := range []struct {
		kwok  int
		files []string
		want  string
	}{
		{0, []string{"karpenter", "karpenter.yaml"}, "cluster up --kwok=N"},
		{1, []string{"karpenter"}, "karpenter.yaml: no such file or directory; `make karpenter` makes it"},
		{1, []string{"karpenter.yaml"}, "karpenter: no such file or directory; `make karpenter` makes it"},
	} {
		s := newState(t, Config{Kwok: test.kwok})
		s.Bin = t.TempDir()
		for _, name := range test.files {
			if err := os.WriteFile(filepath.Join(s.Bin, name), nil, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.addKarpenter(t.Context(), -1); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("with --kwok=%d and %q: %v, want %q", test.kwok, test.files, err, test.want)
		}
	}
}

func TestKarpenterCommand(t *testing.T) {
	s := newState(t, Config{Kwok: 1})
	s.Provisioner = &provisioner{Metrics: "7", Health: "8"}
	c := s.karpenter(10)
	for _, want := range []string{"--metrics-port=7", "--health-probe-port=8", "--spot-instances=10",
		"--instance-types-file-path=" + s.path("instances.json")} {
		if !slices.Contains(c.Args, want) {
			t.Errorf("its arguments are %q, want also %s", c.Args, want)
		}
	}
	// of two entries of a name the last one counts
	if last := c.Env[len(c.Env)-1]; last != "KUBECONFIG="+s.path("admin.kubeconfig") {
		t.Errorf("the last variable is %s", last)
	}
}

// Every instance type is for sale as spot and on demand, and spot is cheaper: Karpenter's provider
// takes the cheapest offering.
func TestInstanceTypes(t *testing.T) {
	for _, kind := range instanceTypes() {
		prices := make(map[string][]float64)
		for _, offering := range kind["offerings"].([]map[string]any) {
			capacity := offering["Requirements"].([]map[string]any)[0]["values"].([]string)[0]
			prices[capacity] = append(prices[capacity], offering["Price"].(float64))
		}
		if len(prices["spot"]) != 2 || len(prices["on-demand"]) != 2 ||
			slices.Max(prices["spot"]) >= slices.Min(prices["on-demand"]) {
			t.Errorf("%s has prices %v, want two of spot, below two of on-demand", kind["name"], prices)
		}
	}
}
