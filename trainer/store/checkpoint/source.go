package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/store/safetensors"
)

// Source is a saved model: a commit, or an exported model.
type Source struct {
	Dir Dir
	// Dir's, as an [Opener] takes it
	Location string
	// the commit; the zero Name: the newest of Dir that is whole
	Commit Name
	// of the commit's record; "": that is not known
	Checksum string
	// the exported model in Dir; "": it is a commit
	File string
}

// Find finds the model that a location names: the directory of a job's commits, one of them, the
// directory of an exported model, or its file, whose name ends with .safetensors. A directory that
// has commits and an exported model stands for its commits. Find looks at names only. [ErrNone]:
// there is no model.
func (o Opener) Find(location string) (Source, error) {
	s := Source{Location: location}
	dir, name, query := split(location)
	if strings.HasSuffix(name, ".safetensors") {
		s.Location, s.File = dir+query, name
	} else {
		s.Location, s.Commit = Within(location)
	}
	var err error
	if s.Dir, err = o.Open(s.Location); err != nil {
		return Source{}, err
	}
	if s.File == "" {
		found, err := s.commits()
		if found || err != nil {
			return s, err
		}
	}
	if s.Commit.Number == 0 {
		names, err := s.Dir.List("")
		if err != nil {
			return Source{}, fmt.Errorf("list %v: %w", s.Dir, err)
		}
		if s.File == "" {
			s.File = ModelFile
		}
		if slices.Contains(names, s.File) {
			return s, nil
		}
	}
	return Source{}, fmt.Errorf("%w and no exported model in %s; expected the directory of a job's "+
		"checkpoints, one of them, or an exported model (a directory with %s, or a .safetensors file)",
		ErrNone, location, ModelFile)
}

// commits reports whether the directory has the commit that is meant, or any. A commit that is
// meant by its number alone gets its name.
func (s *Source) commits() (found bool, err error) {
	all, err := s.Dir.Commits()
	if err != nil {
		return false, err
	}
	if n := s.Commit; n.Number > 0 && n.Claim == "" && !slices.ContainsFunc(all, func(e Entry) bool {
		return e.Name == n
	}) {
		if slices.ContainsFunc(all, func(e Entry) bool { return e.Number == n.Number }) {
			if s.Commit, err = s.Dir.Find(n.Number); err != nil {
				return false, err
			}
		}
	}
	// of a commit that may be the one that is meant
	var unread error
	for _, e := range all {
		if s.Commit.Number > 0 && e.Name != s.Commit {
			continue
		}
		if e.Complete {
			return true, nil
		}
		unread = cmp.Or(unread, e.Err)
	}
	return false, unread
}

// Path names the exported model to users.
func (s Source) Path() string { return strings.TrimSuffix(s.Dir.String(), "/") + "/" + s.File }

// Read returns the record of the commit, every byte of which was read, and what is wrong with those
// that are newer.
func (s Source) Read() (*Commit, []Damage, error) {
	if s.Commit.Number == 0 {
		c, damages, err := s.Dir.Newest()
		// to begin from the beginning is not what was asked for
		if len(damages) > 0 && errors.Is(err, ErrNone) {
			err = damaged("none of the checkpoints in %v can be used; the newest: %w", s.Dir, damages[0].Err)
		}
		return c, damages, err
	}
	c, err := s.record()
	if err == nil {
		err = s.Dir.Verify(c)
	}
	return c, nil, err
}

// record reads the record of the commit that is meant.
func (s Source) record() (*Commit, error) {
	if s.Checksum == "" {
		return s.Dir.ReadCommit(s.Commit)
	}
	return s.Dir.ReadNamed(s.Commit, s.Checksum)
}

// Load sets values to those of the model: to elements from start on of the flat array of a model
// with that layout. The error of a model that is another, or whose bytes are damaged, is
// [ErrDamaged].
func (s Source) Load(layout param.Layout, start int, values []float32) error {
	if s.File != "" {
		return s.exported(func(f *safetensors.File) error { return load(f, layout, start, values) })
	}
	c, _, err := s.Read()
	if err != nil {
		return err
	}
	if err := layout.Match(c.ParamLayout()); err != nil {
		return damaged("read checkpoint: %s: it is of another model: %w", s.Dir.Path(c.Name(), recordFile), err)
	}
	return s.Dir.Restore(c, Part{Start: start, Values: values})
}

// Version returns the model's version. That of an exported model is the one that it was exported
// with, 0 if it does not say.
func (s Source) Version() (version int64, err error) {
	if s.File == "" {
		c, err := s.record()
		if err != nil {
			return 0, err
		}
		return c.Version, nil
	}
	err = s.exported(func(f *safetensors.File) error {
		// of another program's file there is none
		version, _ = strconv.ParseInt(f.Metadata["version"], 10, 64)
		return nil
	})
	return version, err
}

// Check reads what an exported model says of itself, and returns what is wrong with it. A layout
// that is not nil is that of the model that it should be of.
func (s Source) Check(layout param.Layout) error {
	return s.exported(func(f *safetensors.File) error {
		if layout == nil {
			return nil
		}
		return match(layout, f.Layout())
	})
}

// exported opens the exported model. Every error that is not of the storage is of the file.
func (s Source) exported(with func(*safetensors.File) error) error {
	f, size, closer, err := s.Dir.Files.Open(s.File)
	if errors.Is(err, fs.ErrNotExist) {
		return damaged("read model: %s is not there", s.Path())
	}
	if err != nil {
		return fmt.Errorf("read model: %w", err)
	}
	defer closer.Close()
	r := &noting{ReaderAt: f}
	file, err := safetensors.Open(r, size)
	if err == nil {
		err = with(file)
	}
	switch {
	case err == nil:
		return nil
	case r.err != nil:
		return fmt.Errorf("read model: %s: %w", s.Path(), err)
	}
	return damaged("read model: %s: %w", s.Path(), err)
}

// noting keeps the error of a read that failed.
type noting struct {
	io.ReaderAt
	err error
}

func (n *noting) ReadAt(b []byte, at int64) (int, error) {
	read, err := n.ReaderAt.ReadAt(b, at)
	if err != nil && !errors.Is(err, io.EOF) {
		n.err = err
	}
	return read, err
}

// load sets values to the elements from start on of a file, whatever the order of its tensors.
func load(f *safetensors.File, layout param.Layout, start int, values []float32) error {
	if err := match(layout, f.Layout()); err != nil {
		return err
	}
	at := 0
	for _, v := range layout {
		// of the tensor: what is wanted
		lo, hi := max(start-at, 0), min(start+len(values)-at, v.Len())
		if lo < hi {
			if err := f.ReadTensor(v.Name, lo, values[at+lo-start:at+hi-start]); err != nil {
				return err
			}
		}
		at += v.Len()
	}
	return nil
}

// match reports how the tensors of a file differ from a model's parameters in name and shape: the
// format says no more of them.
func match(layout, file param.Layout) error {
	ordered := make(param.Layout, 0, len(file))
	file = slices.Clone(file)
	for _, v := range layout {
		if i := slices.IndexFunc(file, func(f param.Variable) bool { return f.Name == v.Name }); i >= 0 {
			ordered = append(ordered, param.Variable{Name: v.Name, Shape: file[i].Shape,
				Trainable: v.Trainable, Momentum: v.Momentum})
			file = slices.Delete(file, i, i+1)
		}
	}
	if err := layout.Match(append(ordered, file...)); err != nil {
		return fmt.Errorf("it is of another model: %w", err)
	}
	return nil
}
