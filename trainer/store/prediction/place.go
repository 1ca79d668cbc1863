// Package prediction writes what a job predicts: a part for each task, and on request one file of
// all parts.
//
//	--prediction_outputs=/data/out.csv             --prediction_outputs=/data/out
//	  /data/.out.csv-UID/                            /data/out/
//	    part-00000-of-00002.csv   while it runs        part-00000-of-00002.csv
//	    part-00001-of-00002.csv                        part-00001-of-00002.csv
//	  /data/out.csv               at its end
//
// Laws:
//
//  1. A part appears completely or not at all, and so does the file. Writing it again writes the
//     same bytes, so each record is in it once, however often its task was done.
//  2. The parts are numbered in the order of the data: by the names of its files, then by the order
//     of the records in each.
//  3. Parts of another job are never used for this one.
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

	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

// Place is the directory or bucket to which a job writes its predictions.
type Place struct {
	files checkpoint.Files
	// name of the one file; "": the parts are the result
	file string
	// directory of the parts within files: "", or a path that ends with a slash
	parts string
}

// Open opens the place that --prediction_outputs names: one file if the name ends in .csv, else a
// directory. The UID of the job keeps its parts apart from those of other jobs.
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

// partNames matches the names of parts, of any job.
var partNames = regexp.MustCompile(`^part-[0-9]{5,}-of-[0-9]{5,}\.csv$`)

func partName(number, of int) string { return fmt.Sprintf("part-%05d-of-%05d.csv", number, of) }

func (p *Place) path(name string) string {
	return strings.TrimSuffix(p.files.String(), "/") + "/" + name
}

// Write writes part number of the job's of parts, and replaces one that is there.
func (p *Place) Write(number, of int, text []byte) error {
	return p.create(p.parts+partName(number, of), func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// create writes a file by write. The file appears only after write has returned without an error.
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

// Finish completes the result of that many parts, all of which must have been written. For one file
// it joins the parts; for a directory it removes the parts that an earlier job has left there.
// Headed parts begin with the same header line, which the file gets once. While it joins, progress
// is called with the number of bytes read so far, unless it is nil. Finish may be repeated.
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

// merger joins parts.
type merger struct {
	out      *bufio.Writer
	headed   bool   // each part begins with a header line
	header   []byte // of the first part, nil before it
	bytes    int64  // read so far
	progress func(bytes int64)
}

// most is the length of the longest header, in bytes.
const most = 16 << 20

// add appends a part.
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
			m.out.Write(header) // Flush returns its error
		case !bytes.Equal(header, m.header):
			return fmt.Errorf("header of part %s is %q, and that of the first part is %q", p.path(name),
				header, m.header)
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

// line reads up to and including the end of a line.
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

// removeOthers removes from the directory the parts of an earlier job that had another number of
// parts.
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

// Tidy removes the parts of a result that is one file, joined or not. No process may be writing
// parts any more.
func (p *Place) Tidy() error {
	if p.file == "" {
		return nil
	}
	return p.files.Remove(strings.TrimSuffix(p.parts, "/"))
}

// Dir returns the directory, local or of a bucket, that --prediction_outputs writes to.
func Dir(outputs string) string {
	if dir, name := checkpoint.Split(outputs); isFile(name) {
		return dir
	}
	return outputs
}

// isFile reports whether a name of --prediction_outputs stands for one file.
func isFile(name string) bool { return strings.HasSuffix(name, ".csv") }
