package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
)

// recordFile is the file that makes a directory a commit.
const recordFile = "commit.json"

// Files is a place for files: a directory ([Local]), or a prefix in a bucket of an object store
// (package bucket). Names have slashes, and no dots that lead elsewhere. Package laws tests this
// contract.
//
// A file appears whole, in one moment, and what was there before under its name is replaced in the
// same moment. A disk does so by a rename; an object store has none and needs none, as an object
// appears when its upload is complete. Also, a place creates a file only if there is none
// ([Files.CreateNew]). Nothing more is asked: two files do not appear together, and nothing is
// locked.
type Files interface {
	// Create begins a file. It is not there before its Commit. Directories are created when they
	// are needed.
	Create(name string) (Writer, error)
	// CreateNew begins a file that is not there yet. If there is one when the file appears, its
	// Commit changes nothing, and returns [fs.ErrExist]. A place that cannot do so replaces the
	// file: some stores that speak S3's protocol.
	CreateNew(name string) (Writer, error)
	// Open opens a file, of that many bytes. The error of one that is not there is
	// [fs.ErrNotExist]. Several may read from the file at the same time; reading in order is cheap
	// everywhere, and any other order costs a request on an object store.
	Open(name string) (io.ReaderAt, int64, io.Closer, error)
	// List returns the names in a directory, in any order; none if there is no such directory.
	List(dir string) ([]string, error)
	// Remove removes a file, or a directory with all that is in it, one file after the other. One
	// that is not there is no error.
	Remove(name string) error
	// String names the place to users.
	String() string
}

// Writer is a file that is being written.
type Writer interface {
	io.Writer
	// Commit makes the file appear, whole and lasting, in place of one of that name. After an error
	// it may have appeared all the same: an answer may be lost.
	Commit() error
	// Abort leaves nothing of the file. It does nothing after a Commit.
	Abort()
}

// Dir is a directory of commits.
type Dir struct {
	Files
	// the commits are those of its owner; nil: of everybody
	claim *Claim
	// hashes of the UIDs of the owner and of the jobs that it continues from, separated by spaces
	lineage string
}

// Under returns the directory as the owner of a claim has it: with the commits of that claim, and
// those of earlier claims that the owner or one of its ancestors had, whose UIDs are given. Commits
// that are older than claims are the owner's, too.
func (d Dir) Under(c Claim, ancestors ...string) Dir {
	under := Dir{Files: d.Files, claim: &c, lineage: hashOf(c.Owner.Job)}
	for _, job := range ancestors {
		under.lineage += " " + hashOf(job)
	}
	return under
}

// has reports whether a commit is one of the directory's owner.
func (d Dir) has(n Name) bool {
	return d.claim == nil || n.Claim == "" || n.Claim == d.claim.Tag() ||
		n.claimNumber() < d.claim.Number && strings.Contains(d.lineage, n.owner())
}

// outlived reports whether a commit was begun under a claim that does not count any more, of
// whichever job.
func (d Dir) outlived(n Name) bool { return d.claim != nil && n.claimNumber() < d.claim.Number }

// Opener opens a directory of commits by its name. nil opens those of this machine.
type Opener func(dir string) (Dir, error)

// Open opens a directory.
func (o Opener) Open(dir string) (Dir, error) {
	if o == nil {
		return Dir{Files: Local(dir)}, nil
	}
	return o(dir)
}

// Path names a file of a commit to users.
func (d Dir) Path(n Name, file string) string {
	return strings.TrimSuffix(d.String(), "/") + "/" + n.String() + "/" + file
}

// Create begins a file of a commit.
func (d Dir) Create(n Name, file string) (Writer, error) {
	return d.Files.Create(n.String() + "/" + file)
}

// Entry is a commit that was begun.
type Entry struct {
	Name
	// it has files: a bucket lists a foreign object, named like a commit, as a commit without any
	Begun bool
	// it has a record
	Complete bool
	// why that cannot be known; nil: it is known
	Err error
}

// Commits returns all commits that were begun, the newest first. One that cannot be read is an
// entry like the others: it hides none of them. A file of somebody else, named like a commit, is
// none. The error tells that the directory itself cannot be read.
func (d Dir) Commits() ([]Entry, error) { return d.commits(d.has) }

func (d Dir) commits(of func(Name) bool) ([]Entry, error) {
	names, err := d.List("")
	if err != nil {
		return nil, fmt.Errorf("list checkpoints in %v: %w", d, err)
	}
	var all []Entry
	for _, text := range names {
		n, ok := parseName(text)
		if !ok || !of(n) {
			continue
		}
		e := Entry{Name: n}
		files, err := d.List(text)
		if errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err != nil {
			e.Err = fmt.Errorf("list checkpoint %s: %w", strings.TrimSuffix(d.Path(n, ""), "/"), lasting(err))
		}
		e.Begun, e.Complete = len(files) > 0, slices.Contains(files, recordFile)
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Entry) int { return newer(a.Name, b.Name) })
	return all, nil
}

// Find returns the name of the commit with a number. Of a directory that has several, made by jobs
// that shared it, none is meant.
func (d Dir) Find(number int64) (Name, error) {
	all, err := d.Commits()
	if err != nil {
		return Name{}, err
	}
	var found []Name
	for _, e := range all {
		if e.Number == number {
			found = append(found, e.Name)
		}
	}
	switch len(found) {
	case 0:
		return Name{}, damaged("read checkpoint: %s is not there", d.Path(Name{Number: number}, recordFile))
	case 1:
		return found[0], nil
	}
	return Name{}, fmt.Errorf("%v has several commits with number %d: %v; expected the name of one "+
		"of them", d, number, found)
}

// Highest returns the highest number of a commit that was begun in the directory, by any job; 0:
// there is none.
func (d Dir) Highest() (int64, error) {
	names, err := d.List("")
	if err != nil {
		return 0, fmt.Errorf("list checkpoints in %v: %w", d, err)
	}
	highest := int64(0)
	for _, text := range names {
		if n, ok := parseName(text); ok {
			highest = max(highest, n.Number)
		}
	}
	return highest, nil
}

// Begun returns how many shards of a commit are there, and their bytes, whether it has a record or
// not.
func (d Dir) Begun(n Name) (shards int, bytes int64) {
	// of what is being removed nothing is there
	files, _ := d.List(n.String())
	for _, name := range files {
		if name == recordFile || strings.HasPrefix(name, ".") {
			continue
		}
		if _, size, closer, err := d.Open(n.String() + "/" + name); err == nil {
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
	path := d.Path(c.Name(), recordFile)
	f, err := d.Create(c.Name(), recordFile)
	if err != nil {
		return fmt.Errorf("write checkpoint: %s: %w", path, err)
	}
	defer f.Abort()
	if _, err = f.Write(record); err == nil {
		err = f.Commit()
	}
	if err != nil {
		return fmt.Errorf("write checkpoint: %s: %w", path, err)
	}
	return nil
}

// Retain removes all commits but the newest that are complete, that many; 0 keeps all of those.
// Those that are known to be damaged do not count: for each of them an older one is kept. Also what
// is older than those and was never completed goes. It removes nothing of which it is not known
// what it is. It returns those of the damaged ones of which nothing is left.
func (d Dir) Retain(keep int, damaged map[Name]bool) (removed []Name, err error) {
	all, err := d.Commits()
	if err != nil {
		return nil, err
	}
	kept, left := 0, make(map[Name]bool)
	var problems []error
	for _, e := range all {
		left[e.Name] = true
		switch {
		case e.Err != nil:
		case e.Complete && (keep == 0 || kept < keep):
			if !damaged[e.Name] {
				kept++
			}
		case kept > 0:
			// newer ones that have no record may be about to get it
			err := d.Discard(e.Name)
			problems, left[e.Name] = append(problems, err), err != nil
		}
	}
	for n := range damaged {
		if !left[n] {
			removed = append(removed, n)
		}
	}
	return removed, errors.Join(problems...)
}

// Sweep removes the commits up to a number that were given up, by the owner or under earlier
// claims: they have no record, and get none.
func (d Dir) Sweep(number int64) error {
	all, err := d.commits(func(n Name) bool { return d.has(n) || d.outlived(n) })
	if err != nil {
		return err
	}
	var problems []error
	for _, e := range all {
		if e.Number <= number && !e.Complete && e.Err == nil {
			problems = append(problems, d.Discard(e.Name))
		}
	}
	return errors.Join(problems...)
}

// Discard removes a commit, whole or not. It takes the record away first: a commit that is half
// removed is none.
func (d Dir) Discard(n Name) error {
	err := d.Files.Remove(n.String() + "/" + recordFile)
	if err == nil {
		err = d.Files.Remove(n.String())
	}
	if err != nil {
		return fmt.Errorf("remove checkpoint %s: %w", d.Path(n, ""), err)
	}
	return nil
}
