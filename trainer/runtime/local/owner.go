package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

// owner returns the job of a directory as owner of checkpoint directories. Its launcher, which
// lives as long as the job, has that ID.
func (d dir) owner(uid string, launcher int) checkpoint.Owner {
	return checkpoint.LocalOwner(uid, d.name(), string(d), launcher)
}

// Standing finds out whether an owner of a checkpoint directory lives, if it is a job of this
// machine. A job whose launcher has ended is dead, unless it is suspended.
func Standing(o checkpoint.Owner) checkpoint.Standing {
	gone, known := o.Ended()
	switch {
	case !known || o.State == "":
		return checkpoint.Unknown
	case !gone:
		return checkpoint.Alive
	}
	uid, err := os.ReadFile(filepath.Join(o.State, "uid"))
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && strings.TrimSpace(string(uid)) != o.Job:
		// another job of the name took its place
		return checkpoint.Dead
	case err != nil:
		return checkpoint.Unknown
	case dir(o.State).rests():
		return checkpoint.Suspended
	}
	return checkpoint.Dead
}
