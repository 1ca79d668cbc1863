package worker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/store/outage"
	"github.com/elasticdl/elasticdl/trainer/train/ps"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

// mounted is a reader whose file system fails for a while, from record from on.
type mounted struct {
	numbers
	from  int64
	until time.Time
	tries *[]time.Time
}

func (m mounted) ReadAt(shard string, i int64) ([]byte, error) {
	if i >= m.from && time.Now().Before(m.until) {
		*m.tries = append(*m.tries, time.Now())
		return nil, fmt.Errorf("read /data/%s: %w", shard, &outage.Error{Err: syscall.ESTALE})
	}
	return m.numbers.ReadAt(shard, i)
}

// mount makes the bench's data fail for a while.
func (b *bench) mount(from int64, away time.Duration) (tries *[]time.Time) {
	tries = new([]time.Time)
	b.Training = mounted{numbers{bad: -1}, from, time.Now().Add(away), tries}
	return tries
}

// asks notes when a worker asks for a task.
type asks struct {
	*script
	at []time.Time
}

func (a *asks) GetTask(ctx context.Context, r *wire.GetTaskRequest,
	options ...grpc.CallOption) (*wire.GetTaskReply, error) {
	a.at = append(a.at, time.Now())
	return a.script.GetTask(ctx, r, options...)
}

// Storage that fails for less than the limit costs only time: no failure is reported, the lease
// counts as being worked on all the while, and the log says once what the worker waits for.
func TestStorageThatComesBack(t *testing.T) {
	const away = 90 * time.Second
	bubble(t, func(t *testing.T) {
		b := newBench(t, ps.ServerConfig{Async: true}, training(1, 0, 12, 0), training(2, 12, 16, 0))
		tries := b.mount(5, away)
		began := time.Now()
		if err := work(t.Context(), b.Config); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < away || took > away+timing.StoragePause+time.Second {
			t.Errorf("the job takes %v, its data was away for %v", took, away)
		}
		if len(*tries) < 10 || len(*tries) > 40 {
			t.Errorf("%d attempts", len(*tries))
		}
		if want := [][]int32{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11},
			{12, 13, 14, 15}}; !slices.EqualFunc(b.engine.steps, want, slices.Equal) {
			t.Errorf("steps %v, want %v", b.engine.steps, want)
		}
		if r := b.master.reports; len(r) != 2 || r[0].Error != "" || r[1].Error != "" {
			t.Errorf("reports %v", r)
		}
		var effort int64
		for i, beat := range b.master.beats {
			for _, l := range beat.Leases {
				if l.Lease == 1 && l.Effort <= effort && i < int(away/timing.Beat) {
					t.Fatalf("heartbeat %d tells of effort %d after %d", i, l.Effort, effort)
				}
				effort = max(effort, l.Effort)
			}
		}
		if log := b.log.String(); strings.Count(log, "Waiting for the storage") != 1 ||
			strings.Count(log, "The storage answers again") != 1 ||
			!strings.Contains(log, "/data/s") {
			t.Error(log)
		}
	})
}

// Storage that does not come back costs the worker its lease: the lease is handed back, with the
// records that are done and the name of the file. The worker asks for the next lease only when the
// storage answers.
func TestStorageThatStaysAway(t *testing.T) {
	for name, c := range map[string]struct {
		away time.Duration
		// time at which the second lease is asked for
		next time.Duration
		// the second lease is handed back, too
		fail bool
	}{
		"comes back later": {timing.Storage + 30*time.Second, timing.Storage + 30*time.Second, false},
		"for good":         {time.Hour, 2 * timing.Storage, true},
	} {
		bubble(t, func(t *testing.T) {
			b := newBench(t, ps.ServerConfig{Async: true}, training(1, 0, 12, 0), training(2, 12, 16, 0))
			b.mount(5, c.away)
			m := &asks{script: b.master}
			b.Master = m
			began := time.Now()
			if err := work(t.Context(), b.Config); err != nil {
				t.Fatal(err)
			}
			r := b.master.reports
			if len(r) != 2 || !r[0].Storage || r[0].Done != 4 || !strings.Contains(r[0].Error, "/data/s: stale") {
				t.Fatalf("%s: reports %v", name, r)
			}
			if r[1].Storage != c.fail || (r[1].Error != "") != c.fail {
				t.Errorf("%s: report %v", name, r[1])
			}
			if asked := m.at[1].Sub(began); asked < c.next || asked > c.next+timing.StoragePause {
				t.Errorf("%s: the second lease is asked for after %v, want %v", name, asked, c.next)
			}
		})
	}
}

// A worker that is asked to leave stops waiting for storage, and hands back what it could not read
// like everything else that is not done.
func TestWorkerLeavesStorageThatFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, ps.ServerConfig{Async: true}, training(1, 0, 12, 0))
		b.mount(5, time.Hour)
		master, leave := new(farewell), make(chan struct{})
		master.tasks = b.master.tasks
		b.Master, b.Leave = master, leave
		const after = 31 * time.Second
		time.AfterFunc(after, func() { close(leave) })
		began := time.Now()
		if err := work(t.Context(), b.Config); !errors.Is(err, membership.ErrLeft) {
			t.Fatal(err)
		}
		if took := time.Since(began); took < after || took > after+time.Second {
			t.Errorf("left after %v", took)
		}
		last := master.beats[len(master.beats)-1]
		if len(master.reports) != 0 || len(last.Leases) != 1 || last.Leases[0].Done != 4 {
			t.Errorf("it hands back %v, reports %v", last.Leases, master.reports)
		}
	})
}

// absent returns the path of a directory that appears later: a link whose target does not exist
// yet.
func absent(t *testing.T) (path string, appear func()) {
	parent := t.TempDir()
	path = filepath.Join(parent, "link")
	if err := os.Symlink("target", path); err != nil {
		t.Fatal(err)
	}
	return path, func() {
		if err := os.Mkdir(filepath.Join(parent, "target"), 0o755); err != nil {
			t.Error(err)
		}
	}
}

// An export waits for its volume. If the volume does not come, or the path is wrong, the error
// names the path.
func TestExportWaitsForItsVolume(t *testing.T) {
	for name, c := range map[string]struct {
		away           time.Duration
		file           bool // where the directory should be
		storage, fails bool
		took           time.Duration
	}{
		"comes back": {time.Minute, false, false, false, time.Minute},
		"for good":   {time.Hour, false, true, true, timing.Storage},
		"no place":   {0, true, false, true, 0},
	} {
		bubble(t, func(t *testing.T) {
			b := newBench(t, ps.ServerConfig{Async: true}, training(1, 0, 4, 0),
				&wire.Task{Kind: wire.TaskKind_EXPORT, Lease: 2})
			path, appear := absent(t)
			b.Job.Output = path
			if c.file {
				b.Job.Output = filepath.Join(t.TempDir(), "file", "model")
				if err := os.WriteFile(filepath.Dir(b.Job.Output), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			} else {
				defer time.AfterFunc(c.away, appear).Stop()
			}
			began := time.Now()
			if err := work(t.Context(), b.Config); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took < c.took || took > c.took+timing.StoragePause {
				t.Errorf("%s: the export takes %v, want %v", name, took, c.took)
			}
			r := b.master.reports[1]
			if (r.Error != "") != c.fails || r.Storage != c.storage || c.fails &&
				!strings.Contains(r.Error, "--output="+b.Job.Output) {
				t.Errorf("%s: report %v", name, r)
			}
			if _, err := os.Stat(filepath.Join(b.Job.Output, checkpoint.ModelFile)); (err != nil) != c.fails {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// A worker whose lease waits for storage says why in its heartbeats, as long as it waits: of a
// full disk the directory.
func TestWorkerSaysWhatItWaitsFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := &worker{leases: newLeases(), Config: Config{Log: slog.New(slog.DiscardHandler)}}
		w.leases.hold(&wire.Task{Kind: wire.TaskKind_EXPORT, Lease: 1})
		w.leases.hold(&wire.Task{Kind: wire.TaskKind_TRAINING, Lease: 2})
		full, tries := time.Now().Add(time.Minute), 0
		ended := make(chan error)
		go func() {
			ended <- w.patience(1).Reach(t.Context(), func() error {
				if tries++; time.Now().Before(full) {
					return outage.Of(fmt.Errorf("export: %w",
						&fs.PathError{Op: "write", Path: fmt.Sprintf("/out/model-%d", tries), Err: syscall.ENOSPC}))
				}
				return nil
			})
		}()
		for range 50 {
			time.Sleep(time.Second)
			synctest.Wait()
			if p := w.leases.progress(); p[0].Waits != "no space left on /out" || p[1].Waits != "" {
				t.Fatalf("%v", p)
			}
		}
		if err := <-ended; err != nil || tries < 10 {
			t.Errorf("%v after %d attempts", err, tries)
		}
		if p := w.leases.progress(); p[0].Waits != "" {
			t.Errorf("when there is room: %v", p)
		}
	})
}

// In a ring the wait of an export ends with the world, and continues in the next.
func TestExportIsCutShort(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, reports := withQueued(piece{item: item{task: &wire.Task{Kind: wire.TaskKind_EXPORT, Lease: 1}, last: true}})
		path, appear := absent(t)
		r.Config.Engine, r.Job, r.Log = newLesson(), job.Default(), slog.New(slog.DiscardHandler)
		r.Job.Output = path
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(10*time.Second, func() { cancel(gone) })
		if err := r.meanwhile(ctx, nil); err != gone || len(r.queued) != 1 {
			t.Fatalf("meanwhile gave %v, %d queued", err, len(r.queued))
		}
		appear()
		if err := r.meanwhile(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if got := <-reports; got.Error != "" {
			t.Errorf("report %v", got)
		}
		if _, err := os.Stat(filepath.Join(path, checkpoint.ModelFile)); err != nil {
			t.Error(err)
		}
	})
}

// A worker whose volume is missing at its start waits for it as long as for storage that fails.
func TestWorkerWaitsForItsData(t *testing.T) {
	for _, away := range []time.Duration{time.Minute, time.Hour} {
		bubble(t, func(t *testing.T) {
			path, appear := absent(t)
			defer time.AfterFunc(away, appear).Stop()
			j := job.Default()
			j.ModelDef, j.TrainingData = "mnist.mnist_mlp.custom_model", path
			began := time.Now()
			_, done, err := Options{Threads: 1, Log: slog.New(slog.DiscardHandler)}.prepare(t.Context(), j)
			took := time.Since(began)
			if away < timing.Storage && (err != nil || took < away || took > away+timing.StoragePause) {
				t.Errorf("%v after %v", err, took)
			}
			if away > timing.Storage && (err == nil || !strings.Contains(err.Error(), path) || took != timing.Storage) {
				t.Errorf("%v after %v", err, took)
			}
			if err == nil {
				done()
			}
		})
	}
}

// Only a worker that waits for storage reports effort: one that hangs in a read does not.
func TestEffortIsOfWaiting(t *testing.T) {
	l := newLeases()
	l.hold(&wire.Task{Lease: 1})
	for i, c := range []struct {
		rests bool
		want  int64
	}{{false, 0}, {true, 1}, {true, 2}, {false, 2}, {false, 2}, {true, 3}} {
		l.rest(1, c.rests)
		if told := l.progress(); told[0].Effort != c.want {
			t.Errorf("heartbeat %d tells of effort %d, want %d", i, told[0].Effort, c.want)
		}
	}
}

// Records that a leaving worker cannot read are neither done nor failed: it is handed back with the
// rest.
func TestStorageOfWorkerThatLeaves(t *testing.T) {
	r, reports := withQueued()
	r.asked = make(chan struct{})
	close(r.asked)
	r.leases.hold(&wire.Task{Lease: 1, Done: 4})
	if err := r.fail(t.Context(), &wire.Task{Lease: 1}, &outage.Error{Err: syscall.EIO}); err != nil {
		t.Fatal(err)
	}
	if told := r.leases.progress(); len(reports) != 0 || len(told) != 1 || told[0].Done != 4 {
		t.Errorf("%d reports, hands back %v", len(reports), told)
	}
	if err := r.fail(t.Context(), &wire.Task{Lease: 1}, errors.New("bad record")); err != nil || len(reports) != 1 {
		t.Errorf("%d reports of bad data, %v", len(reports), err)
	}
}

// scanned is a reader that takes long to find its records.
type scanned struct {
	numbers
	took  time.Duration
	began *atomic.Int64
}

func (s scanned) ReadAt(shard string, i int64) ([]byte, error) {
	if s.began.CompareAndSwap(0, time.Now().UnixNano()) {
		time.Sleep(s.took)
	}
	return s.numbers.ReadAt(shard, i)
}

func (s scanned) Looked() int64 {
	began := s.began.Load()
	if began == 0 {
		return 0
	}
	return int64(min(time.Since(time.Unix(0, began)), s.took))
}

// While a worker looks for the records of its task in a long file, it reports effort, and not any
// more when it has found them.
func TestLongScanIsEffort(t *testing.T) {
	const took = 30 * time.Minute
	bubble(t, func(t *testing.T) {
		b := newBench(t, ps.ServerConfig{Async: true}, training(1, 0, 4, 0))
		b.Training = scanned{numbers{bad: -1}, took, new(atomic.Int64)}
		b.engine.takes = 10 * time.Second
		if err := work(t.Context(), b.Config); err != nil {
			t.Fatal(err)
		}
		var effort int64
		for i, beat := range b.master.beats {
			scans := time.Duration(i)*timing.Beat < took
			// none, where the last heartbeat is of the instant of the report
			for _, l := range beat.Leases {
				if l.Effort > effort != scans {
					t.Fatalf("heartbeat %d tells of %v after effort %d", i, l, effort)
				}
				effort = l.Effort
			}
		}
		if effort != int64(took) {
			t.Errorf("reported of an effort of %v", time.Duration(effort))
		}
	})
}
