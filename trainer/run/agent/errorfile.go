package agent

import (
	"os"
	"path/filepath"

	"github.com/elasticdl/elasticdl/trainer/run/program"
)

// errorFile is the file to which the agent writes the first failure of its processes. torchrun's
// agent writes it when a failure ends the job. This agent does not know whether a failure ends the
// job, so the file exists from the failure until the processes start again.
type errorFile struct {
	path    string // "": no file is written
	written bool
}

// write writes a failure.
func (f *errorFile) write(failed program.Exit) error {
	if f.path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
		return err
	}
	f.written = true
	return os.WriteFile(f.path, failed.ErrorFile(), 0o644)
}

// remove removes the file if it was written: the job continues. A file that cannot be removed, such
// as a container's termination log, is emptied.
func (f *errorFile) remove() error {
	if !f.written {
		return nil
	}
	f.written = false
	if os.Remove(f.path) == nil {
		return nil
	}
	return os.Truncate(f.path, 0)
}
