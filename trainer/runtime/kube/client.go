package kube

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	api "k8s.io/apimachinery/pkg/api/errors"

	"github.com/elasticdl/elasticdl/trainer/runtime/kube/observe"
)

// ErrNotFound is wrapped by errors about a job that the namespace does not have.
var ErrNotFound = errors.New("not found")

// Missing reports that a namespace does not have a job.
type Missing struct {
	Name      string
	Names     func(context.Context) ([]string, error) // lists the jobs that the namespace has
	namespace string
}

// Error implements error.
func (m *Missing) Error() string {
	return fmt.Sprintf("job %s %v in namespace %s", m.Name, ErrNotFound, m.namespace)
}

// Unwrap returns [ErrNotFound].
func (m *Missing) Unwrap() error { return ErrNotFound }

// ErrUnreachable is wrapped by errors of a cluster that has not answered.
var ErrUnreachable = errors.New("cannot be reached")

// How long a request may take, and for how long one is repeated that could not be answered: not
// long if the cluster has never answered, since its address is wrong then; long if it has, since
// API servers are restarted.
const (
	answerLimit    = 10 * time.Second
	firstAnswer    = 4 * time.Second // of a cluster that has not answered yet
	firstPatience  = time.Second
	firstBackoff   = 200 * time.Millisecond
	longestBackoff = 5 * time.Second
	// noteEvery is the time between two notes about a request that is repeated.
	noteEvery = 30 * time.Second
)

// DefaultPatience is the time that a request is repeated to a cluster that has answered before,
// unless [Place.Patience] says otherwise.
const DefaultPatience = 10 * time.Minute

// ask makes one request, and repeats it while the cluster cannot answer. doing is the beginning of
// its error, as in "list pods". A cluster that has not answered the first request is not asked
// again, unless the user has said for how long to ask.
func ask[T any](ctx context.Context, c *Client, doing string, request func(context.Context) (T, error)) (T, error) {
	began, backoff := time.Now(), firstBackoff
	if lost := c.lost.Load(); lost != nil && !c.reached.Load() {
		var none T
		return none, c.explain(doing, *lost)
	}
	for attempts := 1; ; attempts++ {
		answer, err := once(ctx, c.limit(), request)
		if err == nil || !passing(err) {
			c.reached.Store(true)
			if c.noted.Swap(0) != 0 {
				c.note("%s: the cluster answers again", doing)
			}
			return answer, c.explain(doing, err)
		}
		waits, lasted := c.waits(), time.Since(began)
		over := lasted >= waits
		if ctx.Err() == nil && !c.reached.Load() && over {
			c.lost.Store(&err)
		}
		if ctx.Err() != nil {
			return answer, c.explain(doing, causeOr(ctx, err))
		}
		if over && attempts > 1 && c.noted.Load() != 0 {
			return answer, fmt.Errorf("%w; gave up after %v and %d attempts (--retry_timeout)",
				c.explain(doing, err), lasted.Round(time.Second), attempts)
		}
		if over {
			return answer, c.explain(doing, err)
		}
		if c.reached.Load() || c.patience > 0 {
			c.noteRepeated(doing, err, attempts, began.Add(waits))
		}
		pause(ctx, min(backoff, waits-lasted))
		backoff = min(2*backoff, longestBackoff)
	}
}

// passing reports whether the same request may succeed later. Of a creation a conflict is no
// answer: two were counted against a quota at once.
func passing(err error) bool { return observe.Transient(err) || api.IsConflict(err) }

// waits returns how long a request is repeated now.
func (c *Client) waits() time.Duration {
	switch {
	case c.patience < 0:
		return 0
	case c.patience > 0:
		return c.patience
	case c.reached.Load():
		return DefaultPatience
	}
	return firstPatience
}

// noteRepeated says, every noteEvery, what is repeated, how often, and until when. The requests of
// a client share the notes.
func (c *Client) noteRepeated(doing string, err error, attempts int, until time.Time) {
	now, last := time.Now(), c.noted.Load()
	if last != 0 && now.Sub(time.Unix(0, last)) < noteEvery || !c.noted.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	c.note("%v; attempt %d, trying again every %v at most until %s (--retry_timeout)",
		c.explain(doing, err), attempts, longestBackoff, until.Format(time.TimeOnly))
}

// limit returns how long a request may take now. The first answer may take longer if another
// program, which may ask its user, provides the credentials.
func (c *Client) limit() time.Duration {
	if c.reached.Load() || c.config != nil && (c.config.ExecProvider != nil || c.config.AuthProvider != nil) {
		return answerLimit
	}
	return firstAnswer
}

// once makes a request within the time limit.
func once[T any](ctx context.Context, limit time.Duration, request func(context.Context) (T, error)) (T, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, err := request(limited)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		err = observe.NoAnswer{Limit: limit}
	}
	return answer, err
}

// causeOr returns the cause of ctx's end if it has ended, otherwise err.
func causeOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (c *Client) note(format string, args ...any) {
	if c.notes != nil {
		// checks of a job are made at the same time
		c.noting.Lock()
		defer c.noting.Unlock()
		fmt.Fprintf(c.notes, "note: "+format+"\n", args...)
	}
}

// explain returns an error that tells the user what went wrong, and what to do.
func (c *Client) explain(doing string, err error) error {
	request, failed := errors.AsType[*url.Error](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case api.IsUnauthorized(err):
		return fmt.Errorf("%s: the cluster at %s does not accept the credentials of the kubeconfig: %w",
			doing, c.clusterName(), err)
	case api.IsForbidden(err):
		return fmt.Errorf("%s: %w%s", doing, err, c.remedy(err))
	case observe.WebhookFails(err):
		return fmt.Errorf("%s: %w; an admission webhook of the cluster does not work: its "+
			"administrator finds it with kubectl get "+
			"mutatingwebhookconfigurations,validatingwebhookconfigurations", doing, err)
	case failed:
		return fmt.Errorf("%s: the cluster at %s %w: %w", doing, c.clusterName(), ErrUnreachable, request.Err)
	case observe.Unreachable(err):
		return fmt.Errorf("%s: the cluster at %s %w: %w", doing, c.clusterName(), ErrUnreachable, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// remedy returns the remedy for a forbidden request.
func (c *Client) remedy(err error) string {
	switch why, kind := observe.Denied(err); {
	case why == observe.OverQuota:
		return "; jobs that have ended count, too: elasticdl list" + c.place +
			", and elasticdl stop JOB" + c.place + "; or ask for a larger ResourceQuota"
	case why == observe.OverWholeQuota:
		return "; request less, or ask for a larger ResourceQuota"
	case why != observe.NoPermission:
		return "" // the answer says what is against it
	case lacksForward(err):
		return "; an administrator of the cluster can allow it: verbs get and create of pods/portforward " +
			"in namespace " + c.namespace
	case kind == "serviceaccounts", kind == "roles", kind == "rolebindings":
		return "; have an administrator apply what elasticdl rbac --namespace=" + c.namespace +
			" prints, once, and give --service_account=elasticdl"
	}
	return "; an administrator of the cluster can allow it"
}
