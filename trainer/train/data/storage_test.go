package data

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/store/outage"
	"github.com/elasticdl/elasticdl/trainer/train/recordio"
)

// A directory that is missing for a while, and then replaced by another, gives storage errors; a
// malformed file does not.
func TestMissingDirectory(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "data")
	write(t, dir, "rows", 30)
	writeFile(t, dir, "bad", "this is no RecordIO file at all")
	r := open(t, dir, nil)
	if _, err := r.ReadAt("rows", 7); err != nil {
		t.Fatal(err)
	}
	r.cache = cache{} // empty
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func() error{
		"record": func() error { _, err := r.ReadAt("rows", 7); return err },
		"index":  func() error { _, err := r.ReadAt("bad", 0); return err },
		"shards": func() error { _, err := r.Shards(); return err },
		"open":   func() error { _, err := Open(dir, nil, nil); return err },
	} {
		if err := read(); !outage.Is(err) || !strings.Contains(err.Error(), dir) ||
			!strings.Contains(err.Error(), "no such file") {
			t.Errorf("%s of a missing directory: %v", name, err)
		}
	}
	write(t, dir, "rows", 30)
	writeFile(t, dir, "bad", "this is no RecordIO file at all")
	if b, err := r.ReadAt("rows", 7); err != nil || string(b) != "rows 7" {
		t.Errorf("record of a directory that exists again: %q, %v", b, err)
	}
	for name, read := range map[string]func() error{
		"bad data":         func() error { _, err := r.ReadAt("bad", 0); return err },
		"too many":         func() error { _, err := r.ReadAt("rows", 30); return err },
		"a way out":        func() error { _, err := r.ReadAt("../data.away/rows", 0); return err },
		"no regular file":  func() error { _, err := r.ReadAt(".", 0); return err },
		"a file, no place": func() error { _, err := Open(filepath.Join(dir, "rows", "more"), nil, nil); return err },
	} {
		if err := read(); err == nil || outage.Is(err) {
			t.Errorf("%s: %v, storage error: %t", name, err, outage.Is(err))
		}
	}
}

// flaky is a file one read of which fails.
type flaky struct {
	io.ReaderAt
	fails int // index of the read that fails, from 0
	err   error
}

func (f *flaky) ReadAt(b []byte, offset int64) (int, error) {
	if f.fails--; f.fails == -1 {
		n, _ := f.ReaderAt.ReadAt(b[:len(b)/2], offset)
		return n, &os.PathError{Op: "read", Path: "file", Err: f.err}
	}
	return f.ReaderAt.ReadAt(b, offset)
}

// Whichever read of a file fails, the error is one of the storage and not of the data, and no
// record is returned.
func TestFailedRead(t *testing.T) {
	var b bytes.Buffer
	w, err := recordio.NewWriter(&b, recordio.Snappy, 64)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		if err := w.Write(fmt.Appendf(nil, "record %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	rows := byteOrderMark + "a,b\n" + strings.Repeat("1,2\n", 40_000)
	for name, c := range map[string]struct {
		file   string
		format format
	}{"RecordIO": {b.String(), recordIO{}}, "CSV": {rows, csvFormat{',', true}}} {
		read := func(r io.ReaderAt) (records int, err error) {
			x, err := c.format.index(stored{local{r}, new(atomic.Bool)}, int64(len(c.file)))
			if err != nil {
				return 0, err
			}
			for _, b := range x.blocks {
				block, err := c.format.read(stored{local{r}, new(atomic.Bool)}, b)
				if err != nil {
					return 0, err
				}
				records += len(block)
			}
			return records, nil
		}
		whole, err := read(strings.NewReader(c.file))
		if err != nil || whole < 30 {
			t.Fatal(name, whole, err)
		}
		for fails := 0; ; fails++ {
			f := &flaky{strings.NewReader(c.file), fails, syscall.ESTALE}
			records, err := read(f)
			if f.fails >= 0 { // fewer reads than that: done
				if fails < 5 {
					t.Errorf("%s: %d reads", name, fails)
				}
				break
			}
			if !outage.Is(err) || !strings.Contains(err.Error(), "stale") {
				t.Errorf("%s: read %d fails: %d records, %v", name, fails, records, err)
			}
		}
	}
}

// The kernel's /proc/self/mem looks like a regular file, and reading its first bytes fails.
func TestFileThatCannotBeRead(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no such file")
	}
	_, err := open(t, "/proc/self/mem", map[string]string{"reader_type": "CSV"}).Shards()
	if !outage.Is(err) || !strings.Contains(err.Error(), "/proc/self/mem: "+syscall.EIO.Error()) {
		t.Error(err)
	}
}

// tripped is a file that closes its Files at the first read of more than a few bytes.
type tripped struct {
	io.ReaderAt
	files *Files
	reads int
}

func (r *tripped) ReadAt(b []byte, offset int64) (int, error) {
	if r.reads++; r.reads == 3 {
		r.files.Close()
	}
	return r.ReaderAt.ReadAt(b, offset)
}

// Close ends indexing that is running.
func TestCloseEndsTheScan(t *testing.T) {
	f := &Files{place: directory(t.TempDir())}
	text := strings.NewReader(strings.Repeat("1,2\n", 1<<20))
	r := &tripped{text, f, 0}
	if _, err := (csvFormat{',', true}).index(stored{r, &f.closed}, text.Size()); !errors.Is(err,
		os.ErrClosed) || r.reads != 3 {
		t.Errorf("%v after %d reads", err, r.reads)
	}
}
