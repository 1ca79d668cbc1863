// Package prediction keeps what a job has predicted: a part for each task, and one file of all of them.
//
//	--prediction_outputs=/data/out.csv             --prediction_outputs=/data/out
//	  /data/.out.csv-UID/                            /data/out/
//	    part-00000-of-00002.csv   while it runs        part-00000-of-00002.csv
//	    part-00001-of-00002.csv                        part-00001-of-00002.csv
//	  /data/out.csv               at its end
//
// Laws:
//
//  1. A part, and the file, appears whole or not at all, and who writes it again writes the same bytes: so each record is in it once,
//     however often its task was done.
//  2. The parts are numbered in the order of the data: by the names of its files, and in each as its records lie.
//  3. Parts of another job are not taken for this one's.
package prediction

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/checkpoint"
)

// Place is where a job writes what it predicts.
type Place struct {
	files checkpoint.Files
	file  string // the one file; "": the parts stay
	parts string // the directory of the parts, within files: "", or it ends with a slash
}

// Open opens the place that --prediction_outputs names. A name that ends in .csv is of one file, any other of a directory. The job is told
// apart from others by its UID.
func Open(open checkpoint.Opener, outputs, uid string) (*Place, error) {
	p := new(Place)
	if _, name := checkpoint.Split(outputs); isFile(name) {
		p.file, p.parts = name, "."+name+"-"+uid+"/"
	}
	at, err := open.Open(Dir(outputs))
	if err != nil {
		return nil, err
	}
	p.files = at.Files
	return p, nil
}

// partNames are the names of parts, of this job or another.
var partNames = regexp.MustCompile(`^part-[0-9]{5,}-of-[0-9]{5,}\.csv$`)

func partName(number, of int) string { return fmt.Sprintf("part-%05d-of-%05d.csv", number, of) }

func (p *Place) path(name string) string {
	return strings.TrimSuffix(p.files.String(), "/") + "/" + name
}

// Write writes a part.
func (p *Place) Write(number, of int, text []byte) error {
	return p.create(p.parts+partName(number, of), func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// create writes a file, which appears when write has returned without an error.
func (p *Place) create(name string, write func(io.Writer) error) error {
	f, err := p.files.Create(name)
	if err != nil {
		return fmt.Errorf("write %s: %w", p.path(name), err)
	}
	defer f.Abort() // a no-op after the commit
	if err = write(f); err == nil {
		err = f.Commit()
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", p.path(name), err)
	}
	return nil
}

// Finish puts so many parts together in the one file, if there is to be one, and else removes what an earlier job has left in the
// directory under the names of parts. Headed parts begin with the same line, which the file has once. The bytes that are read so far are
// told to progress. All parts must have been written. It may be called again.
func (p *Place) Finish(of int, headed bool, progress func(bytes int64)) error {
	if p.file == "" {
		return p.removeOthers(of)
	}
	return p.create(p.file, func(w io.Writer) error {
		out := bufio.NewWriterSize(w, 1<<20)
		m := merger{out: out, headed: headed, progress: progress}
		for i := range of {
			if err := m.add(p, p.parts+partName(i, of)); err != nil {
				return err
			}
		}
		return out.Flush()
	})
}

// merger puts parts together.
type merger struct {
	out      *bufio.Writer
	headed   bool
	header   []byte // of the first part
	bytes    int64
	progress func(bytes int64)
}

// most is the longest header.
const most = 16 << 20

// add adds a part.
func (m *merger) add(p *Place, name string) error {
	f, size, closer, err := p.files.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("part %s is missing", p.path(name))
	} else if err != nil {
		return err
	}
	defer closer.Close()
	in := bufio.NewReaderSize(io.NewSectionReader(f, 0, size), 1<<20)
	if m.headed {
		header, err := line(in)
		if err != nil {
			return fmt.Errorf("header of part %s: %w", p.path(name), err)
		}
		switch {
		case m.header == nil:
			m.header = header
			m.out.Write(header) // Flush tells its error
		case !bytes.Equal(header, m.header):
			return fmt.Errorf("header of part %s is %q, and that of the first part is %q", p.path(name), header, m.header)
		}
	}
	if _, err := io.Copy(m.out, in); err != nil {
		return fmt.Errorf("part %s: %w", p.path(name), err)
	}
	m.bytes += size
	if m.progress != nil {
		m.progress(m.bytes)
	}
	return nil
}

// line reads up to the end of a line.
func line(in *bufio.Reader) ([]byte, error) {
	var all []byte
	for {
		part, err := in.ReadSlice('\n')
		all = append(all, part...)
		switch {
		case err == nil:
			return all, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(all) > most:
			return nil, fmt.Errorf("it has more than %d bytes", most)
		}
	}
}

// removeOthers removes the parts of an earlier job from the directory, which had another number of them.
func (p *Place) removeOthers(of int) error {
	names, err := p.files.List("")
	if err != nil {
		return fmt.Errorf("list %v: %w", p.files, err)
	}
	own := make(map[string]bool)
	for i := range of {
		own[partName(i, of)] = true
	}
	for _, name := range names {
		if !partNames.MatchString(name) || own[name] {
			continue
		}
		if err := p.files.Remove(name); err != nil {
			return fmt.Errorf("remove %s, which an earlier job has left: %w", p.path(name), err)
		}
	}
	return nil
}

// Tidy removes the parts beside the one file, put together or not. Nobody may be writing any more.
func (p *Place) Tidy() error {
	if p.file == "" {
		return nil
	}
	return p.files.Remove(strings.TrimSuffix(p.parts, "/"))
}

// Dir returns the directory, or the bucket's, that --prediction_outputs is in.
func Dir(outputs string) string {
	if dir, name := checkpoint.Split(outputs); isFile(name) {
		return dir
	}
	return outputs
}

// isFile reports whether a name is of one file.
func isFile(name string) bool { return strings.HasSuffix(name, ".csv") }
