package karpenter

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

var worker = Pool{Name: "cheap", Class: Auto, Types: []string{"m6i.large"}, Arch: "amd64", Capacity: []string{"spot"},
	Limit: 20, CPUs: 40, IdleAfter: 90 * time.Second, Expire: AutoExpire}

func field(t *testing.T, u *unstructured.Unstructured, path ...string) any {
	t.Helper()
	v, _, err := unstructured.NestedFieldNoCopy(u.Object, path...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Nodes end when they are empty, all at once; those of a core pool for no other reason but age, and
// those of others one in ten at a time.
func TestDisruption(t *testing.T) {
	core := worker
	core.Core, core.Class, core.Expire = true, EC2, 0
	for _, test := range []struct {
		of             Pool
		differs, older string
	}{{worker, "10%", "480h"}, {core, "0", "Never"}} {
		u := NodePool(test.of)
		if p, after := field(t, u, "spec", "disruption", "consolidationPolicy"),
			field(t, u, "spec", "disruption", "consolidateAfter"); p != "WhenEmpty" || after != "90s" {
			t.Errorf("ends %v after %v", p, after)
		}
		limit := map[any]any{}
		for _, b := range field(t, u, "spec", "disruption", "budgets").([]any) {
			for _, reason := range b.(map[string]any)["reasons"].([]any) {
				limit[reason] = b.(map[string]any)["nodes"]
			}
		}
		if want := fmt.Sprint(map[any]any{"Empty": "100%", "Drifted": test.differs,
			"Underutilized": test.differs}); fmt.Sprint(limit) != want {
			t.Errorf("%v, want %s", limit, want)
		}
		if age := field(t, u, "spec", "template", "spec", "expireAfter"); age != test.older {
			t.Errorf("ends after %v, want %s", age, test.older)
		}
	}
}

// Amazon refuses a node of Auto Mode that could be older than 21 days when it ends.
func TestAge(t *testing.T) {
	u := NodePool(worker)
	age, err := time.ParseDuration(field(t, u, "spec", "template", "spec", "expireAfter").(string))
	if err != nil {
		t.Fatal(err)
	}
	drains, err := time.ParseDuration(field(t, u, "spec", "template", "spec", "terminationGracePeriod").(string))
	if err != nil || age+drains > 21*24*time.Hour || age < 14*24*time.Hour {
		t.Errorf("%v and %v, %v", age, drains, err)
	}
}

// A pool has a limit of nodes in any case, and one of CPUs if these are known.
func TestLimits(t *testing.T) {
	unknown := worker
	unknown.CPUs = 0
	for _, test := range []struct {
		of   Pool
		want string
	}{{worker, "map[cpu:40 nodes:20]"}, {unknown, "map[nodes:20]"}} {
		if got := fmt.Sprint(field(t, NodePool(test.of), "spec", "limits")); got != test.want {
			t.Errorf("%s, want %s", got, test.want)
		}
	}
}

// A node of a pool has what the settings of the pool allow, and the labels and taints by which its
// pods select it. A list without values would allow no node at all: it is left out.
func TestNodesOfPool(t *testing.T) {
	all := worker
	all.Zones, all.Capacity = []string{"us-west-2a", "us-west-2b"}, []string{"spot", "on-demand"}
	all.Types, all.Labels = []string{"m6i.large", "m5.large"}, map[string]string{"tier": "cheap", "team": "ml"}
	all.Taints = []Taint{{"team", "ml", "NoSchedule"}, {"tier", "cheap", "NoExecute"}}
	for _, test := range []struct {
		of                           Pool
		requirements, taints, labels string
	}{
		{worker, "[karpenter.sh/capacity-type In [spot] kubernetes.io/arch In [amd64] " +
			"node.kubernetes.io/instance-type In [m6i.large]]", "<nil>", "<nil>"},
		{all, "[karpenter.sh/capacity-type In [spot on-demand] kubernetes.io/arch In [amd64] " +
			"node.kubernetes.io/instance-type In [m6i.large m5.large] " +
			"topology.kubernetes.io/zone In [us-west-2a us-west-2b]]",
			"[map[effect:NoSchedule key:team value:ml] map[effect:NoExecute key:tier value:cheap]]",
			"map[team:ml tier:cheap]"},
	} {
		u := NodePool(test.of)
		var required []string
		for _, r := range field(t, u, "spec", "template", "spec", "requirements").([]any) {
			m := r.(map[string]any)
			required = append(required, fmt.Sprint(m["key"], " ", m["operator"], " ", m["values"]))
		}
		slices.Sort(required)
		for what, is := range map[string][2]any{"requirements": {required, test.requirements},
			"taints": {field(t, u, "spec", "template", "spec", "taints"), test.taints},
			"labels": {field(t, u, "spec", "template", "metadata", "labels"), test.labels}} {
			if got := fmt.Sprint(is[0]); got != is[1] {
				t.Errorf("%s are %s, want %s", what, got, is[1])
			}
		}
	}
}

// A pool names the class of its nodes as that is made, of a group that Karpenter, or Auto Mode,
// watches; no other controller makes nodes of it.
func TestPoolNamesItsClass(t *testing.T) {
	for kind, want := range map[Kind]string{Auto: "eks.amazonaws.com/v1 NodeClass cheap",
		EC2: "karpenter.k8s.aws/v1 EC2NodeClass cheap"} {
		of := worker
		of.Class = kind
		class, pool := NodeClass(Class{Name: of.Name, Kind: kind}), NodePool(of)
		for u, want := range map[*unstructured.Unstructured]string{class: want,
			pool: "karpenter.sh/v1 NodePool cheap"} {
			if got := fmt.Sprint(u.GetAPIVersion(), " ", u.GetKind(), " ", u.GetName()); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		gvk := class.GroupVersionKind()
		if ref, want := fmt.Sprint(field(t, pool, "spec", "template", "spec", "nodeClassRef")),
			fmt.Sprintf("map[group:%s kind:%s name:%s]", gvk.Group, gvk.Kind, class.GetName()); ref != want {
			t.Errorf("its class is %s, want %s", ref, want)
		}
	}
}

// Pods do not reach the credentials of a node, and its disk is encrypted, by the key of the
// settings if they name one, and ends with it; nodes of Auto Mode are so without a setting. A class
// has no field of the other kind: Kubernetes would refuse the object.
func TestClassOfNodes(t *testing.T) {
	both := map[string]string{"subnetSelectorTerms": "[map[id:a] map[id:b]]", "tags": "map[team:ml]",
		"securityGroupSelectorTerms": "[map[id:sg]]"}
	ec2 := map[string]string{"instanceProfile": "x",
		"amiSelectorTerms": "[map[alias:al2023@latest]]",
		"metadataOptions":  "map[httpEndpoint:enabled httpPutResponseHopLimit:1 httpTokens:required]",
		"blockDeviceMappings": "[map[deviceName:/dev/xvda ebs:map[deleteOnTermination:true encrypted:true " +
			"%svolumeSize:50Gi volumeType:gp3] rootVolume:true]]"}
	auto := map[string]string{"role": "x", "ephemeralStorage": "map[%ssize:50Gi]"}
	for _, reservation := range []string{"", "cr-1"} {
		for _, key := range []string{"", "arn:k"} {
			for kind, fields := range map[Kind]map[string]string{EC2: ec2, Auto: auto} {
				want, of := maps.Clone(both), ""
				if key != "" {
					of = "kmsKeyID:" + key + " "
				}
				for name, text := range fields {
					want[name] = strings.Replace(text, "%s", of, 1)
				}
				if reservation != "" {
					want["capacityReservationSelectorTerms"] = "[map[id:" + reservation + "]]"
				}
				u := NodeClass(Class{Name: "x", Kind: kind, Identity: "x", Subnets: []string{"a", "b"}, Group: "sg",
					DiskGB: 50, KMSKey: key, Tags: map[string]string{"team": "ml"}, Image: "al2023@latest",
					Reservation: reservation})
				got := map[string]string{}
				for name, value := range field(t, u, "spec").(map[string]any) {
					got[name] = fmt.Sprint(value)
				}
				if !maps.Equal(got, want) {
					t.Errorf("%s, key %q: %v, want %v", kind.Kind, key, got, want)
				}
			}
		}
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "Never", time.Hour: "1h", 90 * time.Minute: "90m",
		90 * time.Second: "90s"} {
		if got := duration(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}
