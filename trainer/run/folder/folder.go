// Package folder reads a directory of code that goes to a cluster: into an image, or as an archive
// to a volume.
//
// It leaves out what no program needs and what should stay private: version control, caches of
// Python, virtual environments and .env files. A .dockerignore in the directory excludes more, or
// includes something again with a pattern that begins with "!".
//
// Symbolic links are followed; archives contain the files that they lead to, and no links.
//
// Laws:
//
//  1. The same files make the same archive, byte by byte, whatever their owner, location and age.
//  2. Nothing from outside the directory is included: a link that leads out is an error.
//  3. Files are limited in size and number before any of them is copied.
package folder

import (
	"archive/tar"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// The most that a directory of code may have in it.
const (
	MaxBytes   = 500_000_000
	MaxEntries = 50_000
)

// ignoreFile names the file with the ignored patterns of a directory.
const ignoreFile = ".dockerignore"

// ErrEmpty is wrapped by the error about a directory that has no files, or only files that are left
// out.
var ErrEmpty = errors.New("no files in it")

// leftOut are the patterns that apply to every directory. A directory that contains venvFile is
// left out, too.
var leftOut = []string{
	"**/.git", "**/.hg", "**/.svn", "**/__pycache__", "**/*.py[co]", "**/.venv", "**/.env",
	"**/.mypy_cache", "**/.pytest_cache", "**/.ruff_cache",
	"**/.tox", "**/.nox", "**/.ipynb_checkpoints", "**/.DS_Store",
}

// venvFile is in every virtual environment of Python, whatever its directory is called.
const venvFile = "pyvenv.cfg"

// Folder is a directory that has been listed.
type Folder struct {
	Dir string
	// by name, a directory before what is in it
	Entries []Entry
	// bytes of all files
	Size int64
}

// Entry is a file or a directory.
type Entry struct {
	// from the directory, with slashes; that of a directory ends with one
	Name string
	// of the file, behind links; "" for a directory
	Path       string
	Size       int64
	Executable bool
}

// IsDir reports whether the entry is a directory.
func (e Entry) IsDir() bool { return strings.HasSuffix(e.Name, "/") }

// Mode returns the permissions of the entry: any user may read it, only its owner may write to it.
func (e Entry) Mode() fs.FileMode {
	if e.Executable || e.IsDir() {
		return 0o755
	}
	return 0o644
}

// Read lists a directory. No file of it is opened.
func Read(dir string) (*Folder, error) {
	if info, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("expected a directory: %w", errors.Unwrap(err))
	} else if !info.IsDir() {
		return nil, errors.New("expected a directory, found a file")
	}
	root, err := filepath.Abs(dir)
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		return nil, err
	}
	ignore, err := patterns(root)
	if err != nil {
		return nil, err
	}
	r := &reading{folder: &Folder{Dir: dir}, root: root, ignore: ignore}
	if err := r.dir(root, "", false, nil); err != nil {
		return nil, err
	}
	return r.folder, r.folder.check()
}

// patterns reads what a directory leaves out.
func patterns(root string) (*patternmatcher.PatternMatcher, error) {
	all := leftOut
	file, err := os.Open(filepath.Join(root, ignoreFile))
	if err == nil {
		defer file.Close()
		var own []string
		own, err = ignorefile.ReadAll(file)
		all = slices.Concat(leftOut, own) // the last pattern that fits counts
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read %s: %w", ignoreFile, err)
	}
	ignore, err := patternmatcher.New(all)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", ignoreFile, err)
	}
	return ignore, nil
}

// check refuses what is empty or too large.
func (f *Folder) check() error {
	files, largest := 0, Entry{}
	for _, e := range f.Entries {
		if !e.IsDir() {
			files++
			largest = slices.MaxFunc([]Entry{largest, e}, func(a, b Entry) int { return cmp.Compare(a.Size, b.Size) })
		}
	}
	switch {
	case files == 0:
		return ErrEmpty
	case f.Size > MaxBytes:
		return fmt.Errorf("%d MB in it, expected at most %d: put data on a volume, or list "+
			"files to leave out in %s; the largest file is %s, %d MB",
			megabytes(f.Size), megabytes(MaxBytes), ignoreFile, largest.Name, megabytes(largest.Size))
	}
	return nil
}

// megabytes returns bytes in megabytes, rounded up.
func megabytes(n int64) int64 { return (n + 999_999) / 1_000_000 }

// reading is a directory that is being listed.
type reading struct {
	folder *Folder
	root   string // absolute, without links
	ignore *patternmatcher.PatternMatcher
}

// dir lists one directory, at the path real, as name; above are the real paths of the directories
// that contain it. Of an ignored directory it lists what a pattern includes again.
func (r *reading) dir(real, name string, ignored bool, above []string) error {
	if slices.Contains(above, real) {
		return fmt.Errorf("%s: the symbolic link leads back to a directory that contains it; remove "+
			"it, or name it in %s", name, ignoreFile)
	}
	entries, err := os.ReadDir(real)
	if err != nil {
		return err
	}
	if name != "" && slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == venvFile }) {
		return nil
	}
	if name != "" && !ignored {
		r.folder.Entries = append(r.folder.Entries, Entry{Name: name + "/"})
	}
	above = append(slices.Clip(above), real)
	for _, e := range entries {
		if err := r.entry(filepath.Join(real, e.Name()), path.Join(name, e.Name()), e.Type(), above); err != nil {
			return err
		}
	}
	return nil
}

// entry lists what is at a path.
func (r *reading) entry(at, name string, kind fs.FileMode, above []string) error {
	ignored, err := r.ignore.MatchesOrParentMatches(name)
	if err != nil {
		return fmt.Errorf("%s: %w", ignoreFile, err)
	}
	if ignored && (!kind.IsDir() || !r.ignore.Exclusions()) {
		return nil
	}
	if strings.ContainsAny(name, "\\\x00") {
		return fmt.Errorf("%q: expected a name without a backslash; rename it, or name it in %s", name, ignoreFile)
	}
	if kind&fs.ModeSymlink != 0 {
		if at, err = r.follow(at, name); err != nil {
			return err
		}
	}
	info, err := os.Stat(at)
	if err != nil {
		return err
	}
	if n := len(r.folder.Entries); n >= MaxEntries {
		return fmt.Errorf("more than %d files in it: put data on a volume, or list files to "+
			"leave out in %s", MaxEntries, ignoreFile)
	}
	switch {
	case info.IsDir():
		return r.dir(at, name, ignored, above)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: neither a file nor a directory; remove it, or name it in %s", name, ignoreFile)
	}
	r.folder.Entries = append(r.folder.Entries, Entry{Name: name, Path: at, Size: info.Size(),
		Executable: info.Mode()&0o111 != 0})
	r.folder.Size += info.Size()
	return nil
}

// follow returns where a link leads to, which is in the directory.
func (r *reading) follow(link, name string) (string, error) {
	at, err := filepath.EvalSymlinks(link)
	if err != nil {
		return "", fmt.Errorf("%s: the symbolic link leads nowhere; remove it, or name it in %s", name, ignoreFile)
	}
	if rel, err := filepath.Rel(r.root, at); err != nil || !filepath.IsLocal(rel) {
		return "", fmt.Errorf("%s: the symbolic link leads out of the directory, to %s; put there "+
			"what the program needs, or name it in %s", name, at, ignoreFile)
	}
	return at, nil
}

// Has reports whether a file is in the folder.
func (f *Folder) Has(name string) bool {
	name = path.Clean(name)
	return slices.ContainsFunc(f.Entries, func(e Entry) bool { return e.Name == name })
}

// Files returns how many files there are.
func (f *Folder) Files() int {
	n := 0
	for _, e := range f.Entries {
		if !e.IsDir() {
			n++
		}
	}
	return n
}

// Archive writes the folder as a tar archive.
func (f *Folder) Archive(to io.Writer) error {
	archive := tar.NewWriter(to)
	for _, e := range f.Entries {
		if err := e.write(archive); err != nil {
			return fmt.Errorf("pack %s: %w", e.Name, err)
		}
	}
	return archive.Close()
}

func (e Entry) write(to *tar.Writer) error {
	header := &tar.Header{Name: e.Name, Mode: int64(e.Mode()), Size: e.Size, ModTime: time.Unix(0, 0),
		Typeflag: tar.TypeReg, Format: tar.FormatPAX}
	if e.IsDir() {
		header.Typeflag = tar.TypeDir
		return to.WriteHeader(header)
	}
	if err := to.WriteHeader(header); err != nil {
		return err
	}
	file, err := os.Open(e.Path)
	if err != nil {
		return err
	}
	defer file.Close()
	if n, err := io.Copy(to, file); errors.Is(err, tar.ErrWriteTooLong) || err == nil && n != e.Size {
		return errors.New("it changed while it was read; try again")
	} else if err != nil {
		return err
	}
	return nil
}
