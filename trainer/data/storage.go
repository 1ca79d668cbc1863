package data

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/elasticdl/elasticdl/trainer/timing"
)

// A StorageError is a failure of the storage under a file: it does not answer, has lost sight of the file, or has no room. The
// same call may succeed later.
type StorageError struct{ Err error }

func (e *StorageError) Error() string { return e.Err.Error() }
func (e *StorageError) Unwrap() error { return e.Err }

// lasting is the errors of a file system that stay: what was asked for is wrong, or not allowed.
var lasting = []syscall.Errno{
	syscall.EACCES, syscall.EPERM, syscall.EROFS, syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP, syscall.ENAMETOOLONG,
	syscall.EINVAL, syscall.EBADF, syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.EFBIG,
}

// Storage returns err as a [StorageError] if it is one of a file system, and not one that stays: what was asked for is wrong,
// or not allowed. A file that is not there counts: on a network file system it may be so for a moment.
func Storage(err error) error {
	number, ok := errors.AsType[syscall.Errno](err)
	switch {
	case ok && slices.Contains(lasting, number), !ok && !errors.Is(err, os.ErrDeadlineExceeded):
		return err
	}
	return &StorageError{err}
}

// IsStorage reports whether err is a [StorageError], or comes of one.
func IsStorage(err error) bool {
	_, ok := errors.AsType[*StorageError](err)
	return ok
}

// stored reads a file, and tells errors of its storage from its end.
type stored struct {
	io.ReaderAt
	closed *atomic.Bool // nobody wants to know any more
}

func (s stored) ReadAt(b []byte, offset int64) (int, error) {
	if s.closed.Load() {
		return 0, os.ErrClosed
	}
	n, err := s.ReaderAt.ReadAt(b, offset)
	if err != nil && err != io.EOF {
		err = Storage(cause(err))
	}
	return n, err
}

// counted counts what is read.
type counted struct {
	io.ReaderAt
	all  []*atomic.Int64 // by many such
	here int64
}

func (c *counted) ReadAt(b []byte, offset int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(b, offset)
	for _, all := range c.all {
		all.Add(int64(n))
	}
	c.here += int64(n)
	return n, err
}

// Patience waits for storage that fails. Its zero value waits without a word.
type Patience struct {
	Log *slog.Logger // says that it lasts, and when it is over; nil: nobody listens
	// Resting is called before each pause, with true, and after it; nil: nobody wants to know.
	Resting func(bool)
	// Futile reports whether nobody needs the result any more; nil: it is always needed.
	Futile func() bool
}

// lasts is how long storage fails until that is said.
const lasts = 2 * time.Second

// Reach calls try until its error is none of storage, and returns that; with longer and longer pauses, for [timing.Storage] at
// most. The end of ctx ends a pause, with the last error.
func (p Patience) Reach(ctx context.Context, try func() error) error {
	began, said := time.Now(), false
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, timing.StoragePause) {
		err := try()
		away := time.Since(began)
		switch left := timing.Storage - away; {
		case !IsStorage(err):
			if said {
				p.Log.Info("The storage answers again", "after", away.Round(time.Second))
			}
			return err
		case left <= 0 || ctx.Err() != nil || p.Futile != nil && p.Futile():
			return err
		case left < pause:
			pause = left
		}
		if !said && p.Log != nil && away >= lasts {
			said = true
			p.Log.Warn("Waiting for the storage", "for", timing.Storage, "error", err)
		}
		p.rest(ctx, pause)
	}
}

// rest waits for a pause to be over, or for the end of ctx.
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
