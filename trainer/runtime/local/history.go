package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/elasticdl/elasticdl/trainer/runtime/role"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// historyFile has what went wrong in a job before it was resumed.
const historyFile = "history.json"

// writeHistory keeps the history of a job that is resumed, which its last status tells.
func (d dir) writeHistory(last *wire.JobStatus) error {
	text, err := role.EncodeHistory(role.HistoryOf(last))
	if err != nil {
		return err
	}
	return d.write(historyFile, append(text, '\n'))
}

// readHistory returns what went wrong before the job was resumed; nothing if it was not.
func (d dir) readHistory() ([]*wire.Incident, error) {
	text, err := os.ReadFile(d.path(historyFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the history of the job: %w", err)
	}
	return role.DecodeHistory(text)
}
