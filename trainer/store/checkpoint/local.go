package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Local returns the files below a directory of this machine, which is made when something is
// written.
func Local(path string) Files { return local{path, &system} }

// errNoFile is the error of a directory, or of something else, that stands in the place of a file.
var errNoFile = errors.New("is no file")

type local struct {
	root string
	disk *disk
}

// disk holds the calls that a test replaces.
type disk struct {
	// returns when a file, or the names in a directory, are on the disk
	sync func(*os.File) error
}

// system is the disk of this machine.
var system = disk{(*os.File).Sync}

func (l local) String() string          { return l.root }
func (l local) path(name string) string { return filepath.Join(l.root, filepath.FromSlash(name)) }

func (l local) Create(name string) (Writer, error) { return l.create(name, os.Rename) }

func (l local) CreateNew(name string) (Writer, error) { return l.create(name, l.link) }

// link gives a file that is complete its name, unless that is taken.
func (l local) link(temporary, path string) error {
	err := os.Link(temporary, path)
	if errors.Is(err, fs.ErrExist) || err == nil {
		os.Remove(temporary)
		return err
	}
	if !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	content, err := os.ReadFile(temporary) // of a file system without links
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = l.disk.sync(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(path)
		return err
	}
	os.Remove(temporary)
	return nil
}

func (l local) create(name string, appear func(temporary, path string) error) (Writer, error) {
	path := l.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return nil, err
	}
	return &localFile{f, l, path, appear}, nil
}

func (l local) Open(name string) (io.ReaderAt, int64, io.Closer, error) {
	f, err := os.Open(l.path(name))
	if err != nil {
		return nil, 0, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s %w", f.Name(), errNoFile)
	}
	if err != nil {
		f.Close()
		return nil, 0, nil, err
	}
	readInOrder(f)
	return f, info.Size(), f, nil
}

func (l local) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(l.path(dir))
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return names, err
}

func (l local) Remove(name string) error { return os.RemoveAll(l.path(name)) }

// localFile is written under another name, and gets its own when it is complete.
type localFile struct {
	*os.File
	of     local
	path   string
	appear func(temporary, path string) error
}

func (f *localFile) Abort() {
	f.Close()
	os.Remove(f.Name())
}

func (f *localFile) Commit() error {
	err := f.Chmod(0o644)
	if err == nil {
		err = f.of.disk.sync(f.File)
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = f.appear(f.Name(), f.path)
	}
	// A name lasts when its directory is on the disk, and that one's name in the one above.
	for dir := filepath.Dir(f.path); err == nil; dir = filepath.Dir(dir) {
		err = f.of.syncDir(dir)
		if rel, outside := filepath.Rel(f.of.root, dir); outside != nil || rel == "." {
			break
		}
	}
	return err
}

func (l local) syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return l.disk.sync(d)
}
