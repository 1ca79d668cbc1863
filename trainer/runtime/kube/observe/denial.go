package observe

import (
	"errors"
	"strings"

	api "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Denial is the reason why a cluster forbids a request.
type Denial int

const (
	NotDenied    Denial = iota
	NoPermission        // who asks has no role that allows it
	// a ResourceQuota of the namespace does not suffice now
	OverQuota
	// it asks for more than the whole ResourceQuota
	OverWholeQuota
	// another rule of the cluster: a PriorityClass that is not there, a policy
	AgainstRule
)

// Denied returns why the answer to a request is that it is forbidden, and which kind of object it
// is about: "roles". Kubernetes has one type of error for all of it, so that here, and nowhere
// else, its message is read.
func Denied(err error) (why Denial, kind string) {
	var status api.APIStatus
	if !errors.As(err, &status) || !api.IsForbidden(err) {
		return NotDenied, ""
	}
	if d := status.Status().Details; d != nil {
		kind = d.Kind
	}
	_, reason, _ := strings.Cut(status.Status().Message, "forbidden: ")
	switch {
	case strings.HasPrefix(reason, "User ") && strings.Contains(reason, " cannot "),
		strings.HasPrefix(reason, "user ") && strings.Contains(reason, " is attempting to grant "):
		return NoPermission, kind
	case strings.Contains(reason, "exceeded quota: "):
		if quotaTooSmall(reason) {
			return OverWholeQuota, kind
		}
		return OverQuota, kind
	}
	return AgainstRule, kind
}

// quotaTooSmall reports whether a request that was denied for lack of quota asks for more than the
// whole quota, so that it can never be granted.
func quotaTooSmall(reason string) bool {
	_, text, _ := strings.Cut(reason, ", requested: ")
	requested, text, _ := strings.Cut(text, ", used: ")
	_, limited, found := strings.Cut(text, ", limited: ")
	if !found {
		return false
	}
	limits := quantities(limited)
	for name, q := range quantities(requested) {
		if limit, ok := limits[name]; ok && q.Cmp(limit) > 0 {
			return true
		}
	}
	return false
}

// quantities parses a list such as cpu=1,memory=2Gi.
func quantities(text string) map[string]resource.Quantity {
	all := make(map[string]resource.Quantity)
	for item := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(item), "=")
		if q, err := resource.ParseQuantity(value); err == nil {
			all[name] = q
		}
	}
	return all
}
