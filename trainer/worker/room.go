package worker

import (
	"context"
	"errors"
	"log/slog"
	"syscall"

	"github.com/elasticdl/elasticdl/trainer/data"
)

// WithRoom calls write until it does not fail for want of room on a disk: as long as a worker
// waits for storage that fails, or until ctx ends.
func WithRoom(ctx context.Context, log *slog.Logger, write func() error) error {
	return data.Patience{Log: log}.Reach(ctx, func() error {
		err := write()
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			return &data.StorageError{Err: err}
		}
		return err
	})
}
