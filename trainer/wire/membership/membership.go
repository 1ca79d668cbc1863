// Package membership lets a worker join the job and stay in it: the call that gives it the job, its
// end of the rendezvous, calls that are repeated until the master answers, and the errors that end
// it. Packages train/worker and run/agent begin with the job that [Member.Join] returns.
package membership

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	// ErrReplaced is returned by a worker that the master has replaced by another.
	ErrReplaced = errors.New("the master has replaced this worker")
	// ErrLeft is returned by a worker that ended because it was asked to leave.
	ErrLeft = errors.New("asked by SIGTERM to leave, and left")
	// ErrAbandoned is returned by a worker whose master could not be reached for longer than the
	// limit.
	ErrAbandoned = errors.New("the master could not be reached")
)

// Retry calls f until the master answers, with growing pauses. It returns at once an error that
// repeating cannot change.
func Retry(ctx context.Context, f func() error) error {
	const first, last = 10 * time.Millisecond, time.Second
	for pause := first; ; pause = min(2*pause, last) {
		err := f()
		if err == nil {
			return nil
		}
		if err, ends := conclusive(err); ends {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// conclusive reports whether an answer is one that repeating cannot change, and returns the error
// that it stands for.
func conclusive(err error) (error, bool) {
	switch status.Code(err) {
	case codes.NotFound:
		return ErrReplaced, true
	case codes.FailedPrecondition, codes.InvalidArgument, codes.Unimplemented, codes.PermissionDenied,
		codes.Unauthenticated:
		return err, true
	}
	return err, false
}
