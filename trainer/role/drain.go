package role

import (
	"context"
	"errors"
	"time"

	"github.com/elasticdl/elasticdl/trainer/timing"
	"github.com/elasticdl/elasticdl/trainer/worker"
)

const (
	// leaveGrace is what a worker or server has that is asked to leave: a little less than it is given by a cluster.
	leaveGrace = timing.LeaveGrace
	// abandoned is how long a master may be away until its pods end, too: the Job that owns them may stay, failed, for
	// ever. On this machine the lifeline tells.
	abandoned = timing.Abandoned
)

// ErrLeft is the end of a pod that was asked to leave, and did: as if the signal had ended it.
var ErrLeft = worker.ErrLeft

// ErrOrphaned is the cause of the context of a process whose parent has died.
var ErrOrphaned = errors.New("parent process is gone")

// work returns the context of a role whose ctx says by its end that it is asked to leave. It ends a grace later,
// and for an orphan at once.
func work(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	working, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unasked := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); errors.Is(cause, ErrOrphaned) {
			cancel(cause)
			return
		}
		timer := time.AfterFunc(grace, func() { cancel(ErrLeft) })
		context.AfterFunc(working, func() { timer.Stop() })
	})
	return working, func() {
		unasked()
		cancel(nil)
	}
}

// abandoned returns how long the role's master may be away; 0: for ever.
func (r Role) abandoned() time.Duration {
	if r.inPod() {
		return abandoned
	}
	return 0
}
