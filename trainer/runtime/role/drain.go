package role

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

// abandoned is the time that a master may be away before its pods end on their own: the Job that
// owns them may stay, failed, for ever. On this machine the lifeline of package local ends them.
const abandoned = timing.Abandoned

// ErrLeft is returned by a pod that was asked to leave and did. Its process ends as if the signal
// had killed it.
var ErrLeft = membership.ErrLeft

// ErrOrphaned is the cause with which the context of a process ends when its parent has died.
var ErrOrphaned = errors.New("parent process has ended")

// ErrStopped is the cause with which the context of a process ends when its parent has died in a
// planned stop of the job. Only a program has something to end: its processes have their grace
// period.
var ErrStopped = errors.New("the job is stopped, and the parent process has ended")

// work returns a context for the work of a role. The end of ctx asks the role to leave; the
// returned context ends a grace later, or at once if the cause is [ErrOrphaned], or [ErrStopped]
// and the role runs no program.
func work(ctx context.Context, grace time.Duration, program func() bool) (context.Context, context.CancelFunc) {
	working, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unasked := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); errors.Is(cause, ErrOrphaned) || errors.Is(cause, ErrStopped) && !program() {
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

// killed returns how long after it is asked to leave the role is killed.
func (r Role) killed() time.Duration { return cmp.Or(r.Grace, timing.Grace) }

// runsProgram reports whether this process runs a user's program.
func (r Role) runsProgram() bool { return r.Runs != nil && r.Runs.Load() }

// Lasts returns for how long this process continues if its parent dies in a planned stop of the
// job.
func (r Role) Lasts() time.Duration {
	if r.runsProgram() {
		return r.killed()
	}
	return 0
}

// abandoned returns how long the role's master may be away before the role ends; 0: for ever.
func (r Role) abandoned() time.Duration {
	if r.inPod() {
		return abandoned
	}
	return 0
}
