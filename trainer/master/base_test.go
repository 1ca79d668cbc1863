package master

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/book"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// A job that starts from another job's model starts from it again if it is resumed before its own
// first checkpoint. The lineage of its model names that job.
func TestResumedBeforeItsFirstCheckpoint(t *testing.T) {
	from := t.TempDir()
	d := checkpoint.Dir{Files: checkpoint.Local(from)}
	shard, err := checkpoint.WriteShard(d, checkpoint.Name{Number: 7}, checkpoint.ShardFile(0, 1),
		checkpoint.Part{Values: make([]float32, 4)})
	if err != nil {
		t.Fatal(err)
	}
	first := checkpoint.Ancestor{Job: "first", Number: 2}
	if err := d.WriteCommit(checkpoint.Commit{
		Format: checkpoint.Format, Number: 7, ModelGeneration: 1, Version: 40, Job: "second",
		Lineage: []checkpoint.Ancestor{first},
		Layout:  checkpoint.VariablesOf(param.Layout{{Name: "w", Shape: []int{4}, Trainable: true}}),
		Shards:  []checkpoint.Shard{shard},
	}); err != nil {
		t.Fatal(err)
	}
	for _, resume := range []bool{false, true} {
		j := job.Default()
		j.CheckpointDir, j.CheckpointDirForInit = t.TempDir(), from
		m := newShell(Config{Job: j, Resume: resume, Log: slog.New(slog.DiscardHandler),
			Self: rpc.NewSelf(identity.Header{Job: "third"}, nil)}, nil, nil)
		c, err := newCheckpoints(m)
		if err != nil {
			t.Fatal(err)
		}
		l, err := c.load(t.Context())
		if err != nil || l.first.Number != 7 || !l.first.Fresh || l.first.records() != 0 || l.first.version() != 40 {
			t.Errorf("resumed %t: begins with %+v, %v", resume, l.first, err)
		}
		if want := []checkpoint.Ancestor{first, {Job: "second", Number: 7}}; !slices.Equal(l.lineage, want) {
			t.Errorf("resumed %t: returns to %v, want %v", resume, l.lineage, want)
		}
	}
}

// rest writes checkpoints 1 and 2 of a job, with 1 and 2 records, and makes c resume the job.
func rest(t *testing.T, c *Config) {
	t.Helper()
	c.Resume, c.Job.CheckpointDir = true, t.TempDir()
	d := checkpoint.Dir{Files: checkpoint.Local(c.Job.CheckpointDir)}
	cut := (&checkpoints{shared: shared{Config: c}}).records()
	for n := range int64(2) {
		shard, err := checkpoint.WriteShard(d, checkpoint.Name{Number: n + 1},
			checkpoint.ShardFile(0, 1), checkpoint.Part{Values: make([]float32, 4)})
		if err != nil {
			t.Fatal(err)
		}
		var has ledger.Ledger
		has.Add(ledger.Task{Epoch: 1}, n+1, 4)
		if err := d.WriteCommit(checkpoint.Commit{
			Format: checkpoint.Format, Number: n + 1, ModelGeneration: 1, Version: n + 1, Records: n + 1,
			Ledger: has, Cut: cut, Data: checkpoint.FilesOf(c.Training), Job: "uid",
			Layout: checkpoint.VariablesOf(param.Layout{{Name: "w", Shape: []int{4}, Trainable: true}}),
			Shards: []checkpoint.Shard{shard},
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// A job that is resumed without a checkpoint has lost what it had trained on. Its journal has that,
// otherwise the records would count as applied twice.
func TestResumedWithoutACheckpoint(t *testing.T) {
	for name, dir := range map[string]string{"it makes none": "", "it has none": t.TempDir()} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) { resumesFromNothing(t, dir) })
		})
	}
}

func resumesFromNothing(t *testing.T, dir string) {
	r := reign(t, func(c *Config) {
		c.Resume, c.Job.CheckpointDir = true, dir
		b := book.New(book.Saved{})
		if err := b.Plan(c.Training, (&work{shared: shared{Config: c}}).policy()); err != nil {
			t.Fatal(err)
		}
		b.Enter(task.Credit{Task: ledger.Task{Epoch: 1}, To: 1})
		c.Journal.Book = b.Save()
	})
	time.Sleep(time.Second)
	r.ends(Leave, ErrLeft)
	now, err := ReadJournal(r.memory.read())
	if err != nil {
		t.Fatal(err)
	}
	b := book.New(now.Book)
	if now.Totals.Kinds[journal.TrainingStartedOver] != 1 || b.Records() != 0 || b.Returned != 1 || b.Undone != 1 {
		t.Errorf("%v, %d records, %d returns of %d records", now.Totals.Kinds, b.Records(), b.Returned, b.Undone)
	}
}

// If a checkpoint is damaged after the master has started or was restarted, the checkpoint before
// it is used, which this master has not read yet. If there is none the training starts over. The
// next masters know which ones are damaged, too.
func TestCheckpointBeforeTheDamagedOne(t *testing.T) {
	for _, c := range []struct {
		name string
		back bool
		// the newest damaged checkpoint; all before it are damaged
		rots  int64
		base  int64
		again string
	}{
		{"resumed", false, 2, 1, "returned to checkpoint 1"},
		{"come back", true, 2, 1, "returned to checkpoint 1"},
		{"none is left", true, 1, 0, "started over"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := reign(t, func(c *Config) { rest(t, c) })
				rot := func() {
					r.servers[0].refuses(func(o *wire.ControlRequest) error {
						if n := o.Base.GetNumber(); n >= c.rots && n > 0 {
							return status.Error(codes.DataLoss,
								fmt.Sprintf("the checksum of checkpoint %d is another", n))
						}
						return nil
					})
				}
				if !c.back {
					rot()
				}
				r.join()
				if c.back {
					r.task(0)
					r.ends(Leave, ErrLeft)
					rot()
					r.follow()
					r.rejoin(0)
				}
				time.Sleep(time.Second)
				if s := r.look(); s.RecordsDone != c.base || s.Version != 0 ||
					!strings.Contains(s.RollbackReason, c.again) || !strings.Contains(s.RollbackReason, "checksum") {
					t.Errorf("the job is at %v", s)
				}
				if o := r.servers[0].last(); o.Base.GetNumber() != c.base {
					t.Errorf("the server begins with %v", o.Base)
				}
				for range 2 {
					rec, err := readRecord(r.memory.record)
					if err != nil || len(rec.Damaged) != int(2-c.base) || rec.Damaged[len(rec.Damaged)-1].Number != 2 {
						t.Fatalf("the record says that %v are damaged, want all above %d: %v", rec.Damaged, c.base, err)
					}
					r.ends(Leave, ErrLeft)
					r.follow()
				}
			})
		})
	}
}

// If the members of a ring cannot read the checkpoint that it begins with, the next world begins
// with the checkpoint before.
func TestRingCheckpointBeforeTheDamagedOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := startRing(t, func(c *Config) { rest(t, c) })
		for i, base := range []int64{2, 1, 0} {
			for _, it := range p {
				word := it.word()
				for word.GetRecall() != nil {
					word = it.word()
				}
				if n := word.GetWorld().GetBase().GetNumber(); !strings.HasSuffix(say(word),
					"[0 1] from []") || n != base {
					t.Fatalf("worker %d hears %v, want a world with checkpoint %d", it.index, word, base)
				}
			}
			for _, it := range p {
				it.arrive(&wire.Arrival{Generation: int64(i) + 1, Round: -1, Damage: "its checksum is another"})
			}
		}
		if s := w.look(); !strings.Contains(s.RollbackReason, "started over") {
			t.Errorf("the job is at %v", s)
		}
	})
}

// failing is storage that cannot be read.
type failing struct {
	checkpoint.Files
	broken atomic.Bool
}

func (f *failing) List(dir string) ([]string, error) {
	if f.broken.Load() {
		return nil, fmt.Errorf("list %s: no route to host", dir)
	}
	return f.Files.List(dir)
}

// If the storage does not answer while the master looks for the checkpoint before a damaged one,
// the master tries again for some time. Then the job ends, and can be resumed.
func TestCheckpointBeforeOnFailingStorage(t *testing.T) {
	for name, mends := range map[string]bool{"for some time": true, "for good": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := config(t)
				rest(t, &c)
				disk := &failing{Files: checkpoint.Local(c.Job.CheckpointDir)}
				m, err := newMaster(c)
				if err != nil {
					t.Fatal(err)
				}
				m.checkpoints.dir.Files = disk
				m.prepareAndStart(t.Context())
				first := m.checkpoints.newest()
				disk.broken.Store(true)
				if mends {
					time.AfterFunc(time.Minute, func() { disk.broken.Store(false) })
				}
				m.checkpoints.seek(t.Context(), first)
				switch n := len(m.checkpoints.kept); {
				case mends && (n != 2 || m.checkpoints.kept[0].Number != 1 || m.stage.Over()):
					t.Errorf("%d checkpoints are known", n)
				case !mends && (!m.stage.Over() || !strings.Contains(m.stage.Err().Error(), "no route to host")):
					t.Errorf("the job is over: %t, %v", m.stage.Over(), m.stage.Err())
				}
				m.background.Wait()
			})
		})
	}
}

// A job that began with another job's model returns to that model when no checkpoint of its own
// can be read.
func TestInitialCheckpointBeforeTheDamagedOne(t *testing.T) {
	c := config(t)
	other := config(t)
	rest(t, &other)
	rest(t, &c)
	c.Job.CheckpointDirForInit = other.Job.CheckpointDir
	m, err := newMaster(c)
	if err != nil {
		t.Fatal(err)
	}
	m.prepareAndStart(t.Context())
	for _, want := range []int64{1, 2} {
		m.checkpoints.seek(context.Background(), m.checkpoints.kept[0].Base)
		if oldest := m.checkpoints.kept[0]; oldest.Number != want || oldest.Fresh != (want == 2) {
			t.Fatalf("before it is %+v, want number %d", oldest.Base, want)
		}
	}
}

// A checkpoint that a holder of the model could not read is not used again, even if its record can
// be read.
func TestDamagedCheckpointIsNotTakenAgain(t *testing.T) {
	c := config(t)
	rest(t, &c) // checkpoints 1 and 2
	m, err := newMaster(c)
	if err != nil {
		t.Fatal(err)
	}
	m.prepareAndStart(t.Context())
	newest := m.checkpoints.kept[0].Base
	before := newest
	before.Number--
	m.mu.Lock()
	m.checkpoints.damaged(before, errors.New("its checksum is wrong"))
	m.mu.Unlock()
	m.checkpoints.seek(context.Background(), newest)
	if n := len(m.checkpoints.kept); n != 1 || m.stage.Over() {
		t.Errorf("%d checkpoints are known, the job is over: %t, want the newest alone", n, m.stage.Over())
	}
}

// The record names a damaged checkpoint for the next master until the checkpoint is removed.
func TestRemovedCheckpointIsNotNamed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := reign(t, ringJob(func(c *Config) {
			rest(t, c) // checkpoints 1 and 2
			c.Job.CheckpointSteps, c.Job.KeepCheckpointMax = 1, 2
			shard := filepath.Join(c.Job.CheckpointDir, "commit-00000002", checkpoint.ShardFile(0, 1))
			if err := os.WriteFile(shard, []byte("rotten"), 0o644); err != nil {
				t.Fatal(err)
			}
		}))
		p := r.peer(0)
		r.peer(1)
		lease := r.task(0)
		for number := int64(3); number <= 5; number++ {
			p.says(func(b *wire.HeartbeatRequest) { of(lease, 3)(b); b.Version, b.Generation = number+4, 1 })
			p.says(func(b *wire.HeartbeatRequest) { b.Cut = copied(number, number+4) })
			if c := r.look().Checkpoint; c.Number != number {
				t.Fatalf("the newest checkpoint is %v, want number %d", c, number)
			}
			time.Sleep(2 * recordEvery)
			_, err := os.Stat(filepath.Join(r.config.Job.CheckpointDir, "commit-00000002"))
			left := err == nil
			rec, err := readRecord(r.memory.read())
			if err != nil || left != slices.Contains(rec.Damaged, checkpoint.Name{Number: 2}) || left != (number < 4) {
				t.Errorf("checkpoint %d is written, the damaged one is there: %t, and the record names %v: %v", number,
					left, rec.Damaged, err)
			}
		}
	})
}
