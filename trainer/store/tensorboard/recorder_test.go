package tensorboard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// storage is a place that a test disturbs. The files are those of a directory, but each one is
// replaced whole as an object.
type storage struct {
	checkpoint.Files
	dir string
	// nothing answers until it is closed; nil: everything does
	hangs chan struct{}

	mu     sync.Mutex
	err    error
	writes int
}

// fail has all writes fail with an error; nil: with none.
func (s *storage) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// written returns the number of writes, with those that failed.
func (s *storage) written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

func newStorage(t *testing.T) *storage {
	dir := t.TempDir()
	return &storage{Files: checkpoint.Local(dir), dir: dir}
}

func (s *storage) Create(name string) (checkpoint.Writer, error) {
	if s.hangs != nil {
		<-s.hangs
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	if s.err != nil {
		return nil, s.err
	}
	return s.Files.Create(name)
}

func (s *storage) objects() (Place, error) { return Objects(s), nil }

// events returns what a directory has, in the order in which TensorBoard reads it.
func events(t *testing.T, dir string) (all []Event) {
	t.Helper()
	for _, name := range files(t, dir) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		read, _, err := Decode(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(read) == 0 || read[0].FileVersion != FileVersion {
			t.Errorf("%s does not begin with its version: %+v", name, read)
		}
		all = append(all, read...)
	}
	return all
}

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if own := Own(names); !slices.Equal(own, names) {
		t.Errorf("the files are %q", names)
	}
	return names
}

func begun(session Session, open func() (Place, error)) *Recorder {
	return Start(Config{Open: open, Name: "s3://b/tb", Session: session, Host: "host"})
}

// status returns the status of a training now.
func status(version int64) *wire.JobStatus {
	s, _ := training(0, version, float32(version))
	s.StartedUnixMs = time.Now().Add(-time.Hour).UnixMilli()
	return s
}

func losses(t *testing.T, dir string) string {
	t.Helper()
	b := board{}
	b.read(events(t, dir))
	return fmt.Sprint(b["train/loss"])
}

// In a directory each status is written at once, and each master has a file of its own.
func TestDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "tb", "job")
		open := func() (Place, error) { return Directory(dir), nil }
		r := begun(First, open)
		r.Status(status(3))
		synctest.Wait()
		if got := losses(t, dir); got != "[{3 3}]" {
			t.Errorf("after the first status: %s", got)
		}
		time.Sleep(10 * time.Second)
		r.Status(status(4))
		r.Fact(Rollback{Version: 3, ModelGeneration: 1})
		r.End(t.Context())
		before := files(t, dir)
		r = begun(Successor, open)
		time.Sleep(10 * time.Second)
		r.Status(status(5))
		r.End(t.Context())
		if got := losses(t, dir); got != "[{3 3} {5 5}]" {
			t.Errorf("after the second master: %s", got)
		}
		if after := files(t, dir); len(before) != 1 || len(after) != 2 {
			t.Errorf("files %q, then %q", before, after)
		}
	})
}

// Another job of the same name hides the curves of the earlier one.
func TestAnotherJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		for version := range int64(2) {
			r := begun(First, func() (Place, error) { return Directory(dir), nil })
			r.Status(status(9 - version))
			r.End(t.Context())
		}
		if got := losses(t, dir); got != "[{8 8}]" {
			t.Errorf("shown are %s", got)
		}
	})
}

// Objects are written at intervals, and followed by others when they are large.
func TestObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage(t)
		r := begun(First, s.objects)
		const hours = 2
		for i := range int64(hours * 3600) {
			r.Status(status(i + 1))
			time.Sleep(time.Second)
		}
		synctest.Wait() // a write is due now
		wrote := s.written()
		if most := hours * 3600 / 30 * 2; wrote > most || wrote < most/4 {
			t.Errorf("%d writes in %d hours", wrote, hours)
		}
		r.Fact(Evaluation{hours * 3600, map[string]float64{"accuracy": 1}})
		r.End(t.Context())
		if at := s.written() - wrote; at != 1 {
			t.Errorf("%d writes at the end", at)
		}
		all := events(t, s.dir)
		if last := all[len(all)-1]; show([]Event{last}) != "7200 eval/accuracy=1" {
			t.Errorf("at the end: %+v", last)
		}
		for _, name := range files(t, s.dir) {
			info, err := os.Stat(filepath.Join(s.dir, name))
			if err != nil || info.Size() > objectLimit+32<<10 {
				t.Errorf("%s has %d bytes: %v", name, info.Size(), err)
			}
		}
	})
}

// A full file is followed by another one, and nothing is lost between them.
func TestFullFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage(t)
		r := begun(First, s.objects)
		const most = 3000
		for i := range most {
			r.Fact(Evaluation{int64(i), map[string]float64{strings.Repeat("m", 200): 1}})
			if i%100 == 0 {
				time.Sleep(time.Minute)
			}
		}
		r.End(t.Context())
		if n := len(files(t, s.dir)); n < 2 || n > 5 {
			t.Errorf("%d files", n)
		}
		b := board{}
		b.read(events(t, s.dir))
		if got := b["eval/"+strings.Repeat("m", 200)]; len(got) != most {
			t.Errorf("%d evaluations of %d", len(got), most)
		}
	})
}

// A rollback is written at once: if the master is lost, the next one must find it.
func TestRollbackIsWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage(t)
		r := begun(First, s.objects)
		r.Status(status(7))
		time.Sleep(objectEvery / 3)
		r.Status(status(8))
		r.Fact(Rollback{Version: 5, ModelGeneration: 2})
		synctest.Wait()
		if got := losses(t, s.dir); got != "[]" {
			t.Errorf("shown are %s", got)
		}
		r.End(t.Context())
	})
}

// While nothing can be written the job has a problem, and what is kept is bounded. Afterwards it
// has none, and the points are there.
func TestFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage(t)
		var unopened atomic.Bool
		unopened.Store(true)
		r := begun(First, func() (Place, error) {
			if unopened.Load() {
				return Place{}, errors.New("there is no such bucket")
			}
			return Objects(s), nil
		})
		for i := range int64(60) {
			r.Status(status(i + 1))
			time.Sleep(time.Second)
		}
		const problem = "nothing can be written to s3://b/tb: there is no such bucket"
		if got := r.Problem(); !strings.Contains(got, problem) {
			t.Errorf("the problem is %q", got)
		}
		unopened.Store(false)
		time.Sleep(2 * time.Minute)
		if got := r.Problem(); got != "" || losses(t, s.dir) != "[{60 60}]" {
			t.Errorf("the problem is %q, shown are %s", got, losses(t, s.dir))
		}
		s.fail(errors.New("access denied"))
		r.Fact(Rollback{Version: 30, ModelGeneration: 1})
		for i := range int64(3 * backlogLimit / 200) {
			r.Fact(Evaluation{i, map[string]float64{strings.Repeat("m", 200): 1}})
			time.Sleep(time.Second)
		}
		if got := r.Problem(); !strings.HasSuffix(got, "access denied; the oldest points are lost") {
			t.Errorf("the problem is %q", got)
		}
		s.fail(nil)
		time.Sleep(2 * time.Minute)
		if got := r.Problem(); got != "" || losses(t, s.dir) != "[]" {
			t.Errorf("the problem is %q, shown are %s", got, losses(t, s.dir))
		}
		r.End(t.Context())
	})
}

// Storage that does not answer holds up nobody: neither those that report, nor the end.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage(t)
		s.hangs = make(chan struct{})
		r := begun(First, s.objects)
		began := time.Now()
		for i := range int64(1000) {
			r.Fact(Evaluation{i, map[string]float64{"accuracy": 1}})
			r.Status(status(i))
			if i == 0 {
				time.Sleep(5 * time.Second)
				synctest.Wait()
				began = time.Now()
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("those that report waited for %v", took)
		}
		time.Sleep(time.Minute)
		if got := r.Problem(); !strings.HasSuffix(got, "s3://b/tb: the storage does not answer") {
			t.Errorf("the problem is %q", got)
		}
		r.mu.Lock()
		if n := len(r.inbox); n > inboxLimit {
			t.Errorf("%d messages wait", n)
		}
		r.mu.Unlock()
		limited, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		r.End(limited)
		close(s.hangs)
		<-r.done
	})
}

// A file with a part of an event is cut, or another one follows.
func TestTornFile(t *testing.T) {
	dir := t.TempDir()
	f, err := Directory(dir).create("events.out.tfevents.1700000000.h.elasticdl")
	if err != nil {
		t.Fatal(err)
	}
	header := Encode(nil, Event{FileVersion: FileVersion})
	if err := f.add(header); err != nil || f.size() != len(header) {
		t.Fatalf("%d bytes, %v", f.size(), err)
	}
	f.(*appended).Write([]byte("half of")) // as much as the disk takes
	f.(*appended).Truncate(int64(f.size()))
	if err := f.add(Encode(nil, Event{Step: 7, Start: true})); err != nil || f.damaged() {
		t.Fatal(err)
	}
	if all := events(t, dir); len(all) != 2 || all[1].Step != 7 {
		t.Errorf("%+v", all)
	}
	f.close()
	if err := f.add(header); err == nil || !f.damaged() {
		t.Errorf("after a file that cannot be cut: %v", err)
	}
	// a master that was killed while it wrote
	last := filepath.Join(dir, "events.out.tfevents.1700000001.h.elasticdl")
	text := Encode(header, Event{Step: 9, Scalars: []Scalar{{TagRollbacks, 4}}})
	if err := os.WriteFile(last, append(text, text[:20]...), 0o644); err != nil {
		t.Fatal(err)
	}
	past, err := Directory(dir).past(files(t, dir))
	if err != nil || past != (Past{Step: 9, Rollbacks: 4}) {
		t.Errorf("%+v, %v", past, err)
	}
}

// The master's last status is written, whatever comes at the same moment.
func TestEndIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage(t)
		r := begun(First, s.objects)
		r.Status(status(1))
		synctest.Wait()
		last := status(2)
		last.State = string(job.Succeeded)
		r.Status(last)
		r.End(t.Context())
		if got := losses(t, s.dir); got != "[{2 2}]" && got != "[{1 1} {2 2}]" {
			t.Errorf("shown are %s", got)
		}
	})
}
