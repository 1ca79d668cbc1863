package incluster

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// setAside moves away what an earlier job of that name has left where this one has its checkpoints
// by default, to the same name with ".before", in place of what was moved there before. A directory
// that the job names itself is not touched.
func setAside(j *job.Job, log *slog.Logger) error {
	dir := j.CheckpointDir
	if dir == "" || dir != j.ClaimDir() {
		return nil
	}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	before := dir + ".before"
	err := os.RemoveAll(before)
	if err == nil {
		err = os.Rename(dir, before)
	}
	if err != nil {
		return fmt.Errorf("--checkpoint_dir=%s: move the checkpoints of an earlier job of that name "+
			"to %s: %w; give another directory, or remove them", dir, before, err)
	}
	log.Info("Checkpoints of an earlier job of that name are moved", "from", dir, "to", before)
	return nil
}
