package outage

import (
	"context"
	"errors"
	"log/slog"
	"syscall"
)

// WithRoom calls write until it does not fail for want of room on a disk, for [timing.Storage] at
// most or until ctx ends.
func WithRoom(ctx context.Context, log *slog.Logger, write func() error) error {
	return Patience{Log: log}.Reach(ctx, func() error {
		err := write()
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			return &Error{Err: err}
		}
		return err
	})
}
