package role

import (
	"context"
	"errors"
	"time"

	"github.com/elasticdl/elasticdl/trainer/timing"
	"github.com/elasticdl/elasticdl/trainer/worker"
)

const (
	// leaveGrace is how long a worker or server has to end after it is asked to leave: a little less than the cluster gives it.
	leaveGrace = timing.LeaveGrace
	// abandoned is how long a master may be away before its pods end by themselves: the Job that owns them may stay, failed, for
	// ever. On this machine the lifeline of package local ends them.
	abandoned = timing.Abandoned
)

// ErrLeft is returned by a pod that was asked to leave and did. Its process ends as if the signal had killed it.
var ErrLeft = worker.ErrLeft

// ErrOrphaned is the cause with which the context of a process ends when its parent has died.
var ErrOrphaned = errors.New("parent process is gone")

// work returns a context for the work of a role. The end of ctx asks the role to leave; the returned context ends a grace later,
// or at once if the cause is [ErrOrphaned].
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

// abandoned returns how long the role's master may be away before the role ends; 0: for ever.
func (r Role) abandoned() time.Duration {
	if r.inPod() {
		return abandoned
	}
	return 0
}
