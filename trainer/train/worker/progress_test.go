package worker

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/train/ps"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

// sluggish takes almost a second to measure a minibatch, so that it never ends at the instant of a
// heartbeat.
type sluggish struct{ *counter }

func (s sluggish) Evaluate(b *zoo.Batch, states [][]float64) error {
	time.Sleep(900 * time.Millisecond)
	return s.counter.Evaluate(b, states)
}

// A worker that evaluates reports its progress; without it, it would be taken for a straggler.
func TestEvaluationShowsProgress(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, ps.ServerConfig{Async: true}, training(1, 0, 12, 0),
			&wire.Task{Kind: wire.TaskKind_EVALUATION, Lease: 2, Shard: "v", Start: 5, End: 15})
		b.Engine = sluggish{b.engine}
		if err := work(t.Context(), b.Config); err != nil {
			t.Fatal(err)
		}
		var told []int64
		for _, beat := range b.master.beats {
			for _, l := range beat.Leases {
				if l.Lease == 2 {
					told = append(told, l.Done)
				}
			}
		}
		if got := slices.Compact(told); !slices.Equal(got, []int64{0, 4, 8}) {
			t.Errorf("reported of lease 2: %v", got)
		}
		if r := b.master.reports[1]; r.Error != "" || r.Metrics[0].State[0] != 10 || r.Version != 3 {
			t.Errorf("report %v", r)
		}
	})
}

// A worker that exports reports how much of the model it has written.
func TestExportShowsProgress(t *testing.T) {
	b := &bench{engine: &counter{values: make([]float32, 1)}}
	w := &worker{Config: Config{Engine: b.engine, Job: job.Default(),
		Log: slog.New(slog.DiscardHandler)}, leases: newLeases()}
	w.Job.Output = t.TempDir()
	w.leases.hold(&wire.Task{Lease: 4})
	if err := w.export(t.Context(), 4, 3); err != nil {
		t.Fatal(err)
	}
	file, err := os.Stat(filepath.Join(w.Job.Output, checkpoint.ModelFile))
	if err != nil {
		t.Fatal(err)
	}
	if told := w.leases.progress(); len(told) != 1 || told[0].Done != file.Size() {
		t.Errorf("reported %v of %d bytes", told, file.Size())
	}
}

// An evaluation whose snapshot is deleted fails; it does not measure the current model instead.
func TestSnapshotThatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, ps.ServerConfig{Async: true, EvaluationSteps: 2}, training(1, 0, 12, 0),
			&wire.Task{Kind: wire.TaskKind_EVALUATION, Lease: 2, Shard: "v", Start: 0, End: 6, Version: 1})
		if err := work(t.Context(), b.Config); err != nil {
			t.Fatal(err)
		}
		if r := b.master.reports[1]; r.Error == "" || len(r.Metrics) > 0 {
			t.Errorf("report %v", r)
		}
	})
}

// A worker of a ring waits for the others: for its turn when an update needs few records, and until
// what it brought is safe. It counts the end of each round as effort, or it would be taken for a
// straggler. A worker that has brought nothing does not.
func TestRoundShowsProgress(t *testing.T) {
	r, _ := loner(t)
	r.batch, r.state.pending, r.queued = 2, make([]float32, lessons), []piece{minibatch(training(5, 0, 4, 0), 1)}
	r.leases.hold(&wire.Task{Lease: 5, Done: 0})
	for _, c := range []struct {
		what      string
		mine      []int64
		idle      bool
		told      int64
		confirmed int64
	}{
		{what: "a round of others' records", told: 1},
		{what: "a round of a part of its minibatch", mine: []int64{1}, told: 2},
		{what: "a round of the rest", mine: []int64{1}, told: 3},
		{what: "a round to which it brings nothing", idle: true, told: 3, confirmed: 2},
	} {
		if err := r.confirm(&world{World: membership.Of(t.Context(), &wire.World{})}); err != nil {
			t.Fatal(err)
		}
		a := agreement{records: 2, takes: [][]int64{{2}, c.mine},
			offers: [][]offer{{{task: ledger.Task{Epoch: 1, Number: 9}, of: 100, records: 2}}, nil}}
		if !c.idle {
			a.offers[1] = []offer{r.queued[0].offer(1)}
		}
		r.finish(&world{World: membership.Of(t.Context(), &wire.World{}), rank: 1, size: 2}, a, []float32{1})
		if told := r.leases.progress()[0]; told.Effort != c.told || told.Done != c.confirmed {
			t.Errorf("after %s it tells of %d rounds and %d records, want %d and %d", c.what,
				told.Effort, told.Done, c.told, c.confirmed)
		}
	}
}
