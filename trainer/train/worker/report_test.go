package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/test/prove"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/train/mesh"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

// The grant of a lease and the floor that voids it come over two streams, in any order.
func TestGrantOvertakenByFloor(t *testing.T) {
	l := newLeases()
	l.void(61)
	l.hold(&wire.Task{Lease: 60})
	l.hold(&wire.Task{Lease: 61})
	if !l.abandoned(60) {
		t.Error("a lease below the floor is held")
	}
	if l.abandoned(61) {
		t.Error("the lease at the floor is not held")
	}
}

// When a world ends while its last round is being confirmed, what was confirmed is released, and
// nothing is reported twice.
func TestConfirmIsCutShort(t *testing.T) {
	w := &worker{leases: newLeases(), reports: make(chan *wire.ReportTaskRequest, 2)}
	r := &member{worker: w, feed: &feeder{worker: w, free: make(chan *zoo.Batch, 4)}}
	task := &wire.Task{Lease: 1, End: 4}
	for i := range 2 {
		r.applied = append(r.applied,
			piece{item: item{task: task, batch: &zoo.Batch{Size: 2}, done: int64(2 * (i + 1)), last: i == 1}})
	}
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	full := w.reports
	w.reports = nil // nobody takes the report
	if err := r.confirm(&world{World: membership.Of(ctx, &wire.World{})}); err != gone {
		t.Fatalf("confirm gave %v", err)
	}
	w.reports = full
	if err := r.confirm(&world{World: membership.Of(t.Context(), &wire.World{})}); err != nil {
		t.Fatal(err)
	}
	if n := len(r.feed.free); n != 2 {
		t.Errorf("%d batches were releases, not 2", n)
	}
	if n := len(w.reports); n != 1 {
		t.Errorf("%d reports, not 1", n)
	}
}

// A round, and with it the end of a lease, is reported only when the next round has begun: until
// then the death of the others could take it back.
func TestRoundIsToldWhenTheNextHasBegun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, node := loner(t)
		r.leases.hold(&wire.Task{Lease: 5})
		r.queued = []piece{{item: item{task: training(5, 0, 2, 0),
			batch: &zoo.Batch{Size: 2, Labels: []int32{0, 1}}, done: 2, last: true}}}
		r.restart(r.values)
		links, err := node.Connect(t.Context(), mesh.Group{Generation: 3, Peers: []mesh.Peer{{Address: "0"}}})
		if err != nil {
			t.Fatal(err)
		}
		defer links.Close()
		in := &world{Mesh: links, World: membership.Of(t.Context(), &wire.World{Id: 1, Generation: 3}), size: 1}
		told := func() (version, done int64, reports int) {
			var beat wire.HeartbeatRequest
			r.beat(&beat)
			return beat.Version, r.leases.progress()[0].Done, len(r.reports)
		}
		if _, err := r.round(in); err != nil || r.version != 1 {
			t.Fatal(r.version, err)
		}
		if version, done, reports := told(); version != 0 || done != 0 || reports != 0 {
			t.Errorf("after the round version %d, %d records and %d reports are reported", version, done, reports)
		}
		if _, err := r.round(in); err != nil {
			t.Fatal(err)
		}
		if version, done, reports := told(); version != 1 || done != 2 || reports != 1 {
			t.Errorf("at the next one version %d, %d records and %d reports are reported", version, done, reports)
		}
	})
}

// loner is the only member of a ring.
func loner(t *testing.T) (*member, *mesh.Node) {
	c := newClass(1)
	p := c.pupils[0]
	node := mesh.Listen(mesh.Config{Listener: p.node, Self: p.header, Credential: prove.Of(p.header())})
	t.Cleanup(func() { node.Close() })
	cfg := Config{Job: c.job, Model: model(), Engine: p.engine, Peers: node, Log: slog.New(slog.DiscardHandler)}
	w := &worker{Config: cfg, leases: newLeases(), reports: make(chan *wire.ReportTaskRequest, 2)}
	r, err := newRing(w)
	if err != nil {
		t.Fatal(err)
	}
	r.feed = &feeder{worker: w, free: make(chan *zoo.Batch, 4)}
	return r, node
}

// Records in a state that a rank receives are not brought again; records that it had brought to a
// lost state are.
func TestReconcile(t *testing.T) {
	of := func(lease, done int64) piece {
		task := &wire.Task{Lease: lease, Kind: wire.TaskKind_TRAINING, Epoch: 1, Number: lease, End: 6}
		return piece{item: item{task: task, batch: &zoo.Batch{Size: 2}, done: done}}
	}
	r := new(member)
	r.ledger.Add(ledger.Task{Epoch: 1, Number: 1}, 3, 6)
	r.ledger.Add(ledger.Task{Epoch: 1, Number: 2}, 4, 6)
	r.queued, r.applied = []piece{of(1, 2), of(1, 4), of(1, 6)}, []piece{of(2, 4), of(3, 2)}
	r.reconcile()
	var got []string
	for _, p := range r.applied {
		got = append(got, fmt.Sprintf("lease %d up to %d applied", p.task.Lease, p.done))
	}
	for _, p := range r.queued {
		got = append(got, fmt.Sprintf("lease %d from %d to %d queued", p.task.Lease, p.from(), p.done))
	}
	want := []string{"lease 2 up to 4 applied", "lease 1 up to 2 applied",
		"lease 3 from 0 to 2 queued", "lease 1 from 3 to 4 queued", "lease 1 from 4 to 6 queued"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A worker that is given a world first drops the leases that are void in it.
func TestWorldVoidsLeases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, _ := loner(t)
		r.leases.hold(&wire.Task{Lease: 5})
		r.queued = []piece{{item: item{task: training(5, 0, 4, 0),
			batch: &zoo.Batch{Size: 2, Labels: []int32{0, 1}}, done: 2}}}
		world := &wire.World{Id: 2, Generation: 2, Floor: 6, Members: []*wire.Member{{Address: "0"}}}
		in := membership.Of(t.Context(), world)
		time.AfterFunc(time.Second, func() { in.Leave(membership.ErrRecalled) })
		if broken, _, err := r.live(in); !broken || err != nil {
			t.Fatal(broken, err)
		}
		if steps := r.Engine.(*lesson).steps; len(r.queued) != 0 || len(r.leases.ids()) != 0 || len(steps) != 0 {
			t.Errorf("%d minibatches queued, leases %v, steps %v", len(r.queued), r.leases.ids(), steps)
		}
	})
}

// Measurements for a void lease do not count for the next lease.
func TestVoidEvaluationLeavesNothingToTheNext(t *testing.T) {
	m := model()
	w := &worker{Config: Config{Engine: &counter{values: make([]float32, 1)}}, metrics: m.Metrics(),
		leases: newLeases()}
	for lease, size := range []int{3, 4} {
		if err := w.measure(item{task: &wire.Task{Lease: int64(lease)}, batch: &zoo.Batch{Size: size}}, 7); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.states[0][0]; got != 4 {
		t.Errorf("%v records are measured, not 4", got)
	}
}

// The release of a snapshot holds for one model generation: the next generation may still need its
// snapshot of that version.
func TestReleaseOfAnotherModel(t *testing.T) {
	r := &member{worker: &worker{Config: Config{Self: self(pod.Worker)}}}
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

// withQueued returns a member with pieces queued, and the channel of its reports.
func withQueued(pieces ...piece) (*member, chan *wire.ReportTaskRequest) {
	w := &worker{leases: newLeases(), reports: make(chan *wire.ReportTaskRequest, 2), metrics: model().Metrics()}
	w.Engine, w.Log = newLesson(), slog.New(slog.DiscardHandler)
	r := &member{worker: w, feed: &feeder{worker: w, items: make(chan item),
		free: make(chan *zoo.Batch, 4)}, queued: pieces}
	for _, p := range pieces {
		w.leases.hold(&wire.Task{Lease: p.task.Lease})
	}
	return r, w.reports
}

// minibatch returns the n-th minibatch of a task, from 1, of two records each.
func minibatch(task *wire.Task, n int64) piece {
	return piece{item: item{task: task, batch: &zoo.Batch{Size: 2}, done: 2 * n, last: 2*n == task.End-task.Start}}
}

// An evaluation that is complete when the world ends is reported in the next world, and measured
// once.
func TestEvaluationIsCutShort(t *testing.T) {
	bubble(t, func(t *testing.T) {
		task := &wire.Task{Kind: wire.TaskKind_EVALUATION, Lease: 1, End: 4}
		r, reports := withQueued(minibatch(task, 1), minibatch(task, 2))
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

// A part of a minibatch may be in the model when the rest of it fails.
func TestFailureOfTheRestOfAMinibatch(t *testing.T) {
	task := &wire.Task{Kind: wire.TaskKind_TRAINING, Lease: 1, Epoch: 1, End: 4}
	failed, next := minibatch(task, 1), minibatch(task, 2)
	failed.err, failed.contained = errors.New("broken"), 1
	r, reports := withQueued(failed, next)
	r.ledger.Add(ledger.Task{Epoch: 1}, 1, 4)
	if err := r.meanwhile(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := <-reports; got.Error != "broken" || got.Done != 1 {
		t.Errorf("report %v, want one record done", got)
	}
	if len(r.queued) != 0 || len(r.feed.free) != 2 {
		t.Errorf("%d pieces queued, %d batches free", len(r.queued), len(r.feed.free))
	}
}
