//go:build !e2e

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// manage gives a stack on EKS managed node groups.
func (e *engine) manage() { e.setAll(managed) }

// only returns the steps on resources of a type.
func (s steps) only(kind string) steps {
	return slices.DeleteFunc(slices.Clone(s), func(step string) bool { return !strings.Contains(step, kind) })
}

// Changes of a stack on EKS keep the running nodes, the control plane, and the labels of disks and
// nodes.
func TestChangesOfEKS(t *testing.T) {
	t.Parallel()
	const group, template, cluster = "aws:eks/nodeGroup:NodeGroup",
		"aws:ec2/launchTemplate:LaunchTemplate", "aws:eks/cluster:Cluster"
	e := start(t, "eks")
	e.withFiles()
	e.manage()
	e.up()
	preview := func() steps {
		t.Helper()
		did, err := e.tryPreview()
		if err != nil {
			t.Fatal(err)
		}
		return did
	}
	change := func(why, path string, value any) steps {
		t.Helper()
		e.set(path, value)
		planned := e.up()
		e.expect("nothing more after: "+why, preview())
		return planned
	}
	nodes := func(why, name string, want int) {
		t.Helper()
		if n := e.cloud.Nodes(name); n != want {
			t.Errorf("%s: the group %s has %d nodes, expected %d", why, name, n, want)
		}
	}
	refused := func(why, want string) {
		t.Helper()
		if did, err := e.tryPreview(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the preview has\n%s\n%v\nexpected %s", why, did, err, want)
		}
	}

	// only extended support is left for the version then, which the stack does not want
	e.now = func() time.Time { return today.AddDate(1, 0, 0) }
	e.expect("after a year", preview())
	e.now = func() time.Time { return today.AddDate(2, 0, 0) }
	e.expect("after two years", preview())

	for _, test := range []struct {
		why, path string
		// number of nodes set by hand, in the setting, and afterwards
		by, to, want int
	}{
		{"scaled to 0 by hand, then a higher maximum", "maxNodes", 0, 5, 0},
		{"scaled up by hand, then a higher minimum", "minNodes", 4, 1, 4},
		{"scaled to the minimum by hand, then no minimum", "minNodes", 1, 0, 1},
	} {
		if err := e.cloud.Scale("worker", test.by); err != nil {
			t.Fatal(err)
		}
		e.expect(test.why+": by hand", preview())
		if did := change(test.why, "elasticdl:eks.workerGroup."+test.path, test.to); len(did) != 1 ||
			!strings.HasPrefix(did[0], "update "+group+" worker ") {
			t.Errorf("%s:\n%s", test.why, did)
		}
		nodes(test.why, "worker", test.want)
	}
	if err := e.cloud.Scale("worker", 4); err != nil {
		t.Fatal(err)
	}
	e.set("elasticdl:eks.workerGroup.maxNodes", 3)
	refused("a maximum below what runs", "eks.workerGroup.maxNodes: 3: the group worker-")
	e.set("elasticdl:eks.workerGroup.maxNodes", 5)

	did := change("another label", "elasticdl:labels.team", "vision")
	for _, step := range slices.Concat(did.only(group), did.only(template), did.only("replace ")) {
		if !strings.HasPrefix(step, "update ") || strings.Contains(step, "launchTemplate.") ||
			strings.Contains(step, "tagSpecifications") {
			t.Errorf("another label: %s", step)
		}
	}
	e.set("elasticdl:eks.labelNodes", true)
	if did := preview(); len(did.only(template)) != 2 || !strings.Contains(did.only(template)[0], "tagSpecifications") {
		t.Errorf("a label onto nodes:\n%s", did)
	}
	e.set("elasticdl:eks.labelNodes", nil)

	did = change("a zone more", "elasticdl:eks.vpc.zones", []any{"us-west-2a", "us-west-2b", "us-west-2c"})
	e.expect("a zone more: the control plane", did.only(cluster))
	if all := did.only(group); len(all) != 2 ||
		len(did.only("create aws:efs/mountTarget:MountTarget")) != 1 || len(did.only("replace ")) != 2 {
		t.Errorf("a zone more:\n%s", did)
	}
	nodes("a zone more", "worker", 4)
	nodes("a zone more", "system", 1)
	for _, types := range [][]any{{"m6i.large", "m5.large"}, {"m5.large", "m6i.large"}} {
		why := fmt.Sprint("types ", types)
		did := change(why, "elasticdl:eks.workerGroup.instanceTypes", types)
		if len(did.only("replace "+group+" worker")) != 1 {
			t.Errorf("%s:\n%s", why, did)
		}
		nodes(why, "worker", 4)
	}
	e.set("elasticdl:eks.vpc.zones", []any{"us-west-2a", "us-west-2b", "us-west-2d"})
	refused("another zone in place of the added one",
		"eks.vpc.zones[2]: us-west-2d: the subnet of us-west-2c has the range of this place")
	e.set("elasticdl:eks.vpc.zones", []any{"us-west-2b", "us-west-2a", "us-west-2c"})
	refused("another order of zones",
		"eks.vpc.zones[1]: us-west-2a has the range 10.0.0.0/19, which is not that of its place")
	e.set("elasticdl:eks.vpc.zones", []any{"us-west-2a", "us-west-2c"})
	refused("a zone of the control plane less",
		"eks.vpc.zones: us-west-2b is missing: the control plane was made with it")
	did = change("the added zone less", "elasticdl:eks.vpc.zones", []any{"us-west-2a", "us-west-2b"})
	if len(did.only(cluster)) > 0 || len(did.only("delete aws:ec2/subnet:Subnet")) != 2 {
		t.Errorf("the added zone less:\n%s", did)
	}
	e.refresh()
	e.expect("after all that and a refresh", preview())
}

// A version without standard support is refused for a new cluster before anything is created,
// whatever the clock of the machine that runs the tests; and the user gets the quotas of the
// account that the stack needs.
func TestNewEKS(t *testing.T) {
	t.Parallel()
	e := start(t, "eks")
	e.now = func() time.Time { return time.Date(2027, 3, 28, 0, 0, 0, 0, time.UTC) }
	// the file as shipped names no version, and needs no edit
	if did, err := e.tryPreview(); err != nil {
		t.Errorf("a new cluster of Amazon's default version: %v\n%s", err, did)
	}
	e.set("elasticdl:eks.version", "1.35")
	if did, err := e.tryPreview(); err == nil ||
		!strings.Contains(err.Error(), "eks.version: 1.35: its standard support ended on 2027-03-27") {
		t.Errorf("a new cluster of an old version: %v\n%s", err, did)
	}
	e.now = func() time.Time { return today }
	result, err := e.stack.Preview(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, text, _ := strings.Cut(result.StdOut, "Diagnostics:"); strings.Count(text,
		"--quota-code L-1216C47A") != 1 || !strings.Contains(text,
		"eks.systemGroup, eks.pools[0]: needs up to 20 vCPUs") || strings.Count(text, "within 21 days") != 1 {
		t.Errorf("nothing on quotas and on the age of nodes, once, in\n%s", text)
	}
	if calls := e.cloud.Calls(); len(calls) > 0 {
		t.Errorf("a preview made %v", calls)
	}
}
