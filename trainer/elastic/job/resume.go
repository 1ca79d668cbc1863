package job

import (
	"errors"
	"fmt"
)

// Reasons why a job cannot be resumed.
var (
	ErrRunning       = errors.New("is running")
	ErrSucceeded     = errors.New("has succeeded: there is nothing to continue")
	ErrNoCheckpoints = errors.New("has no checkpoints to continue from (--checkpoint_dir)")
)

// Resumable returns an error if the job cannot be resumed after it has ended in a state. It is
// resumed from its newest checkpoint. A program is started again, and reads what it has saved.
func (j *Job) Resumable(ended State) error {
	switch {
	case ended == Succeeded:
		return fmt.Errorf("job %s %w", j.Name, ErrSucceeded)
	case j.CheckpointDir == "" && !j.Runs():
		return fmt.Errorf("job %s %w", j.Name, ErrNoCheckpoints)
	}
	return nil
}
