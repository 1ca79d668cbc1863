package observe

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	api "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// NoAnswer is the error of a request that was not answered in time.
type NoAnswer struct{ Limit time.Duration }

func (n NoAnswer) Error() string { return fmt.Sprintf("no answer in %v", n.Limit) }

// Transient reports whether the same request may succeed later: the cluster was not reached, or was
// not itself.
func Transient(err error) bool {
	if api.IsServerTimeout(err) || api.IsTimeout(err) || api.IsTooManyRequests(err) || api.IsInternalError(err) ||
		api.IsServiceUnavailable(err) {
		return true
	}
	return Unreachable(err)
}

// WebhookFails reports whether an admission webhook has failed, so that the cluster cannot decide.
// Kubernetes has no reason of its own for that.
func WebhookFails(err error) bool {
	return api.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook")
}

// Unreachable reports whether the cluster has not answered at all.
func Unreachable(err error) bool {
	_, dialed := errors.AsType[*net.OpError](err)
	_, silent := errors.AsType[NoAnswer](err)
	return dialed || silent || utilnet.IsProbableEOF(err) || utilnet.IsTimeout(err) ||
		utilnet.IsHTTP2ConnectionLost(err) ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)
}
