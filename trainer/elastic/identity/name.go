package identity

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

// Name is the subject of a certificate: one start of a pod of a job, or a user of it. The zero Name
// is nobody.
type Name struct {
	Job string // UID
	pod.ID
	Incarnation int // of the pod; 0 of a user
}

// scheme is that of the URI of a name.
const scheme = "elasticdl"

// roles are the names of roles in a URI.
var roles = map[pod.Role]string{pod.Master: "master", pod.PS: "ps", pod.Worker: "worker", User: "user"}

// String returns the name as a URI, as it stands in a certificate:
// elasticdl://job/role/index/incarnation.
func (n Name) String() string {
	if n == (Name{}) {
		return "nobody"
	}
	return fmt.Sprintf("%s://%s/%s/%d/%d", scheme, n.Job, roles[n.Role], n.Index, n.Incarnation)
}

// ParseName returns the name that a URI is of. Each name has one URI.
func ParseName(uri string) (Name, error) {
	rest, ok := strings.CutPrefix(uri, scheme+"://")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 4 || parts[0] == "" {
		return Name{}, fmt.Errorf("%w: %q names nobody: expected %s://job/role/index/incarnation",
			ErrForeign, uri, scheme)
	}
	n := Name{Job: parts[0]}
	for role, text := range roles {
		if text == parts[1] {
			n.Role = role
		}
	}
	index, err := strconv.ParseUint(parts[2], 10, 31)
	incarnation, err2 := strconv.ParseUint(parts[3], 10, 31)
	n.Index, n.Incarnation = int(index), int(incarnation)
	if err != nil || err2 != nil || n.Role == 0 || n.String() != uri {
		return Name{}, fmt.Errorf("%w: %q names nobody: expected %s://job/role/index/incarnation",
			ErrForeign, uri, scheme)
	}
	return n, nil
}

// Is returns what tells whether a name is one of a pod, whichever start of it: nil, or what is
// wrong.
func Is(called pod.ID) func(Name) error {
	return func(n Name) error {
		if n.ID != called {
			return fmt.Errorf("%w: %v answers for %v", ErrForbidden, n, called)
		}
		return nil
	}
}
