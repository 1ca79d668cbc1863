package observe

import (
	"errors"
	"strings"

	api "k8s.io/apimachinery/pkg/api/errors"
)

// Denial is why a cluster forbids a request.
type Denial int

const (
	NotDenied    Denial = iota
	NoPermission        // who asks has no role that allows it
	OverQuota           // the namespace has no room left by a ResourceQuota
	AgainstRule         // another rule of the cluster: a PriorityClass that is not there, a policy
)

// Denied returns why the answer to a request is that it is forbidden, and which kind of object it is about: "roles". Kubernetes has one
// type of error for all of it, so that here, and nowhere else, its message is read.
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
		return OverQuota, kind
	}
	return AgainstRule, kind
}
