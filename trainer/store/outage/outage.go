// Package outage tells the failures of a storage that may end from those that do not, and waits
// for the former to do so.
package outage

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
)

// An Error is a failure of the storage under a file: for example an I/O error, a stale handle, a
// missing file or a full disk. The same call may succeed later.
type Error struct{ Err error }

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// lasting lists the errors of file systems that do not end with time: the request is invalid or
// not permitted.
var lasting = []syscall.Errno{
	syscall.EACCES, syscall.EPERM, syscall.EROFS, syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP, syscall.ENAMETOOLONG,
	syscall.EINVAL, syscall.EBADF, syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.EFBIG,
}

// Of returns err as an [Error] if it is an error of a file system that may end with time, and
// err itself otherwise. A missing file counts as such an error: on a network file system it may be
// missing for a moment.
func Of(err error) error {
	number, ok := errors.AsType[syscall.Errno](err)
	switch {
	case ok && slices.Contains(lasting, number), !ok && !errors.Is(err, os.ErrDeadlineExceeded):
		return err
	}
	return &Error{err}
}

// Is reports whether err is or wraps an [Error].
func Is(err error) bool {
	_, ok := errors.AsType[*Error](err)
	return ok
}

// Trouble describes a failure of the storage in a line: if the disk is full, by its directory.
func Trouble(err error) string {
	words := ""
	switch {
	case errors.Is(err, syscall.ENOSPC):
		words = "no space left on "
	case errors.Is(err, syscall.EDQUOT):
		words = "disk quota exceeded on "
	}
	at, ok := errors.AsType[*fs.PathError](err)
	if words == "" || !ok {
		return err.Error()
	}
	return words + filepath.Dir(at.Path)
}

// Patience repeats calls that fail because of the storage. Its zero value does so without logging.
type Patience struct {
	// Log gets a warning when an outage lasts, and a line when it is over; nil: nothing is logged.
	Log *slog.Logger
	// Resting is called with true before each pause and with false after it; nil: no calls.
	Resting func(bool)
	// Failing is called with the error of each attempt that the storage has failed, and with nil
	// when one has ended otherwise after that; nil: no calls.
	Failing func(error)
	// Futile reports whether the result is not needed any more, which ends the attempts; nil: it is
	// always needed.
	Futile func() bool
}

// lasts is the time for which the storage fails before a warning is logged.
const lasts = 2 * time.Second

// Reach calls try until it returns nil or an error that is not an [Error], and returns that. The
// pauses between the calls grow. After [timing.Storage], at the end of ctx, or when the result is
// futile, it returns the last error.
func (p Patience) Reach(ctx context.Context, try func() error) error {
	began, said, failed := time.Now(), false, false
	if p.Failing == nil {
		p.Failing = func(error) {}
	}
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, timing.StoragePause) {
		err := try()
		away := time.Since(began)
		switch left := timing.Storage - away; {
		case !Is(err):
			if failed {
				p.Failing(nil)
			}
			if said {
				p.Log.Info("The storage answers again", "after", away.Round(time.Second))
			}
			return err
		case left <= 0 || ctx.Err() != nil || p.Futile != nil && p.Futile():
			return err
		case left < pause:
			pause = left
		}
		failed = true
		p.Failing(err)
		if !said && p.Log != nil && away >= lasts {
			said = true
			p.Log.Warn("Waiting for the storage", "limit", timing.Storage, "error", err)
		}
		p.rest(ctx, pause)
	}
}

// rest waits for a pause, or until ctx ends.
func (p Patience) rest(ctx context.Context, pause time.Duration) {
	if p.Resting != nil {
		p.Resting(true)
		defer p.Resting(false)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
