package laws

import (
	"errors"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

// dying is a place whose writer dies, or whose disk fails, after that many operations.
type dying struct {
	checkpoint.Files
	t    *testing.T
	left *int
	// the operation that fails has been performed: only the answer is lost
	late bool
}

var errDisk = errors.New("no space left on device")

// step performs an operation, unless it is one after the death.
func (d dying) step(operation func() error) error {
	*d.left--
	if *d.left >= 0 {
		return operation()
	}
	if d.late && *d.left == -1 {
		operation()
	}
	return errDisk
}

func (d dying) Create(name string) (checkpoint.Writer, error) { return d.create(d.Files.Create, name) }

func (d dying) CreateNew(name string) (checkpoint.Writer, error) {
	return d.create(d.Files.CreateNew, name)
}

func (d dying) create(create func(string) (checkpoint.Writer, error), name string) (checkpoint.Writer, error) {
	var w checkpoint.Writer
	err := d.step(func() (err error) {
		if w, err = create(name); err == nil {
			d.t.Cleanup(w.Abort) // when all was looked at
		}
		return err
	})
	return dyingWriter{w, d}, err
}

func (d dying) Remove(name string) error {
	return d.step(func() error { return d.Files.Remove(name) })
}

type dyingWriter struct {
	checkpoint.Writer
	dying
}

func (w dyingWriter) Write(b []byte) (n int, err error) {
	err = w.step(func() (err error) {
		n, err = w.Writer.Write(b)
		return err
	})
	if err != nil && n == 0 {
		n, _ = w.Writer.Write(b[:len(b)/2])
	}
	return n, err
}

func (w dyingWriter) Commit() error { return w.step(w.Writer.Commit) }

// Abort is not called by the dead.
func (w dyingWriter) Abort() {
	if *w.left >= 0 {
		w.Writer.Abort()
	}
}
