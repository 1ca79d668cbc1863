package job

import (
	"errors"
	"fmt"
)

// Why a job cannot be resumed.
var (
	ErrRunning       = errors.New("is running")
	ErrSucceeded     = errors.New("has succeeded: there is nothing to go on with")
	ErrNoCheckpoints = errors.New("has no checkpoints to go on from (--checkpoint_dir)")
)

// Resumable returns why the job cannot go on when it has ended in a state; nil if it can: from its
// newest checkpoint, or, of a program, with what that has saved itself: it is started again.
func (j *Job) Resumable(ended State) error {
	switch {
	case ended == Succeeded:
		return fmt.Errorf("job %s %w", j.Name, ErrSucceeded)
	case j.CheckpointDir == "" && !j.Runs():
		return fmt.Errorf("job %s %w", j.Name, ErrNoCheckpoints)
	}
	return nil
}
