package worker

import (
	"context"
	"errors"
	"testing"

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

// What was measured for a lease that is void by now is no part of the next.
func TestVoidEvaluationLeavesNothingToTheNext(t *testing.T) {
	m := model()
	w := &worker{Config: Config{Engine: &counter{values: make([]float32, 1)}}, metrics: m.Metrics()}
	for lease, size := range []int{3, 4} {
		if err := w.measure(item{task: &wire.Task{Lease: int64(lease)}, batch: &zoo.Batch{Size: size}}); err != nil {
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
