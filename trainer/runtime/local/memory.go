package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// raise increments the incarnation of the job's master, the first being 1, and returns it when it
// is on the disk, or kept.
func (l *launcher) raise() (int, error) {
	last := 0
	text, err := l.read(incarnationFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return 0, err
	default:
		if last, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil || last < 1 {
			return 0, fmt.Errorf("read %s: %q: expected a number from 1", l.dir.path(incarnationFile), text)
		}
	}
	l.backlog.put(incarnationFile, fmt.Appendln(nil, last+1))
	return last + 1, nil
}

// read returns a file of the state: what is kept of it, or what is on the disk.
func (l *launcher) read(file string) ([]byte, error) {
	if it, ok := l.backlog.get(file); ok {
		return it.text, nil
	}
	return os.ReadFile(l.dir.path(file))
}

// stored returns the status that was written last.
func (l *launcher) stored() (*wire.JobStatus, error) {
	if it, ok := l.backlog.get(statusFile); ok {
		return decode(it.text)
	}
	return l.dir.stored()
}

// storedSince reports whether a status was written at or after a time.
func (l *launcher) storedSince(t time.Time) bool {
	if it, ok := l.backlog.get(statusFile); ok {
		return it.since.After(t)
	}
	written, err := os.Stat(l.dir.path(statusFile))
	return err == nil && written.ModTime().After(t)
}

// launched returns the incarnation of the last master that listened, 0 if none did.
func (l *launcher) launched() int {
	var at address
	text, err := l.read(masterFile)
	if err != nil || json.Unmarshal(text, &at) != nil {
		return 0
	}
	return at.Incarnation
}

// memory keeps the record of a job's masters in the job's state. It implements [master.Memory].
// Only one master lives at a time, so it never refuses a write as that of a superseded one.
type memory struct{ state *state }

// Write implements [master.Memory].
func (m memory) Write(_ context.Context, record []byte) error {
	return m.state.write(recordFile, record)
}

// writeSynced replaces a file of the directory atomically, and returns when it is on the disk.
func (d dir) writeSynced(file string, text []byte) error {
	aside, err := os.OpenFile(d.path(file+".new"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, private)
	if err != nil {
		return err
	}
	_, err = aside.Write(text)
	if err = errors.Join(err, aside.Sync(), aside.Close()); err != nil {
		return err
	}
	if err := os.Rename(aside.Name(), d.path(file)); err != nil {
		return err
	}
	parent, err := os.Open(string(d))
	if err != nil {
		return err
	}
	return errors.Join(parent.Sync(), parent.Close())
}
