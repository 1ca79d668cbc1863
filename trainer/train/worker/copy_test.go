package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// holder returns a member of a ring that writes its checkpoints to dir.
func holder(t *testing.T, dir string, batch int64) *member {
	t.Helper()
	engine := newLesson()
	s, err := newState(engine, optim.Config{Name: optim.Momentum, LearningRate: 1, Momentum: 0.5}, batch)
	if err != nil {
		t.Fatal(err)
	}
	s.restart(make([]float32, lessons))
	w := &worker{
		Config: Config{Job: &job.Job{TrainingSettings: job.TrainingSettings{CheckpointDir: dir}},
			Log: slog.New(logline.New(t.Output(), slog.LevelDebug))},
		urgent: make(chan struct{}, 1),
	}
	return &member{worker: w, Meeting: membership.New(nil, nil), state: *s}
}

// train applies a round of n records of task 1, which has 100, beginning at record from.
func (r *member) train(from, n int64) {
	sum := slices.Repeat([]float32{float32(n)}, lessons)
	offers := [][]offer{{{task: ledger.Task{Epoch: 2, Number: 1}, of: 100, from: from, records: n}}}
	r.apply(agreement{offers: offers, takes: [][]int64{{n}}, records: n}, sum, func(int64) float64 { return 1 })
}

// order asks the member to make a checkpoint.
func (r *member) order(number int64) {
	r.Hear(context.Background(), &wire.Assembly{Word: &wire.Assembly_Cut{Cut: &wire.Cut{Number: number}}})
	r.copyState()
}

// record returns the record of the commit that a report of a copy stands for.
func record(t *testing.T, dir checkpoint.Dir, said *wire.CutReport) *wire.Base {
	t.Helper()
	had, err := ledger.Parse(said.Ledger)
	if err != nil || said.Phase != wire.CutPhase_WRITTEN {
		t.Fatal(said, err)
	}
	layout, err := rpc.Layout(said.Layout)
	if err != nil {
		t.Fatal(err)
	}
	c := checkpoint.Commit{
		Format: checkpoint.Format, Number: said.Number, ModelGeneration: 1, Version: said.Version,
		Layout:    checkpoint.VariablesOf(layout),
		Optimizer: said.Optimizer, Slots: int(said.Slots), Ledger: had,
		Shards: []checkpoint.Shard{{File: said.File, Start: int(said.Start), End: int(said.End),
			Bytes: said.Bytes, CRC: said.Crc}},
	}
	if err := errors.Join(c.Seal(), dir.WriteCommit(c)); err != nil {
		t.Fatal(err)
	}
	return &wire.Base{Dir: dir.String(), Number: said.Number, Checksum: c.Checksum}
}

// gated holds back all writes of files until the gate opens.
type gated struct {
	checkpoint.Files
	gate chan struct{}
}

func (g gated) Create(name string) (checkpoint.Writer, error) {
	<-g.gate
	return g.Files.Create(name)
}

// A member copies its state between two rounds, and trains on while the copy is written: the
// values, slots, ledger and version of a checkpoint are of one moment. A member that begins with
// the checkpoint continues as the first one did from there.
func TestCopyIsOfOneMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir()
		dir := checkpoint.Dir{Files: gated{checkpoint.Local(path), make(chan struct{})}}
		r := holder(t, path, 0)
		r.Open = func(string) (checkpoint.Dir, error) { return dir, nil }
		r.order(1)
		if r.copies.newest() != nil {
			t.Error("the initial values are copied:", r.copies.newest())
		}
		r.ledger.Settle(1)
		r.train(0, 4)
		r.train(4, 4)
		r.copyState()
		copied := r.copies.newest()
		if copied.GetPhase() != wire.CutPhase_COPIED || copied.Number != 1 || copied.Version != 2 {
			t.Fatal(copied)
		}
		r.train(8, 4)
		r.order(2)
		if said := r.copies.newest(); said.Number != 2 || said.Phase != wire.CutPhase_FAILED {
			t.Error("another is copied while one is written:", said)
		}
		r.copies.report = nil
		close(dir.Files.(gated).gate)
		r.copies.writing.Wait()
		base := record(t, dir, r.copies.newest())
		after := slices.Clone(r.values)

		again := holder(t, path, 0)
		if err := again.restore(t.Context(), base); err != nil {
			t.Fatal(err)
		}
		task := ledger.Task{Epoch: 2, Number: 1}
		if had, _ := again.ledger.Progress(task); had != 8 || again.ledger.Settled() != 1 ||
			again.version != 2 || again.at.Round != 2 || !again.touched {
			t.Errorf("it begins with %d records, %d epochs, at %+v", had, again.ledger.Settled(), again.position)
		}
		again.train(8, 4)
		if !slices.Equal(again.values, after) || again.version != r.version {
			t.Errorf("it continues with %v, want %v", again.values[0], after[0])
		}
		r.order(3)
		r.copies.writing.Wait()
		if said := r.copies.newest(); said.Number != 3 || said.Phase != wire.CutPhase_WRITTEN || said.Version != 3 {
			t.Error(said)
		}
		r.copies.heard(3)
		r.copyState() // it was ordered, and made
		if said := r.copies.newest(); said != nil {
			t.Error("it is notified of again:", said)
		}
	})
}

// A member begins with the commit that the order names by its checksum, and with no other: what
// stands under its name, made by another job or by the same one at another time, is damage. Its
// state stays as it was.
func TestRestoresTheCommitThatIsMeant(t *testing.T) {
	commit := func(t *testing.T, path string, records int64) *wire.Base {
		t.Helper()
		r := holder(t, path, 0)
		r.train(0, records)
		r.order(1)
		r.copies.writing.Wait()
		return record(t, checkpoint.Dir{Files: checkpoint.Local(path)}, r.copies.newest())
	}
	for name, replace := range map[string]func(t *testing.T, path string, base *wire.Base){
		"another one":                 func(t *testing.T, path string, _ *wire.Base) { commit(t, path, 8) },
		"an order without a checksum": func(_ *testing.T, _ string, base *wire.Base) { base.Checksum = "" },
		"none": func(t *testing.T, path string, _ *wire.Base) {
			if err := os.RemoveAll(filepath.Join(path, checkpoint.Name{Number: 1}.String())); err != nil {
				t.Fatal(err)
			}
		},
		"one of another claim": func(_ *testing.T, _ string, base *wire.Base) { base.Claim = "2-01234567" },
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			base := commit(t, path, 4)
			replace(t, path, base)
			r := holder(t, path, 0)
			before := slices.Clone(r.values)
			if err := r.tryRestore(base); !errors.Is(err, checkpoint.ErrDamaged) {
				t.Errorf("it begins with it: %v", err)
			}
			if !slices.Equal(r.values, before) || r.version != 0 {
				t.Errorf("its state is %v of version %d", r.values, r.version)
			}
		})
	}
}

// A member of a large model trains on while the memory for its copy is allocated, and follows the
// order to copy when the memory is there, even if it is idle.
func TestCopyWaitsForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := holder(t, t.TempDir(), 0)
		r.train(0, 4)
		r.values = make([]float32, 3<<20)
		r.Hear(t.Context(), &wire.Assembly{Word: &wire.Assembly_Cut{Cut: &wire.Cut{Number: 1}}})
		<-r.Wake()
		if r.copyState(); r.copies.newest() == nil {
			<-r.Wake()
			r.copyState()
		}
		if said := r.copies.newest(); said.GetPhase() < wire.CutPhase_COPIED || said.Number != 1 {
			t.Error(said)
		}
		r.copies.writing.Wait()
	})
}

// A checkpoint never contains accumulated gradients: a member copies its state only after an
// update, and a restored member starts with none.
func TestCopyOfAccumulated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := holder(t, t.TempDir(), 8)
		r.train(0, 4)
		r.order(1)
		r.train(4, 4)
		if said := r.copies.newest(); said != nil {
			t.Fatal("copied in the middle of an update:", said)
		}
		r.copyState()
		r.copies.writing.Wait()
		base := record(t, checkpoint.Dir{Files: checkpoint.Local(r.Job.CheckpointDir)}, r.copies.newest())
		after := slices.Clone(r.values)
		r.train(8, 4)
		if err := r.restore(t.Context(), base); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(r.values, after) || r.state.records != 0 || slices.Max(r.state.pending) != 0 {
			t.Errorf("it returns to %v, with %d records of %v in addition", r.values[0], r.state.records,
				r.state.pending[0])
		}
	})
}

// A damaged checkpoint is not read again. Storage that does not answer is retried for some time,
// and what was read until then is no state.
func TestRestoreRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := holder(t, t.TempDir(), 0)
		r.train(0, 4)
		r.order(1)
		r.copies.writing.Wait()
		said := r.copies.newest()
		base := record(t, checkpoint.Dir{Files: checkpoint.Local(r.Job.CheckpointDir)}, said)

		ailing := holder(t, r.Job.CheckpointDir, 0)
		began, until := time.Now(), time.Now().Add(timing.Storage/2)
		ailing.Open = func(dir string) (checkpoint.Dir, error) {
			if time.Now().Before(until) {
				return checkpoint.Dir{}, fmt.Errorf("open: %w", syscall.EIO)
			}
			return checkpoint.Dir{Files: checkpoint.Local(dir)}, nil
		}
		if err := ailing.restore(t.Context(), base); err != nil ||
			time.Since(began) < timing.Storage/2 || ailing.version != 1 {
			t.Errorf("%v after %v, at %+v", err, time.Since(began), ailing.position)
		}
		began, until = time.Now(), time.Now().Add(10*timing.Storage)
		var damaged *damageError
		err := ailing.restore(t.Context(), base)
		if took := time.Since(began); !errors.As(err, &damaged) || took < timing.Storage || took > 2*timing.Storage {
			t.Errorf("%v after %v", err, took)
		}

		file := filepath.Join(r.Job.CheckpointDir, "commit-00000001", said.File)
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)-1] ^= 1
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
		began = time.Now()
		fresh := holder(t, r.Job.CheckpointDir, 0)
		if err := fresh.restore(t.Context(), base); !errors.As(err, &damaged) ||
			!strings.Contains(err.Error(), said.File) || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if fresh.at.Exists() || !fresh.touched {
			t.Errorf("half of a checkpoint is a state: %+v", fresh.position)
		}
	})
}
