package tensorboard

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

// Place is a directory for the event files of a run. Its calls may take as long as its storage
// takes.
type Place struct {
	checkpoint.Files
	// path of the directory on this machine; "": the files are objects
	path string
}

// Directory returns a directory of this machine, whose files are appended to: TensorBoard keeps
// them open.
func Directory(path string) Place { return Place{checkpoint.Local(path), path} }

// Objects returns a place whose files are replaced whole, such as a prefix in a bucket.
func Objects(files checkpoint.Files) Place { return Place{Files: files} }

// Limits of the files of a directory, and of objects: each write sends all of an object.
const (
	fileLimit   = 4 << 20   // bytes
	objectLimit = 256 << 10 // bytes

	objectEvery = 30 * time.Second
	objectFirst = 3 * time.Second
)

// limit returns the size above which a file is followed by another one, in bytes.
func (p Place) limit() int {
	if p.path == "" {
		return objectLimit
	}
	return fileLimit
}

// every returns the time between two writes: the first write comes sooner.
func (p Place) every(first bool) time.Duration {
	switch {
	case p.path != "":
		return 0
	case first:
		return objectFirst
	}
	return objectEvery
}

// pastFiles is the number of files that are read for the past of a run.
const pastFiles = 3

// past reads what the newest files of the run show. A file that cannot be read to its end shows the
// events before.
func (p Place) past(names []string) (Past, error) {
	var events []Event
	for _, name := range names[max(0, len(names)-pastFiles):] {
		text, err := p.read(name)
		if err != nil {
			return Past{}, err
		}
		read, _, _ := Decode(text)
		events = append(events, read...)
	}
	return PastOf(events), nil
}

// read returns a file, or its beginning if it is larger than any of this package.
func (p Place) read(name string) ([]byte, error) {
	r, size, closer, err := p.Open(name)
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	text := make([]byte, min(size, fileLimit+backlogLimit+MaxEvent))
	n, err := r.ReadAt(text, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return text[:n], err
}

// file is an event file that grows.
type file interface {
	// add appends bytes. After an error the file has none of them, or is damaged.
	add(b []byte) error
	size() int
	// damaged reports whether nothing can be appended any more.
	damaged() bool
	close()
}

// create returns a new file, which appears with its first bytes.
func (p Place) create(name string) (file, error) {
	if p.path == "" {
		return &object{files: p.Files, name: name}, nil
	}
	if err := os.MkdirAll(p.path, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(p.path, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	return &appended{File: f}, nil
}

// appended is a file of a directory.
type appended struct {
	*os.File
	good int // bytes that are whole events
	torn bool
}

func (a *appended) add(b []byte) error {
	_, err := a.Write(b)
	if err != nil {
		a.torn = a.Truncate(int64(a.good)) != nil
		return err
	}
	a.good += len(b)
	return nil
}

func (a *appended) size() int     { return a.good }
func (a *appended) damaged() bool { return a.torn }
func (a *appended) close()        { a.Close() }

// object is a file that is replaced whole.
type object struct {
	files checkpoint.Files
	name  string
	// content is the content of the file, without that of a failed write.
	content []byte
}

func (o *object) add(b []byte) error {
	w, err := o.files.Create(o.name)
	if err != nil {
		return err
	}
	defer w.Abort()
	whole := append(o.content[:len(o.content):len(o.content)], b...)
	if _, err := w.Write(whole); err != nil {
		return err
	}
	if err := w.Commit(); err != nil {
		return err
	}
	o.content = whole
	return nil
}

func (o *object) size() int     { return len(o.content) }
func (o *object) damaged() bool { return false }
func (o *object) close()        {}
