package infra

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Live reads what is in a cluster now, whoever made it. A stack looks before it touches: see package live for the one that
// asks the API server; tests have simulated clusters.
type Live interface {
	// Get returns an object as JSON has it, or nil if there is none of that name. The kubeconfig is its text; with "" the
	// context is looked for where kubectl does.
	Get(ctx context.Context, kubeconfig, context string, kind schema.GroupVersionKind, namespace, name string) (map[string]any, error)
}
