//go:build !e2e

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
)

// The cluster of a stack with protected files, code and images was deleted outside of Pulumi. Each
// way to continue in eks.md works: another cluster with the same files, now or after a `pulumi
// destroy` of all the rest; and the deletion of everything.
func TestLostBesideProtected(t *testing.T) {
	t.Parallel()
	e := start(t, "eks")
	e.withFiles()
	e.manage()
	e.set("elasticdl:eks.bucket", map[string]any{})
	e.up()
	there := e.cloud.Left()
	up := func(when string, opts ...optup.Option) {
		t.Helper()
		// The test does not use e.up: a preview does not know that the security group of the new
		// cluster has the same name as the former one here.
		if _, err := e.stack.Up(t.Context(), append(opts, optup.SuppressProgress())...); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
	// Resources with data are neither deleted nor replaced; the policies of bucket and registry
	// are.
	kept := func(when string, calls int) {
		t.Helper()
		for _, c := range e.cloud.Calls()[calls:] {
			if slices.Contains([]string{"data", "code", "images"}, c.Name) && c.Op != "update" &&
				!strings.Contains(c.Type, "Policy") {
				t.Errorf("%s: %s", when, c)
			}
		}
		if now := e.cloud.Left(); !slices.Equal(now, there) {
			t.Errorf("%s: there were\n%s\nand there are\n%s", when, steps(there), steps(now))
		}
	}

	e.lose("aws:eks/cluster:Cluster", "cluster")
	calls := len(e.cloud.Calls())
	if _, err := e.stack.PreviewDestroy(t.Context(), optdestroy.SuppressProgress()); err == nil ||
		!strings.Contains(err.Error(), "cannot be deleted") {
		t.Errorf("the preview of destroy: %v", err)
	}
	e.cloud.Kubernetes.DeleteUnreachable.Store(true)
	e.refresh()
	e.cloud.Kubernetes.DeleteUnreachable.Store(false)
	up("refreshed")
	kept("refreshed", calls)

	e.lose("aws:eks/cluster:Cluster", "cluster")
	calls = len(e.cloud.Calls())
	e.pulumi("destroy", "--exclude-protected", "--yes", "--skip-preview")
	up("destroyed but for what is protected")
	kept("destroyed but for what is protected", calls)

	e.lose("aws:eks/cluster:Cluster", "cluster")
	e.set("elasticdl:protectStorage", false)
	up("unprotected", optup.Target([]string{"**::data", "**::code", "**::images"}))
	e.destroy()
	e.cleared()
}
