package data

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/recordio"
	"github.com/elasticdl/elasticdl/trainer/timing"
)

// A directory that is missing for a while, and then replaced by another, gives storage errors; a malformed file does not.
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
		"open":   func() error { _, err := Open(dir, nil); return err },
	} {
		if err := read(); !IsStorage(err) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "no such file") {
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
		"a file, no place": func() error { _, err := Open(filepath.Join(dir, "rows", "more"), nil); return err },
	} {
		if err := read(); err == nil || IsStorage(err) {
			t.Errorf("%s: %v, storage error: %t", name, err, IsStorage(err))
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

// Whichever read of a file fails, the error is one of the storage and not of the data, and no record is returned.
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
			x, err := c.format.index(stored{r, new(atomic.Bool)}, int64(len(c.file)))
			if err != nil {
				return 0, err
			}
			for _, b := range x.blocks {
				block, err := c.format.read(stored{r, new(atomic.Bool)}, b)
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
			if !IsStorage(err) || !strings.Contains(err.Error(), "stale") {
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
	if !IsStorage(err) || !strings.Contains(err.Error(), "/proc/self/mem: "+syscall.EIO.Error()) {
		t.Error(err)
	}
}

func TestWhichErrorsAreOfStorage(t *testing.T) {
	for err, want := range map[error]bool{
		syscall.EIO: true, syscall.ESTALE: true, syscall.ENOSPC: true, syscall.EDQUOT: true, syscall.ETIMEDOUT: true, syscall.ENOENT: true,
		syscall.EHOSTDOWN: true, syscall.ENOTCONN: true, syscall.EMFILE: true, syscall.EINTR: true, os.ErrDeadlineExceeded: true,
		syscall.EACCES: false, syscall.EROFS: false, syscall.ENOTDIR: false, io.ErrUnexpectedEOF: false, errors.New("bad"): false,
	} {
		if got := IsStorage(fmt.Errorf("read x: %w", Storage(&os.PathError{Op: "read", Path: "x", Err: err}))); got != want {
			t.Errorf("%v is a storage error: %t", err, got)
		}
	}
	if IsStorage(Storage(nil)) || Storage(nil) != nil {
		t.Error("nil is a storage error")
	}
}

// Patience repeats a call until the storage answers or the limit is reached. It does not repeat a call that fails for another
// reason.
func TestTrouble(t *testing.T) {
	at := func(err error) error {
		return fmt.Errorf("export: %w", &StorageError{&fs.PathError{Op: "write", Path: "/out/model.tmp", Err: err}})
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{at(syscall.ENOSPC), "no space left on /out"},
		{at(syscall.EDQUOT), "disk quota exceeded on /out"},
		{at(syscall.EIO), "export: write /out/model.tmp: input/output error"},
		{fmt.Errorf("upload: %w", syscall.ENOSPC), "upload: no space left on device"},
	} {
		if got := Trouble(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}

func TestPatience(t *testing.T) {
	away := fmt.Errorf("read /data/x: %w", &StorageError{syscall.EIO})
	bad := errors.New("bad record")
	for name, c := range map[string]struct {
		fails time.Duration // how long the storage fails
		then  error
		ctx   time.Duration // when the context ends; 0: never
		need  time.Duration // when the result becomes futile; 0: never
		err   error
		least time.Duration
		most  time.Duration
		log   string
	}{
		"never":    {0, nil, 0, 0, nil, 0, 0, ""},
		"bad data": {0, bad, 0, 0, bad, 0, 0, ""},
		"a moment": {time.Second, nil, 0, 0, nil, time.Second, 2 * time.Second, ""},
		"a minute": {time.Minute, nil, 0, 0, nil, time.Minute, time.Minute + timing.StoragePause, "answers again"},
		"and bad":  {time.Minute, bad, 0, 0, bad, time.Minute, time.Minute + timing.StoragePause, "answers again"},
		"for ever": {time.Hour, nil, 0, 0, away, timing.Storage, timing.Storage, "EIO"},
		"cut off":  {time.Hour, nil, 31 * time.Second, 0, away, 31 * time.Second, 31 * time.Second, "Waiting for the storage"},
		"futile":   {time.Hour, nil, 0, 31 * time.Second, away, 31 * time.Second, 31*time.Second + timing.StoragePause, "Waiting for the storage"},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, tries, resting := time.Now(), 0, 0
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.ctx > 0 {
				defer time.AfterFunc(c.ctx, cancel).Stop()
			}
			var log bytes.Buffer
			p := Patience{Log: slog.New(slog.NewTextHandler(&log, nil)), Resting: func(begins bool) {
				if begins {
					resting++
				} else {
					resting--
				}
			}}
			if c.need > 0 {
				p.Futile = func() bool { return time.Since(began) >= c.need }
			}
			err := p.Reach(ctx, func() error {
				if tries++; resting != 0 {
					t.Errorf("%s: an attempt during a pause", name)
				}
				if time.Since(began) < c.fails {
					return away
				}
				return c.then
			})
			took := time.Since(began)
			if err != c.err || took < c.least || took > c.most || resting != 0 {
				t.Errorf("%s: %v after %v", name, err, took)
			}
			if most := 10 + int(took/timing.StoragePause); tries > most || c.fails > 0 && tries < 5 {
				t.Errorf("%s: %d attempts in %v", name, tries, took)
			}
			want := strings.ReplaceAll(c.log, "EIO", syscall.EIO.Error())
			if !strings.Contains(log.String(), want) || want == "" && log.Len() > 0 || strings.Count(log.String(), "Waiting") > 1 {
				t.Errorf("%s: log %q", name, log.String())
			}
		})
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
	f := new(Files)
	text := strings.NewReader(strings.Repeat("1,2\n", 1<<20))
	r := &tripped{text, f, 0}
	if _, err := (csvFormat{',', true}).index(stored{r, &f.closed}, text.Size()); !errors.Is(err, os.ErrClosed) || r.reads != 3 {
		t.Errorf("%v after %d reads", err, r.reads)
	}
}
