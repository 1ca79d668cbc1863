package observe

import (
	"errors"
	"fmt"
	"testing"

	api "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The messages are those of Kubernetes 1.36.
func TestDenied(t *testing.T) {
	roles, pods := schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "roles"}, schema.GroupResource{Resource: "pods"}
	for _, test := range []struct {
		err  error
		why  Denial
		kind string
	}{
		{nil, NotDenied, ""},
		{errors.New(`User "jane" cannot`), NotDenied, ""},
		{api.NewBadRequest(`forbidden: User "jane" cannot`), NotDenied, ""},
		{api.NewForbidden(pods, "", errors.New(`User "jane" cannot list resource "pods" in API group "" in the namespace "default"`)), NoPermission, "pods"},
		{fmt.Errorf("create: %w", api.NewForbidden(roles, "r", errors.New(`user "jane" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held`))), NoPermission, "roles"},
		{api.NewForbidden(pods, "p", errors.New("exceeded quota: q, requested: pods=1, used: pods=10, limited: pods=10")), OverQuota, "pods"},
		{api.NewForbidden(pods, "p", errors.New("no PriorityClass with name high was found")), AgainstRule, "pods"},
		{api.NewForbidden(pods, "p", errors.New(`violates PodSecurity "restricted:latest": containers cannot run as root`)), AgainstRule, "pods"},
	} {
		if why, kind := Denied(test.err); why != test.why || kind != test.kind {
			t.Errorf("%v: %v of %q, want %v of %q", test.err, why, kind, test.why, test.kind)
		}
	}
}
