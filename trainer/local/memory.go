package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// raise increments the incarnation of the job's master, the first being 1, and returns it when it is on the disk. Only the launcher calls it.
func (d dir) raise() (int, error) {
	last := 0
	text, err := os.ReadFile(d.path("incarnation"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return 0, err
	default:
		if last, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil || last < 1 {
			return 0, fmt.Errorf("read %s: %q: expected a number from 1", d.path("incarnation"), text)
		}
	}
	return last + 1, d.writeSynced("incarnation", fmt.Appendln(nil, last+1))
}

// memory keeps the record of a job's masters in the job's directory. It implements [master.Memory]. Only one master lives at a time, so it
// never refuses a write as that of a superseded one.
type memory struct{ dir dir }

// Write implements [master.Memory].
func (m memory) Write(_ context.Context, record []byte) error {
	return m.dir.writeSynced("record", record)
}

// record returns the last record of the job's masters, nil if there is none.
func (d dir) record() ([]byte, error) {
	record, err := os.ReadFile(d.path("record"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return record, err
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
