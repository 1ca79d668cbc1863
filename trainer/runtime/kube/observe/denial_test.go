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
	roles, pods := schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "roles"},
		schema.GroupResource{Resource: "pods"}
	for _, test := range []struct {
		err  error
		why  Denial
		kind string
	}{
		{nil, NotDenied, ""},
		{errors.New(`User "jane" cannot`), NotDenied, ""},
		{api.NewBadRequest(`forbidden: User "jane" cannot`), NotDenied, ""},
		{api.NewForbidden(pods, "",
			errors.New(
				`User "jane" cannot list resource "pods" in API group "" in the namespace "default"`)),
			NoPermission, "pods"},
		{fmt.Errorf("create: %w",
			api.NewForbidden(roles, "r",
				errors.New(
					`user "jane" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held`))),
			NoPermission, "roles"},
		{api.NewForbidden(pods, "p", errors.New("exceeded quota: q, requested: pods=1, used: "+
			"pods=10, limited: pods=10")), OverQuota, "pods"},
		{api.NewForbidden(pods, "p", errors.New("no PriorityClass with name high was found")), AgainstRule, "pods"},
		{api.NewForbidden(pods, "p",
			errors.New(`violates PodSecurity "restricted:latest": containers cannot run as root`)),
			AgainstRule, "pods"},
	} {
		if why, kind := Denied(test.err); why != test.why || kind != test.kind {
			t.Errorf("%v: %v of %q, want %v of %q", test.err, why, kind, test.why, test.kind)
		}
	}
}

// A quota that is smaller than one pod never grants it, whatever is deleted.
func TestQuotaTooSmall(t *testing.T) {
	for text, want := range map[string]bool{
		"exceeded quota: q, requested: limits.memory=4Gi,pods=1, used: limits.memory=0,pods=0, " +
			"limited: limits.memory=2Gi,pods=10": true,
		"exceeded quota: q, requested: requests.cpu=1500m, used: requests.cpu=0, limited: " +
			"requests.cpu=1": true,
		"exceeded quota: q, requested: requests.nvidia.com/gpu=8, used: requests.nvidia.com/gpu=0, " +
			"limited: requests.nvidia.com/gpu=4": true,
		"exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0":   true,
		"exceeded quota: q, requested: pods=1, used: pods=10, limited: pods=10": false,
		"exceeded quota: q, requested: requests.memory=1Gi, used: requests.memory=1536Mi, limited: " +
			"requests.memory=2Gi": false,
		"exceeded quota: q": false,
	} {
		err := api.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New(text))
		if why, _ := Denied(err); why != map[bool]Denial{false: OverQuota, true: OverWholeQuota}[want] {
			t.Errorf("%s: %v", text, why)
		}
	}
}
