package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// ownersSuffix is appended to the path of a program's own checkpoint to name the directory of its
// claims.
const ownersSuffix = ".owner"

// OwnersOf returns the directory with the claims of a checkpoint that a program writes itself.
func OwnersOf(path string) Dir { return Dir{Files: Local(path + ownersSuffix)} }

// ReleaseOf ends the claim of a job that has ended on such a checkpoint. It does nothing if the job
// does not own it, or this machine does not have it.
func ReleaseOf(path, job string) error {
	if _, err := os.Stat(path + ownersSuffix); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	dir := OwnersOf(path)
	owned, err := dir.Owned()
	if err == nil && owned != nil && owned.Owner.Job == job {
		err = dir.Release(*owned)
	}
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", path, err)
	}
	return nil
}
