package karpenter

import (
	"fmt"
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

// Pods do not reach the credentials of a node, and its disk is encrypted; nodes of Auto Mode are so
// without a setting.
func TestClassOfNodes(t *testing.T) {
	c := Class{Name: "x", Kind: EC2, Identity: "profile", Subnets: []string{"a", "b"}, Group: "sg", DiskGB: 50,
		Tags: map[string]string{"team": "ml"}, Image: "al2023@latest"}
	u := NodeClass(c)
	if got := fmt.Sprint(field(t, u, "spec",
		"metadataOptions")); got != "map[httpEndpoint:enabled httpPutResponseHopLimit:1 httpTokens:required]" {
		t.Error(got)
	}
	disk := field(t, u, "spec", "blockDeviceMappings").([]any)[0].(map[string]any)["ebs"].(map[string]any)
	if disk["encrypted"] != true || disk["volumeSize"] != "50Gi" {
		t.Error(disk)
	}
	c.Kind, c.Reservation = Auto, "cr-1"
	u = NodeClass(c)
	for path, want := range map[string]string{"role": "profile", "instanceProfile": "<nil>",
		"amiSelectorTerms":                 "<nil>",
		"capacityReservationSelectorTerms": "[map[id:cr-1]]", "subnetSelectorTerms": "[map[id:a] map[id:b]]",
		"ephemeralStorage": "map[size:50Gi]"} {
		if got := fmt.Sprint(field(t, u, "spec", path)); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
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
