//go:build !e2e

package main

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"

	"github.com/elasticdl/elasticdl/test/provider"
)

// The nightly preview for drift finds none after changes by clouds, masters and time, and finds
// objects that somebody has changed or deleted by hand.
func TestDrift(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"existing", "gke", "eks", "minikube"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := start(t, name)
			e.up()
			look := func() error {
				before := len(e.cloud.Calls())
				defer func() {
					if calls := e.cloud.Calls()[before:]; len(calls) > 0 {
						t.Errorf("a preview for drift did %v", calls)
					}
				}()
				_, err := e.stack.Preview(t.Context(), optpreview.Refresh(), optpreview.ExpectNoChanges(),
					optpreview.SuppressProgress())
				return err
			}
			if err := look(); err != nil {
				t.Errorf("a new stack: %v", err)
			}
			e.change(stateOf, func(is provider.Props) { is["data"] = provider.Props{"journal": "H4sI"} })
			e.ends()
			if err := look(); err != nil {
				t.Errorf("a job that has ended: %v", err)
			}
			e.change(specObject, func(is provider.Props) { is["data"].(provider.Props)["numWorkers"] = "9" })
			if err := look(); err == nil {
				t.Error("another number of workers is no drift")
			}
			e.refresh() // as `pulumi up --refresh`
			e.up()
			if err := look(); err != nil {
				t.Errorf("after the next update: %v", err)
			}
			const role = "rbac.authorization.k8s.io/v1/Role elasticdl/elasticdl-data"
			if err := e.cloud.Kubernetes.Remove(role); err != nil {
				t.Fatal(err)
			}
			if err := look(); err == nil {
				t.Error("a deleted Role is no drift")
			}
		})
	}
}
