package data

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/elasticdl/elasticdl/trainer/store/outage"
)

// Place has files that are read by their names: paths with slashes, relative to the place. Errors
// of its storage that may end with time are an [outage.Error].
type Place interface {
	// Walk calls visit with the name and size of each file, sorted by the elements of their names.
	// It leaves out files and directories whose names begin with a dot.
	Walk(visit func(name string, size int64) error) error
	// Open returns a file, its size in bytes, and how to close it. It may be read by several
	// goroutines.
	Open(name string) (io.ReaderAt, int64, io.Closer, error)
	// Name returns the full name of a file, for errors.
	Name(name string) string
	// Close releases what the place has kept of its files.
	Close() error
}

// Buckets opens places in buckets by their names, such as s3://BUCKET/PREFIX. Only is the name of
// the file if the place is a single one. Package store/bucket has the function; nil: there are no
// buckets.
type Buckets func(location string) (place Place, only string, err error)

// directory is a directory of this machine.
type directory string

func (d directory) Name(name string) string {
	return filepath.Join(string(d), filepath.FromSlash(name))
}

func (directory) Close() error { return nil }

// within calls use with the directory. It opens the directory for each call, because on a network
// file system a handle that is kept may become stale.
func (d directory) within(use func(*os.Root) error) error {
	root, err := os.OpenRoot(string(d))
	if err != nil {
		return outage.Of(cause(err))
	}
	defer root.Close()
	return use(root)
}

func (d directory) Walk(visit func(name string, size int64) error) error {
	return d.within(func(root *os.Root) error {
		return fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return outage.Of(err)
			case hidden(name):
				if e.IsDir() {
					return fs.SkipDir
				}
				return nil
			case e.IsDir():
				return nil
			}
			info, err := root.Stat(name) // follows links
			if _, ok := errors.AsType[syscall.Errno](err); err != nil && !ok && e.Type()&fs.ModeSymlink != 0 {
				return fmt.Errorf("%s is a link that leads out of the directory: expected files, or "+
					"links to files in it", name)
			}
			if err == nil && info.Mode().IsRegular() {
				return visit(name, info.Size())
			}
			return outage.Of(err)
		})
	})
}

func (d directory) Open(name string) (file io.ReaderAt, size int64, closes io.Closer, err error) {
	err = d.within(func(root *os.Root) error {
		// A pipe would block Open.
		if info, err := root.Stat(filepath.FromSlash(name)); err != nil {
			return outage.Of(cause(err))
		} else if !info.Mode().IsRegular() {
			return errors.New("not a regular file")
		}
		f, err := root.Open(filepath.FromSlash(name))
		if err != nil {
			return outage.Of(cause(err))
		}
		info, err := f.Stat()
		if err != nil {
			f.Close()
			return outage.Of(cause(err))
		}
		file, size, closes = local{f}, info.Size(), f
		return nil
	})
	return file, size, closes, err
}

// local reads a file of this machine, and returns errors of its storage as an [outage.Error].
type local struct{ io.ReaderAt }

func (f local) ReadAt(b []byte, offset int64) (int, error) {
	n, err := f.ReaderAt.ReadAt(b, offset)
	if err != nil && err != io.EOF {
		err = outage.Of(cause(err))
	}
	return n, err
}
