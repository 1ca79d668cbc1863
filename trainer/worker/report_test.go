package worker

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/optim"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/zoo"
)

// The grant of a lease and the floor that voids it come over two streams, in any order.
func TestGrantOvertakenByFloor(t *testing.T) {
	l := newLeases()
	l.void(61)
	l.hold(60, 0)
	l.hold(61, 0)
	if !l.abandoned(60) {
		t.Error("a lease below the floor is held")
	}
	if l.abandoned(61) {
		t.Error("the lease at the floor is not held")
	}
}

// A world that is left while its last round is confirmed lets go of what was confirmed, and of nothing twice.
func TestConfirmIsCutShort(t *testing.T) {
	w := &worker{leases: newLeases(), reports: make(chan *wire.ReportTaskRequest, 2)}
	r := &member{worker: w, feed: &feeder{worker: w, free: make(chan *zoo.Batch, 4)}}
	task := &wire.Task{Lease: 1, End: 4}
	for i := range 2 {
		r.applied = append(r.applied, piece{item: item{task: task, batch: &zoo.Batch{Size: 2}, done: int64(2 * (i + 1)), last: i == 1}})
	}
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	full := w.reports
	w.reports = nil // nobody takes the report
	if err := r.confirm(&world{place: place{World: &wire.World{}, ctx: ctx}}); err != gone {
		t.Fatalf("confirm gave %v", err)
	}
	w.reports = full
	if err := r.confirm(&world{place: place{World: &wire.World{}, ctx: t.Context()}}); err != nil {
		t.Fatal(err)
	}
	if n := len(r.feed.free); n != 2 {
		t.Errorf("%d batches were let go of, not 2", n)
	}
	if n := len(w.reports); n != 1 {
		t.Errorf("%d reports, not 1", n)
	}
}

// A round is told to the master, and with it the end of a lease, when the next one has begun: until then the death of the
// others could take it back.
func TestRoundIsToldWhenTheNextHasBegun(t *testing.T) {
	engine := newLesson()
	s, err := newState(engine.Layout(), optim.Config{Name: optim.SGD, LearningRate: 1}, engine.values, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{Config: Config{Job: job.Default(), Model: model(), Log: slog.New(slog.DiscardHandler)}, leases: newLeases(), reports: make(chan *wire.ReportTaskRequest, 2)}
	w.leases.hold(5, 0)
	task := &wire.Task{Lease: 5, End: 2, Kind: wire.TaskKind_TRAINING}
	r := &member{worker: w, state: *s, sum: make([]float32, lessons), feed: &feeder{worker: w, free: make(chan *zoo.Batch, 4)}}
	r.hand = []piece{{item: item{task: task, batch: &zoo.Batch{Size: 2}, done: 2, last: true}}}
	r.restart(engine.values)
	in := &world{place: place{World: &wire.World{Id: 1, Formation: 3}, ctx: t.Context()}, size: 1}
	told := func() (formation, version, done int64, reports int) {
		var beat wire.HeartbeatRequest
		r.beat(&beat)
		return beat.Formation, beat.Version, w.leases.progress()[0].Done, len(w.reports)
	}
	r.finish(in, agreement{takes: [][]int64{{2}}, offers: [][]offer{{{lease: 5, records: 2}}}, records: 2}, []float32{1})
	if formation, version, done, reports := told(); r.version != 1 || formation != 0 || version != 0 || done != 0 || reports != 0 {
		t.Errorf("after the round formation %d, version %d, %d records and %d reports are told", formation, version, done, reports)
	}
	if err := r.confirm(in); err != nil {
		t.Fatal(err)
	}
	if formation, version, done, reports := told(); formation != 3 || version != 1 || done != 2 || reports != 1 {
		t.Errorf("at the next one formation %d, version %d, %d records and %d reports are told", formation, version, done, reports)
	}
}

// What was measured for a lease that is void by now is no part of the next.
func TestVoidEvaluationLeavesNothingToTheNext(t *testing.T) {
	m := model()
	w := &worker{Config: Config{Engine: &counter{values: make([]float32, 1)}}, metrics: m.Metrics(), leases: newLeases()}
	for lease, size := range []int{3, 4} {
		if err := w.measure(item{task: &wire.Task{Lease: int64(lease)}, batch: &zoo.Batch{Size: size}}, 7); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.states[0][0]; got != 4 {
		t.Errorf("%v records are measured, not 4", got)
	}
}

// What is released is of one model: the next may still need its snapshot of a version that the last was done with.
func TestReleaseOfAnotherModel(t *testing.T) {
	r := new(member)
	r.beaten(&wire.HeartbeatReply{ReleaseSnapshot: 60})
	r.another()
	if r.release != 0 {
		t.Errorf("with a new state version %d is released", r.release)
	}
	r.beaten(&wire.HeartbeatReply{ReleaseSnapshot: 60}) // it was on its way
	r.beaten(&wire.HeartbeatReply{ReleaseSnapshot: 5})
	if r.release != 5 {
		t.Errorf("version %d is released, not 5", r.release)
	}
}

// atHand is a member with pieces in hand, and the channel of its reports.
func atHand(pieces ...piece) (*member, chan *wire.ReportTaskRequest) {
	w := &worker{leases: newLeases(), reports: make(chan *wire.ReportTaskRequest, 2), metrics: model().Metrics()}
	w.Engine, w.Log = newLesson(), slog.New(slog.DiscardHandler)
	r := &member{worker: w, feed: &feeder{worker: w, items: make(chan item), free: make(chan *zoo.Batch, 4)}, hand: pieces}
	for _, p := range pieces {
		w.leases.hold(p.task.Lease, 0)
	}
	return r, w.reports
}

// minibatch is the n-th, from 1, of two records each.
func minibatch(task *wire.Task, n int64) piece {
	return piece{item: item{task: task, batch: &zoo.Batch{Size: 2}, done: 2 * n, last: 2*n == task.End-task.Start}}
}

// An evaluation that is done when the world ends is reported in the next one, and measured once.
func TestEvaluationIsCutShort(t *testing.T) {
	bubble(t, func(t *testing.T) {
		task := &wire.Task{Kind: wire.TaskKind_EVALUATION, Lease: 1, End: 4}
		r, reports := atHand(minibatch(task, 1), minibatch(task, 2))
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		r.reports = nil // nobody takes the report
		if err := r.meanwhile(ctx, nil); err != gone {
			t.Fatalf("meanwhile gave %v", err)
		}
		r.reports = reports
		if err := r.meanwhile(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if got := <-reports; got.Error != "" || len(got.Metrics) != 1 || got.Metrics[0].State[0] != 4 {
			t.Errorf("report %v, want metrics of 4 records", got)
		}
	})
}

// A minibatch may be in the model in part when the rest of it fails.
func TestFailureOfTheRestOfAMinibatch(t *testing.T) {
	task := &wire.Task{Kind: wire.TaskKind_TRAINING, Lease: 1, End: 4}
	failed, next := minibatch(task, 1), minibatch(task, 2)
	failed.err, failed.taken = errors.New("broken"), 1
	r, reports := atHand(failed, next)
	r.ledger = map[int64]int64{1: 1}
	if err := r.meanwhile(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := <-reports; got.Error != "broken" || got.Done != 1 {
		t.Errorf("report %v, want one record done", got)
	}
	if len(r.hand) != 0 || len(r.feed.free) != 2 {
		t.Errorf("%d pieces in hand, %d batches free", len(r.hand), len(r.feed.free))
	}
}
