package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// recordFile is the file that makes a directory a commit.
const recordFile = "commit.json"

// prefix begins the names of commits.
const prefix = "commit-"

// Files is a place for files: a directory ([Local]), or a prefix in a bucket of an object store (package bucket). Names have
// slashes, and no dots that lead elsewhere. Package laws tests what is said here.
//
// A file appears whole, in one moment, and what was there before under its name is replaced in the same moment. A disk does so by a
// rename; an object store has none and needs none, as an object appears when its upload is complete. Nothing more is asked of a
// place: two files do not appear together, and nothing is locked.
type Files interface {
	// Create begins a file. It is not there before its Commit. Directories are made as they are needed.
	Create(name string) (Writer, error)
	// Open opens a file, of so many bytes. The error of one that is not there is [fs.ErrNotExist]. Several may read from the file at
	// the same time; reading in order is cheap everywhere, and any other order costs a request on an object store.
	Open(name string) (io.ReaderAt, int64, io.Closer, error)
	// List returns the names in a directory, in any order; none if there is no such directory.
	List(dir string) ([]string, error)
	// Remove removes a file, or a directory with all that is in it, one file after the other. One that is not there is no error.
	Remove(name string) error
	// String names the place to users.
	String() string
}

// Writer is a file that is being written.
type Writer interface {
	io.Writer
	// Commit makes the file appear, whole and lasting, in place of one of that name. After an error it may have appeared
	// all the same: an answer may be lost.
	Commit() error
	// Abort leaves nothing of the file. It does nothing after a Commit.
	Abort()
}

// Dir is a directory of commits.
type Dir struct{ Files }

// Opener opens a directory of commits by its name. nil opens those of this machine.
type Opener func(dir string) (Dir, error)

// Open opens a directory.
func (o Opener) Open(dir string) (Dir, error) {
	if o == nil {
		return Dir{Local(dir)}, nil
	}
	return o(dir)
}

func commitDir(number int64) string { return fmt.Sprintf("%s%08d", prefix, number) }

// split takes the last name of a location apart, and what follows a question mark in the name of a bucket.
func split(location string) (parent, name, query string) {
	if at := strings.Index(location, "?"); at >= 0 && strings.Contains(location[:at], "://") {
		location, query = location[:at], location[at:]
	}
	location = strings.TrimRight(location, "/")
	if i := strings.LastIndex(location, "/"); i >= 0 {
		return location[:i+1], location[i+1:], query
	}
	return "./", location, query
}

// Split splits the location of a file into that of its directory and its name.
func Split(location string) (dir, name string) {
	parent, name, query := split(location)
	return parent + query, name
}

// Within splits a location that may be of one commit into that of its directory and the commit's number; 0: it is of a directory.
func Within(location string) (dir string, number int64) {
	parent, name, query := split(location)
	digits, ok := strings.CutPrefix(name, prefix)
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || n <= 0 || commitDir(n) != name {
		return location, 0
	}
	return parent + query, n
}

// Path names a file of a commit to users.
func (d Dir) Path(number int64, file string) string {
	return strings.TrimSuffix(d.String(), "/") + "/" + commitDir(number) + "/" + file
}

// Create begins a file of a commit.
func (d Dir) Create(number int64, file string) (Writer, error) {
	return d.Files.Create(commitDir(number) + "/" + file)
}

// Numbers returns the numbers of all commits that were begun, the newest first; complete says which of them have a record.
func (d Dir) Numbers() (numbers []int64, complete map[int64]bool, err error) {
	names, err := d.List("")
	if err != nil {
		return nil, nil, fmt.Errorf("list checkpoints in %v: %w", d, err)
	}
	complete = make(map[int64]bool)
	for _, name := range names {
		digits, ok := strings.CutPrefix(name, prefix)
		n, err := strconv.ParseInt(digits, 10, 64)
		if !ok || err != nil || n <= 0 || commitDir(n) != name {
			continue
		}
		files, err := d.List(name)
		if err != nil {
			return nil, nil, fmt.Errorf("list checkpoints in %v: %w", d, err)
		}
		numbers = append(numbers, n)
		complete[n] = slices.Contains(files, recordFile)
	}
	slices.SortFunc(numbers, func(a, b int64) int { return cmp.Compare(b, a) })
	return numbers, complete, nil
}

// Begun returns how many shards of a commit are there, and their bytes, whether it has a record or not.
func (d Dir) Begun(number int64) (shards int, bytes int64) {
	files, _ := d.List(commitDir(number)) // of what is being removed nothing is there
	for _, name := range files {
		if name == recordFile || strings.HasPrefix(name, ".") {
			continue
		}
		if _, size, closer, err := d.Open(commitDir(number) + "/" + name); err == nil {
			closer.Close()
			shards, bytes = shards+1, bytes+size
		}
	}
	return shards, bytes
}

// WriteCommit writes the record of a commit whose shards are there: then it is one.
func (d Dir) WriteCommit(c Commit) error {
	record, err := c.Encode()
	if err != nil {
		return err
	}
	f, err := d.Create(c.Number, recordFile)
	if err != nil {
		return fmt.Errorf("write checkpoint: %s: %w", d.Path(c.Number, recordFile), err)
	}
	defer f.Abort()
	if _, err = f.Write(record); err == nil {
		err = f.Commit()
	}
	if err != nil {
		return fmt.Errorf("write checkpoint: %s: %w", d.Path(c.Number, recordFile), err)
	}
	return nil
}

// Retain removes all commits but the newest that are complete, so many; 0 keeps all of those. Also what is older than those and was
// never completed goes.
func (d Dir) Retain(keep int) error {
	numbers, complete, err := d.Numbers()
	if err != nil {
		return err
	}
	kept := 0
	var problems []error
	for _, n := range numbers {
		switch {
		case complete[n] && (keep == 0 || kept < keep):
			kept++
		case kept > 0: // newer ones that have no record may be about to get it
			problems = append(problems, d.remove(n))
		}
	}
	return errors.Join(problems...)
}

// Discard removes a commit, whole or not.
func (d Dir) Discard(number int64) error { return d.remove(number) }

// remove takes the record away first: a commit that is half removed is none.
func (d Dir) remove(number int64) error {
	err := d.Files.Remove(commitDir(number) + "/" + recordFile)
	if err == nil {
		err = d.Files.Remove(commitDir(number))
	}
	if err != nil {
		return fmt.Errorf("remove checkpoint %s: %w", d.Path(number, ""), err)
	}
	return nil
}

// Local returns the files below a directory of this machine, which is made when something is written.
func Local(path string) Files { return local{path} }

type local struct{ root string }

func (l local) String() string          { return l.root }
func (l local) path(name string) string { return filepath.Join(l.root, filepath.FromSlash(name)) }

func (l local) Create(name string) (Writer, error) {
	path := l.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return nil, err
	}
	return &localFile{f, l.root, path}, nil
}

func (l local) Open(name string) (io.ReaderAt, int64, io.Closer, error) {
	f, err := os.Open(l.path(name))
	if err != nil {
		return nil, 0, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", f.Name())
	}
	if err != nil {
		f.Close()
		return nil, 0, nil, err
	}
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

// localFile is written under another name, and renamed.
type localFile struct {
	*os.File
	root, path string
}

func (f *localFile) Abort() {
	f.Close()
	os.Remove(f.Name())
}

func (f *localFile) Commit() error {
	err := f.Chmod(0o644)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), f.path)
	}
	// A name lasts when its directory is on the disk, and that one's name in the one above.
	for dir := filepath.Dir(f.path); err == nil; dir = filepath.Dir(dir) {
		err = syncDir(dir)
		if rel, outside := filepath.Rel(f.root, dir); outside != nil || rel == "." {
			break
		}
	}
	return err
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
