package provider

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// Every type of the tables has its schema. Pulumi's SDK has the same properties as the schema, by
// the names and in the forms that [pulumiName] returns.
func TestAttributesAndSDK(t *testing.T) {
	all, err := attributes()
	if err != nil {
		t.Fatal(err)
	}
	for _, types := range []map[string]Type{google, amazon} {
		for _, kind := range slices.Sorted(maps.Keys(types)) {
			name := types[kind].Schema
			if all[name] == nil {
				t.Errorf("%s: test/provider/schemas has no resource %q", kind, name)
				continue
			}
			sdk, err := SchemaOf(kind)
			if err != nil {
				t.Fatal(err)
			}
			asked := fieldNames(sdk.inputs)
			compareAttributes(t, kind, all[name], sdk.inputs, sdk.code, true)
			for _, a := range all[name] {
				if (a.optional || a.required) && !slices.Contains(asked, a.name) {
					t.Errorf("%s: %s can be asked for; the SDK has no input %s", kind, a.path, a.name)
				}
			}
			compareAttributes(t, kind, all[name], sdk.outputs, sdk.code, false)
		}
	}
}

func fieldNames(fields []field) (names []string) {
	for _, f := range fields {
		names = append(names, f.name)
	}
	return names
}

func compareAttributes(t *testing.T, where string, all parts, fields []field, code string, inputs bool) {
	t.Helper()
	for _, f := range fields {
		a := all[f.name]
		if a == nil {
			if !slices.Contains(beta, where+" "+f.name) {
				t.Errorf("the SDK has %s %s (%s), the schema has not", where, f.name, f.kind)
			}
			continue
		}
		if !inputs {
			// the kinds of outputs differ from Go's types
			continue
		}
		kind := strings.TrimPrefix(f.kind, "*")
		if list := a.kind == "TypeList" || a.kind == "TypeSet"; strings.HasPrefix(kind,
			"[]") != (list && !a.flat) || strings.HasPrefix(kind, "map[") != (a.kind == "TypeMap") {
			t.Errorf("%s %s: the SDK has %s, the schema has %s (flat: %v)", where, f.name, f.kind, a.kind, a.flat)
			continue
		}
		if a.parts != nil {
			kind = strings.TrimPrefix(kind, "[]")
			within := fieldsOf(code, kind)
			compareAttributes(t, kind, a.parts, within, code, true)
			for _, part := range a.parts {
				if !slices.Contains(fieldNames(within), part.name) {
					t.Errorf("%s has no %s, which %s is", kind, part.name, part.path)
				}
			}
		}
	}
}

// beta lists the properties that Pulumi's SDK has and the schema does not: Pulumi wraps the beta
// provider of Google, and adds two properties to Amazon's.
var beta = []string{
	"gcp:compute/globalAddress:GlobalAddress labelFingerprint",
	"RouterNatRuleAction sourceNatActiveRanges", "RouterNatRuleAction sourceNatDrainRanges",
	"gcp:compute/routerNat:RouterNat type",
	"gcp:compute/subnetwork:Subnetwork allowSubnetCidrRoutesOverlap",
	"ClusterAddonsConfig istioConfig", "ClusterAddonsConfig kalmConfig", "ClusterDnsConfig additiveVpcScopeDnsDomain",
	"ClusterNodeConfig ephemeralStorageConfig", "ClusterNodeConfig sandboxConfig",
	"ClusterNodePoolNodeConfig ephemeralStorageConfig", "ClusterNodePoolNodeConfig sandboxConfig",
	"ClusterNodePoolDefaultsNodeConfigDefaults gcfsConfig",
	"gcp:container/cluster:Cluster clusterTelemetry", "gcp:container/cluster:Cluster enableFqdnNetworkPolicy",
	"gcp:container/cluster:Cluster podSecurityPolicyConfig", "gcp:container/cluster:Cluster protectConfig",
	"gcp:container/cluster:Cluster secretManagerConfig", "gcp:container/cluster:Cluster tpuConfig",
	"gcp:container/cluster:Cluster workloadAltsConfig",
	"NodePoolNodeConfig ephemeralStorageConfig", "NodePoolNodeConfig sandboxConfig",
	"gcp:filestore/instance:Instance protocol",
	"aws:eks/cluster:Cluster certificateAuthority", "aws:eks/cluster:Cluster defaultAddonsToRemoves",
	"gcp:projects/service:Service checkIfServiceHasUsageOnDestroy",
	"aws:s3/bucketLifecycleConfigurationV2:BucketLifecycleConfigurationV2 timeouts", // of the request
}

// The tables that are written by hand name attributes that exist, and that have the matching flags.
func TestRulesHaveAttributes(t *testing.T) {
	all, err := attributes()
	if err != nil {
		t.Fatal(err)
	}
	byPath := map[string]*attribute{}
	var gather func(p parts)
	gather = func(p parts) {
		for _, a := range p {
			byPath[a.path] = a
			gather(a.parts)
		}
	}
	for _, p := range all {
		gather(p)
	}
	for path := range suppress {
		if a := byPath[path]; a == nil || !a.suppress {
			t.Errorf("suppress has %s: the schema has no such attribute with Suppress: %+v", path, a)
		}
	}
	for path := range forcing {
		if a := byPath[path]; a == nil || a.forceNew {
			t.Errorf("forcing has %s: the schema has no such attribute without ForceNew: %+v", path, a)
		}
	}
	for path := range named {
		if byPath[path] == nil {
			t.Errorf("named has %s: the schema has no such attribute", path)
		}
	}
}

// Mistakes in a file of schemas are reported with their reason.
func TestParseAttributes(t *testing.T) {
	for text, want := range map[string]string{
		"a.b TypeString": "line 1: \"a.b TypeString\": expected " +
			"resource.path, kind and flags",
		"# c\n\na TypeString Optional":                 "line 3: a: expected a resource and a path",
		"a..b TypeString Optional":                     "a..b: expected a resource and a path",
		"a.b TypeText Optional":                        "a.b: unknown kind TypeText",
		"a.b TypeString Perhaps":                       "a.b: flag Perhaps: expected Optional",
		"a.b TypeList Max=0":                           "a.b: flag Max=0: expected 1 or more",
		"a.b TypeInt Default=x":                        "a.b: flag Default=x",
		"a.b.c TypeInt Optional":                       "a.b.c: expected a list or set a.b",
		"a.b TypeInt Optional\na.b.c TypeInt Optional": "a.b.c: expected a list or set a.b",
		"a.b TypeInt Optional\na.b TypeInt Optional":   "a.b is there twice",
		"a.bs TypeInt Optional\na.b TypeList Optional": "have the same name in Pulumi: bs",
	} {
		if _, err := parseAttributes(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, expected %s", text, err, want)
		}
	}
	all, err := parseAttributes("a.b_c TypeList Optional,Max=1\na.b_c.d_y TypeSet Required\na.e " +
		"TypeBool Optional,Computed,ForceNew,Default=true")
	if err != nil {
		t.Fatal(err)
	}
	a := all["a"]
	if b := a["bC"]; b == nil || !b.flat || b.parts["dIes"] == nil || !b.parts["dIes"].required ||
		b.parts["dIes"].flat {
		t.Errorf("a block: %+v", a)
	}
	if e := a["e"]; e == nil || e.initial != true || !e.optional || !e.computed || !e.forceNew {
		t.Errorf("an attribute: %+v", e)
	}
}

func FuzzParseAttributes(f *testing.F) {
	f.Add("a.b TypeList Optional,Max=1\na.b.c TypeInt Default=1,Optional\n# x\n")
	f.Add("a.b TypeMap Computed")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseAttributes(text)
		if err != nil {
			return
		}
		for name, p := range all {
			for k, a := range p {
				if a.name != k || !strings.HasPrefix(a.path, name+".") {
					t.Errorf("%s has %s as %s", name, a.path, k)
				}
			}
		}
	})
}
