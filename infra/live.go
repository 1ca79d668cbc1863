package infra

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Live reads the objects that exist in a cluster now, created by anyone, so that a stack can check
// before it changes anything. Package live implements it by the API server; tests have simulated
// clusters.
type Live interface {
	// Get returns an object as JSON has it, or nil if there is none of that name. The kubeconfig is
	// its text; with "" the context is looked up in the files that kubectl reads.
	Get(ctx context.Context, kubeconfig, context string, kind schema.GroupVersionKind,
		namespace, name string) (map[string]any, error)
}
