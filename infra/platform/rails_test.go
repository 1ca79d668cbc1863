package platform

import (
	"slices"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// Nodes are drained in pools whose nodes change and in pools that are removed; a new pool drains
// none.
func TestDrained(t *testing.T) {
	pools := func(of map[string]string) resource.PropertyMap {
		m := resource.PropertyMap{}
		for name, nodes := range of {
			m[resource.PropertyKey(name)] = resource.NewProperty(nodes)
		}
		return resource.PropertyMap{"nodes": resource.NewProperty(m)}
	}
	was := pools(map[string]string{"gke.systemPool": "small", "gke.workerPool": "large", "gke.gpuPool": "T4"})
	for _, test := range []struct {
		now  resource.PropertyMap
		want []string
	}{
		{was, nil},
		{pools(map[string]string{"gke.systemPool": "small", "gke.workerPool": "larger",
			"gke.gpuPool": "T4"}), []string{"gke.workerPool"}},
		{pools(map[string]string{"gke.systemPool": "large", "gke.workerPool": "large"}),
			[]string{"gke.gpuPool", "gke.systemPool"}},
		{resource.PropertyMap{}, nil},
	} {
		if got := drained(was, test.now); !slices.Equal(got, test.want) {
			t.Errorf("%v: %v, want %v", test.now, got, test.want)
		}
	}
	if got := drained(pools(map[string]string{"gke.systemPool": "small"}), was); len(got) > 0 {
		t.Errorf("new pools drain %v", got)
	}
}
