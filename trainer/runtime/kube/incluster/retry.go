package incluster

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	api "k8s.io/apimachinery/pkg/api/errors"

	"github.com/elasticdl/elasticdl/trainer/runtime/kube/observe"
)

const (
	// for the answer to one request: admission may take its time
	requestLimit = 30 * time.Second
	// before it is repeated; doubled each time,
	retryFirst   = 100 * time.Millisecond
	retryLongest = 2 * time.Second // up to this
	// but for a name that will be free at any moment
	retryName   = 200 * time.Millisecond
	retryWarned = 2 * time.Second // repeated so long it is worth a word
)

// insist does a request of the master's until it is answered, or ctx ends: an API server may be
// away for a while, or have too much to do. A conflict is no answer either.
func insist(ctx context.Context, log *slog.Logger, doing string, request func(context.Context) error) error {
	return repeat(ctx, log, doing, func() error { return limited(ctx, request) })
}

func repeat(ctx context.Context, log *slog.Logger, doing string, attempt func() error) error {
	began, warned := time.Now(), false
	for wait := retryFirst; ; wait = min(2*wait, retryLongest) {
		err := attempt()
		if ctx.Err() != nil && err != nil {
			return context.Cause(ctx)
		}
		if err == nil || !passing(err) {
			if warned {
				log.Info("The API server has answered", "to", doing)
			}
			return err
		}
		if !warned && time.Since(began) >= retryWarned {
			warned = true
			what := "The API server does not answer; trying again and again"
			switch {
			case observe.WebhookFails(err):
				what = "An admission webhook of the cluster fails; trying again and again"
			case errors.Is(err, errOccupied):
				what = "The former pod of that name still exists; trying again and again"
			}
			log.Warn(what, "to", doing, "error", err)
		}
		if errors.Is(err, errOccupied) {
			wait = min(wait, retryName)
		}
		select {
		case <-time.After(wait/2 + rand.N(wait)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func limited(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, requestLimit, observe.NoAnswer{Limit: requestLimit})
	defer cancel()
	err := request(ctx)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// passing reports whether the same request may succeed later.
func passing(err error) bool {
	return observe.Transient(err) || api.IsConflict(err) || errors.Is(err, errOccupied)
}
