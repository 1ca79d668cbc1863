package infra

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Live reads the objects that exist in a cluster now, created by anyone, so that a stack can check
// before it changes anything. Package live implements it by the API server; tests have simulated
// clusters.
type Live interface {
	// Get returns an object as JSON has it, or nil if there is none of that name. Its error is
	// [ErrForbidden] if the user may not read it. The kubeconfig is its text; with "" the
	// context is looked up in the files that kubectl reads.
	Get(ctx context.Context, kubeconfig, context string, kind schema.GroupVersionKind,
		namespace, name string) (map[string]any, error)
}

// ByAddress begins the identity of a cluster that is known only by its address and authority.
const ByAddress = "address-"

// ErrForbidden reports that the user may not read an object.
var ErrForbidden = errors.New("this user may not read it")
