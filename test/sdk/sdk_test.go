package sdk

import (
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// Each kind of mistake is found, at any depth, and what is right is accepted.
func TestObject(t *testing.T) {
	all := map[string]map[string]string{
		"VpcArgs": {"cidr": "pulumi.StringPtrInput", "dns": "pulumi.BoolPtrInput", "hops": "pulumi.IntInput",
			"zones": "pulumi.StringArrayInput", "tags": "pulumi.StringMapInput", "disk": "VpcDiskPtrInput",
			"rules": "VpcRuleArrayInput"},
		"VpcDiskArgs": {"size": "pulumi.IntPtrInput"},
		"VpcRuleArgs": {"port": "pulumi.IntInput", "disk": "VpcDiskPtrInput"},
	}
	for _, test := range []struct {
		is   map[string]any
		want string
	}{
		{map[string]any{"cidr": "10.0.0.0/16", "dns": true, "hops": 1.0, "zones": []any{"a"},
			"tags": map[string]any{"a": "b"}, "disk": map[string]any{"size": 1.0},
			"rules": []any{map[string]any{"port": 1.0, "disk": map[string]any{"size": 2.0}}}}, ""},
		{map[string]any{"cidr": resource.MakeSecret(resource.NewProperty("s")),
			"dns": resource.MakeComputed(resource.NewProperty(""))}, ""},
		{map[string]any{"cdir": "10.0.0.0/16"}, "r: VpcArgs has no cdir"},
		{map[string]any{"cidr": true}, "r.cidr: {true}, expected pulumi.String"},
		{map[string]any{"dns": "true"}, "r.dns: {true}, expected pulumi.Bool"},
		{map[string]any{"hops": "1"}, "r.hops: {1}, expected pulumi.Int"},
		{map[string]any{"zones": "a"}, "r.zones: {a}, expected a list"},
		{map[string]any{"zones": []any{1.0}}, "r.zones[0]: {1}, expected pulumi.String"},
		{map[string]any{"tags": "a"}, "r.tags: {a}, expected a map"},
		{map[string]any{"tags": map[string]any{"a": 1.0}}, "r.tags.a: {1}, expected pulumi.String"},
		{map[string]any{"disk": "a"}, "r.disk: {a}, expected an object"},
		{map[string]any{"disk": map[string]any{"sise": 1.0}}, "r.disk: VpcDiskArgs has no sise"},
		{map[string]any{"rules": []any{map[string]any{"disk": map[string]any{"size": "1"}}}},
			"r.rules[0].disk.size: {1}, expected pulumi.Int"},
	} {
		got := object(all, "VpcArgs", resource.NewProperty(resource.NewPropertyMapFromMap(test.is)), "r")
		if strings.Join(got, "\n") != test.want {
			t.Errorf("%v: %q, want %q", test.is, got, test.want)
		}
	}
	if got := object(all, "Eip", resource.NewProperty(resource.PropertyMap{}), "r"); !slices.Equal(got,
		[]string{"r: the SDK has no Eip"}) {
		t.Errorf("an unknown type: %q", got)
	}
}
