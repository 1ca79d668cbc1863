package checkpoint

import "fmt"

// Release ends the claim of a job that has ended on a checkpoint that its program wrote itself. The
// claims are in the directory of that checkpoint. It does nothing if the job does not own it, or
// this machine does not have it.
func (o Opener) Release(path, job string) error {
	dir, err := o.Open(path)
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", path, err)
	}
	owned, err := dir.Owned()
	if err == nil && owned != nil && owned.Owner.Job == job {
		err = dir.Release(*owned)
	}
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", path, err)
	}
	return nil
}
