package task

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
)

var start = time.Unix(1e9, 0)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func newQueue(t testing.TB, records int64, p Policy) *Queue {
	t.Helper()
	q, err := New([]Shard{{Name: "train", Start: 0, Count: records}}, p)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func lease(t testing.TB, q *Queue, worker int, now time.Time) Lease {
	t.Helper()
	l, ok := q.Lease(worker, now)
	if !ok {
		t.Fatalf("nothing to lease: %v", q.Stats())
	}
	return l
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{Shuffle: true, Seed: rapid.Uint64().Draw(t, "seed")}
		task := Task{Kind: Training, Shard: rapid.String().Draw(t, "shard"), Epoch: 1}
		task.Start = rapid.Int64Range(0, 1e12).Draw(t, "start")
		task.End = task.Start + rapid.Int64Range(0, 200).Draw(t, "count")
		order := p.Order(task)
		task.Done, task.Attempts = task.Records()/2, 2
		if !slices.Equal(order, p.Order(task)) {
			t.Fatal("the order depends on what is done of it")
		}
		sorted := slices.Sorted(slices.Values(order))
		if plain := (Policy{}).Order(task); !slices.Equal(sorted, plain) {
			t.Fatalf("%v is not a permutation of %v", order, plain)
		}
		for i, n := range sorted {
			if n != task.Start+int64(i) {
				t.Fatalf("record %d is %d", i, n)
			}
		}
	})
	p := Policy{Shuffle: true, Seed: 7}
	a := Task{Kind: Training, Shard: "s", End: 100, Epoch: 1}
	b, c, d := a, a, a
	b.Epoch, c.Shard, d.Kind = 2, "r", Evaluation
	if slices.Equal(p.Order(a), p.Order(b)) || slices.Equal(p.Order(a), p.Order(c)) {
		t.Error("epochs or shards have one order")
	}
	if slices.Equal(p.Order(a), (Policy{Shuffle: true, Seed: 8}).Order(a)) {
		t.Error("seeds have one order")
	}
	if !slices.IsSorted(p.Order(d)) {
		t.Error("evaluation is shuffled")
	}
}

func TestTasksAreShuffledByEpoch(t *testing.T) {
	play := func(seed uint64) (epochs [2][]int64) {
		q := newQueue(t, 1000, Policy{RecordsPerTask: 10, Epochs: 2, Shuffle: true, Seed: seed})
		for e := range epochs {
			for range 100 {
				l := lease(t, q, 0, start)
				epochs[e] = append(epochs[e], l.Start)
				must(t, q.Done(l.ID, 0, start))
			}
			q.NextEpoch()
		}
		return epochs
	}
	a, b, other := play(3), play(3), play(4)
	if !slices.Equal(a[0], b[0]) || !slices.Equal(a[1], b[1]) {
		t.Error("one seed, two orders")
	}
	if slices.Equal(a[0], a[1]) || slices.Equal(a[0], other[0]) || slices.IsSorted(a[0]) {
		t.Error("epochs or seeds have one order")
	}
}

func TestNewRefuses(t *testing.T) {
	ok := Policy{RecordsPerTask: 1, Epochs: 1}
	for _, tt := range []struct {
		shards []Shard
		policy Policy
		want   string
	}{
		{[]Shard{{Name: "a", Start: 0, Count: 1}}, Policy{Timeout: -1, MaxAttempts: -1, MaxRecords: -1},
			"task policy: records per task must be positive, not 0\nattempts must not be negative, not -1\n" +
				"timeout must not be negative, not -1ns\nrecord limit must not be negative, not -1"},
		{[]Shard{{Name: "a", Start: 0, Count: 0}}, ok, "training data has no records"},
		{[]Shard{{Name: "a", Start: -1, Count: 5}}, ok, "shard a: 5 records from -1: want no negative numbers"},
	} {
		if _, err := New(tt.shards, tt.policy); err == nil || err.Error() != tt.want {
			t.Errorf("New(%v, %+v): %v, want %s", tt.shards, tt.policy, err, tt.want)
		}
	}
	q, err := New(nil, ok)
	if err != nil || !q.TrainingDone() || !q.Finished() {
		t.Errorf("no shards: %v, %v", q, err)
	}
}

func TestMaxRecords(t *testing.T) {
	for _, tt := range []struct {
		epochs         int
		limit          int64
		done, skipped  int64
		lastEpochTasks int
	}{
		{2, 0, 200, 0, 4},
		{2, 250, 200, 0, 4},
		{2, 200, 200, 0, 4},
		{2, 130, 130, 70, 1},
		{2, 100, 100, 100, 4},
		{2, 45, 45, 155, 2},
		{0, 250, 250, 0, 2}, // it ends only by MaxRecords
	} {
		q := newQueue(t, 100, Policy{RecordsPerTask: 30, Epochs: tt.epochs, MaxRecords: tt.limit})
		var tasks int
		for more := true; more; more = q.NextEpoch() {
			for tasks = 0; !q.Settled(); tasks++ {
				l := lease(t, q, 0, start)
				must(t, q.Done(l.ID, 0, start))
			}
		}
		s := q.Stats()
		if s.Done != tt.done || s.Total != tt.done || s.Skipped != tt.skipped ||
			tasks != tt.lastEpochTasks || !q.Finished() {
			t.Errorf("%d epochs, limit %d: %d of %d done, %d skipped, %d tasks in the last epoch",
				tt.epochs, tt.limit, s.Done, s.Total, s.Skipped, tasks)
		}
	}
}

func TestEndless(t *testing.T) {
	q := newQueue(t, 1, Policy{RecordsPerTask: 1})
	for range 100 {
		must(t, q.Done(lease(t, q, 0, start).ID, 0, start))
		if !q.NextEpoch() {
			t.Fatal("ended")
		}
	}
	if s := q.Stats(); s.Epoch != 101 || s.Done != 100 || s.Total != 0 {
		t.Error(s)
	}
}

// The task of a lost lease is leased next, begins after the credited records, and no failure is
// counted.
func TestLost(t *testing.T) {
	q := newQueue(t, 100, Policy{RecordsPerTask: 10, Epochs: 1})
	for range 10 {
		l := lease(t, q, 0, start)
		must(t, q.Touch(l.ID, 0, l.Done+1, start))
		if lost := q.Lose(0, nil, "", start); len(lost) != 1 || lost[0].Done != l.Done+1 {
			t.Fatalf("lost %v", lost)
		}
	}
	if s := q.Stats(); q.Err() != nil || s.Requeued != 9 || s.Failed != 0 || s.Done != 10 || s.Settled != 1 {
		t.Error(s, q.Err())
	}
}

// Only the lease that a worker worked on counts its crash.
func TestCrash(t *testing.T) {
	q := newQueue(t, 30, Policy{RecordsPerTask: 10, Epochs: 1, MaxAttempts: 2})
	for range 2 {
		first, second := lease(t, q, 0, start), lease(t, q, 0, start)
		if second.Attempts != 0 {
			t.Fatalf("%v is counted", second)
		}
		if first.Start != 0 { // the failed task comes last
			must(t, q.Done(first.ID, 0, start))
			must(t, q.Done(second.ID, 0, start))
			lease(t, q, 0, start)
		}
		q.Lose(0, nil, "exit code 7", start)
	}
	const want = "training on records [0, 10) of train, epoch 1: failed 2 times, at last by worker 0: exit code 7"
	if err := q.Err(); err == nil || err.Error() != want {
		t.Error(err)
	}
	if _, ok := q.Lease(1, start); ok || q.Finished() {
		t.Error("a failed queue continues")
	}
}

func TestLostWithAllDone(t *testing.T) {
	q := newQueue(t, 10, Policy{RecordsPerTask: 10, Epochs: 1})
	l := lease(t, q, 0, start)
	q.Lose(0, map[int64]int64{l.ID: 10}, "exit code 1", start)
	if s := q.Stats(); !q.Settled() || s.Done != 10 || s.Failed != 0 {
		t.Error(s)
	}
}

func TestStragglers(t *testing.T) {
	q := newQueue(t, 100, Policy{RecordsPerTask: 10, Epochs: 1, Timeout: 10 * time.Second})
	deadline := func(want int) {
		t.Helper()
		if got, ok := q.Deadline(); !ok || !got.Equal(at(want)) {
			t.Fatalf("deadline %v, want %v", got.Sub(start), at(want).Sub(start))
		}
	}
	if _, ok := q.Deadline(); ok {
		t.Fatal("deadline without leases")
	}
	a, b := lease(t, q, 0, at(0)), lease(t, q, 0, at(1)) // the worker holds b in reserve
	deadline(10)
	must(t, q.Touch(a.ID, 0, 5, at(4)))
	deadline(14)
	must(t, q.Touch(a.ID, 0, 5, at(5))) // no progress
	deadline(14)
	must(t, q.Done(a.ID, 0, at(6))) // 6 seconds: 18 from now on
	deadline(24)
	c := lease(t, q, 1, at(7))
	if held := q.Held(0); len(held) != 1 || !held[0].Touched.Equal(at(6)) {
		t.Fatalf("held %+v", held)
	}
	if workers := q.Overdue(at(23)); len(workers) != 0 {
		t.Fatalf("overdue early: %v", workers)
	}
	if workers := q.Overdue(at(24)); !slices.Equal(workers, []int{0}) {
		t.Fatalf("overdue: %v", workers)
	}
	if workers := q.Overdue(at(24)); len(workers) != 0 {
		t.Fatalf("overdue again: %v", workers)
	}
	deadline(25)
	if lost := q.Lose(0, nil, "", at(24)); len(lost) != 1 || lost[0].ID != b.ID {
		t.Fatalf("lost %v", lost)
	}
	if err := q.Done(b.ID, 0, at(24)); !errors.Is(err, ErrStale) {
		t.Fatalf("late report: %v", err)
	}
	if again := lease(t, q, 1, at(24)); again.Start != b.Start || again.Attempts != 0 {
		t.Fatalf("%v after %v was lost", again, b)
	}
	must(t, q.Done(c.ID, 1, at(24)))
	if s := q.Stats(); s.Requeued != 1 || s.Failed != 0 {
		t.Error(s)
	}
}

// The time of a lease held in reserve counts from when its worker begins it.
func TestReserveIsNotSlow(t *testing.T) {
	q := newQueue(t, 100, Policy{RecordsPerTask: 10, Timeout: time.Second})
	a, b := lease(t, q, 0, at(0)), lease(t, q, 0, at(0))
	must(t, q.Done(a.ID, 0, at(6)))
	must(t, q.Done(b.ID, 0, at(12)))
	lease(t, q, 0, at(12))
	if got, _ := q.Deadline(); !got.Equal(at(12 + 3*6)) {
		t.Errorf("deadline after %v", got.Sub(start))
	}
}

func TestEvaluationFirstExportLast(t *testing.T) {
	q := newQueue(t, 20, Policy{RecordsPerTask: 10, Epochs: 1})
	test := []Shard{{Name: "test", Start: 0, Count: 15}}
	q.Export(0, 0)
	training := lease(t, q, 0, start)
	if n := q.Evaluate(50, test); n != 2 {
		t.Fatalf("%d evaluation tasks", n)
	}
	e := lease(t, q, 0, start)
	if e.Kind != Evaluation || e.Version != 50 || e.Shard != "test" || e.End != 10 {
		t.Fatalf("leased %+v", e)
	}
	must(t, q.Touch(e.ID, 0, 7, start))
	if lost := q.Lose(0, nil, "", start); len(lost) != 2 || lost[0].ID != training.ID {
		t.Fatalf("lost %v", lost)
	}
	if e = lease(t, q, 1, start); e.Start != 0 || e.Done != 0 {
		t.Fatalf("evaluation continues in the middle: %+v", e)
	}
	q.Withdraw(50, start)
	if err := q.Done(e.ID, 1, start); !errors.Is(err, ErrStale) {
		t.Fatalf("report about a withdrawn lease: %v", err)
	}
	for range 2 {
		must(t, q.Done(lease(t, q, 1, start).ID, 1, start))
	}
	if q.NextEpoch() || !q.TrainingDone() || q.Finished() {
		t.Fatal(q.Stats())
	}
	q.Evaluate(0, test)
	first, second := lease(t, q, 1, start), lease(t, q, 2, start)
	if _, ok := q.Lease(3, start); ok {
		t.Fatal("export before the evaluation is settled")
	}
	must(t, q.Done(first.ID, 1, start))
	must(t, q.Done(second.ID, 2, start))
	q.Lose(4, nil, "", start)
	export := lease(t, q, 4, start)
	if export.Kind != Export {
		t.Fatalf("leased %v", export)
	}
	q.Lose(4, nil, "", start)
	if export = lease(t, q, 5, start); export.Kind != Export || q.Finished() {
		t.Fatalf("leased %v", export)
	}
	must(t, q.Done(export.ID, 5, start))
	if !q.Finished() {
		t.Error(q.Stats())
	}
}

// Tasks of a prediction know their number and how many there are. Their parts are joined when all
// are done.
func TestPrediction(t *testing.T) {
	q, err := New(nil, Policy{RecordsPerTask: 10})
	must(t, err)
	if n := q.Predict(7, []Shard{{Name: "a", Start: 0, Count: 12}, {Name: "b", Start: 0, Count: 5}}); n != 3 {
		t.Fatalf("%d tasks", n)
	}
	q.Export(7, 3)
	var all []Lease
	for i, want := range []string{"prediction[v=7] of records [0, 10) of a",
		"prediction[v=7] of records [10, 12) of a", "prediction[v=7] of records [0, 5) of b"} {
		l := lease(t, q, i, start)
		if l.String() != want || l.Number != i || l.Of != 3 {
			t.Errorf("leased %v as number %d of %d, expected %s", l, l.Number, l.Of, want)
		}
		all = append(all, l)
	}
	must(t, q.Touch(all[0].ID, 0, 9, start))
	// the worker is lost before it has written its part
	q.Lose(0, nil, "", start)
	must(t, q.Done(all[1].ID, 1, start))
	must(t, q.Done(all[2].ID, 2, start))
	again := lease(t, q, 1, start)
	if s := q.Stats(); again.Start != 0 || again.Done != 0 || again.Of != 3 || s.Measured != 7 ||
		s.ToMeasure != 17 || s.Evaluating != 2 {
		t.Fatalf("leased again: %+v; %v", again, s)
	}
	if l, ok := q.Lease(3, start); ok {
		t.Fatalf("leased %v before every part is there", l)
	}
	must(t, q.Done(again.ID, 1, start))
	merge := lease(t, q, 2, start)
	if merge.Kind != Export || merge.Of != 3 || q.Stats().Measured != 17 {
		t.Fatalf("leased %+v; %v", merge, q.Stats())
	}
	must(t, q.Done(merge.ID, 2, start))
	if !q.Finished() {
		t.Error(q.Stats())
	}
}

func TestNextEpochBeforeSettledPanics(t *testing.T) {
	defer func() {
		if r := recover(); r == nil || !strings.Contains(r.(string), "1 to do") {
			t.Error(r)
		}
	}()
	newQueue(t, 1, Policy{RecordsPerTask: 1}).NextEpoch()
}

func TestStatsString(t *testing.T) {
	q := newQueue(t, 30, Policy{RecordsPerTask: 10, Epochs: 2})
	must(t, q.Done(lease(t, q, 0, start).ID, 0, start))
	lease(t, q, 0, start)
	const want = "epoch 1 of 2: 10 of 30 records; tasks: 1 to do, 1 leased, 1 settled; 0 " +
		"evaluating; 0 requeued, 0 failed"
	if got := q.Stats().String(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// BenchmarkLease grants, touches and settles one lease of a million tasks with 100 workers.
func BenchmarkLease(b *testing.B) {
	q := newQueue(b, 1e6, Policy{RecordsPerTask: 1, Shuffle: true, Timeout: time.Minute})
	var held [100]int64
	now := start
	for i := 0; b.Loop(); i++ {
		w := i % len(held)
		now = now.Add(time.Microsecond)
		if id := held[w]; id != 0 {
			must(b, q.Touch(id, w, 1, now))
			must(b, q.Done(id, w, now))
		}
		l, ok := q.Lease(w, now)
		if held[w] = l.ID; !ok && q.Settled() {
			q.NextEpoch()
		}
		q.Deadline()
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "leases/s")
}

func TestRewindToTheBeginning(t *testing.T) {
	q := newQueue(t, 20, Policy{RecordsPerTask: 10, Epochs: 2})
	for range 4 {
		must(t, q.Done(lease(t, q, 0, at(0)).ID, 0, at(1)))
		if q.Settled() {
			q.NextEpoch()
		}
	}
	q.Evaluate(7, []Shard{{Name: "test", Start: 0, Count: 3}})
	q.Export(7, 0)
	measured := lease(t, q, 1, at(2))
	must(t, q.Rewind(new(ledger.Ledger)))
	if s := q.Stats(); q.TrainingDone() || q.Finished() || s.Done != 0 || s.Epoch != 1 || s.Todo != 2 ||
		s.Evaluating != 0 || s.Requeued != 1 {
		t.Errorf("afterwards: %v", s)
	}
	if err := q.Done(measured.ID, 1, at(3)); !errors.Is(err, ErrStale) {
		t.Errorf("a report from before the rewind: %v", err)
	}
	if floor := q.Floor(); floor != measured.ID+1 {
		t.Errorf("floor %d after lease %d", floor, measured.ID)
	}
	first := lease(t, q, 0, at(4))
	if first.ID <= measured.ID || first.Kind != Training || first.Epoch != 1 || first.Start != 0 || first.Done != 0 {
		t.Errorf("first lease %+v", first)
	}
	second := lease(t, q, 1, at(4))
	must(t, q.Done(first.ID, 0, at(5)))
	if floor := q.Floor(); floor != second.ID {
		t.Errorf("floor %d, lease %d is held", floor, second.ID)
	}

	empty, err := New(nil, Policy{RecordsPerTask: 10})
	must(t, err)
	empty.Export(0, 0)
	must(t, empty.Rewind(new(ledger.Ledger)))
	if !empty.TrainingDone() || !empty.Finished() {
		t.Errorf("nothing to train on, and nothing asked for: %v", empty.Stats())
	}
}

// A task's number is its index in the unshuffled cut, in every epoch and for every worker.
func TestNumbers(t *testing.T) {
	for _, shuffle := range []bool{false, true} {
		q, err := New([]Shard{{Name: "a", Start: 5, Count: 7}, {Name: "b", Start: 0, Count: 3}},
			Policy{RecordsPerTask: 3, Epochs: 2, Shuffle: shuffle, Seed: 5})
		must(t, err)
		want := []Task{{Number: 0, Shard: "a", Start: 5}, {Number: 1, Shard: "a", Start: 8},
			{Number: 2, Shard: "a", Start: 11}, {Number: 3, Shard: "b"}}
		for range 2 {
			var got []Task
			for i := range want {
				l := lease(t, q, 0, start)
				if i%2 == 0 {
					q.Lose(0, nil, "", start)
					l = lease(t, q, 1, start)
				}
				must(t, q.Done(l.ID, l.Worker, start))
				got = append(got, Task{Number: l.Number, Shard: l.Shard, Start: l.Start})
			}
			slices.SortFunc(got, func(a, b Task) int { return a.Number - b.Number })
			if !slices.Equal(got, want) {
				t.Errorf("shuffled %t: %v", shuffle, got)
			}
			q.NextEpoch()
		}
	}
}

// A task that needs more time than the limit before it shows progress is completed, too: each
// further worker has twice the time.
func TestSlowTaskEnds(t *testing.T) {
	q := newQueue(t, 10, Policy{RecordsPerTask: 10, Epochs: 1, Timeout: 10 * time.Second})
	now, need := start, 125*time.Second
	for worker := 0; ; worker++ {
		l := lease(t, q, worker, now)
		at, ok := q.Deadline()
		if limit := at.Sub(now); !ok || limit != 10*time.Second<<worker {
			t.Fatalf("worker %d has %v", worker, limit)
		}
		if end := now.Add(need); end.Before(at) {
			must(t, q.Touch(l.ID, worker, 1, end))
			must(t, q.Done(l.ID, worker, end))
			break
		}
		now = at
		if overdue := q.Overdue(now); !slices.Equal(overdue, []int{worker}) {
			t.Fatalf("overdue: %v", overdue)
		}
		q.Lose(worker, nil, "", now)
	}
	if s := q.Stats(); !q.Settled() || s.Requeued != 4 || s.Failed != 0 {
		t.Error(s)
	}
}

// A rewind keeps doubled limits: whenever the only worker that has the model is overdue, its loss
// causes a rewind.
func TestSlowExportEnds(t *testing.T) {
	q := newQueue(t, 10, Policy{RecordsPerTask: 10, Epochs: 1, Timeout: 10 * time.Second})
	now := start
	for life := range 3 {
		must(t, q.Done(lease(t, q, life, now).ID, life, now))
		q.NextEpoch()
		q.Export(1, 0)
		l := lease(t, q, life, now)
		at, ok := q.Deadline()
		if limit := at.Sub(now); !ok || l.Kind != Export || limit != 10*time.Second<<life {
			t.Fatalf("%v has %v in generation %d", l, limit, life)
		}
		now = at
		q.Overdue(now)
		q.Lose(life, nil, "", now)
		must(t, q.Rewind(new(ledger.Ledger)))
	}
}

// The limit stops doubling at 64 times.
func TestLimitIsBounded(t *testing.T) {
	q := newQueue(t, 10, Policy{RecordsPerTask: 10, Epochs: 1, Timeout: 10 * time.Second})
	now := start
	lease(t, q, 0, now)
	for range 100 {
		at, _ := q.Deadline()
		if limit := at.Sub(now); limit > 640*time.Second {
			t.Fatalf("limit of %v", limit)
		}
		now = at
		q.Overdue(now)
	}
	if at, _ := q.Deadline(); at.Sub(now) != 640*time.Second {
		t.Errorf("limit of %v in the end", at.Sub(now))
	}
}

// A worker whose evaluation or export makes progress is not overdue. The progress is not credited:
// the next worker begins again.
func TestProgressWithoutCredit(t *testing.T) {
	q, err := New(nil, Policy{RecordsPerTask: 10, Timeout: 10 * time.Second})
	must(t, err)
	q.Evaluate(7, []Shard{{Name: "test", Start: 0, Count: 10}})
	q.Export(7, 0)
	for _, kind := range []Kind{Evaluation, Export} {
		l := lease(t, q, 0, at(0))
		if l.Kind != kind {
			t.Fatalf("leased %v", l)
		}
		for i, done := range []int64{3, 3, 9} {
			must(t, q.Touch(l.ID, 0, done, at(4+i)))
		}
		if deadline, _ := q.Deadline(); !deadline.Equal(at(16)) {
			t.Errorf("%v: deadline after %v", kind, deadline.Sub(start))
		}
		// the progress of an export is in bytes
		if err := q.Touch(l.ID, 0, 1<<40, at(6)); (err == nil) != (kind == Export) {
			t.Errorf("%v: %v for much", kind, err)
		}
		if lost := q.Lose(0, map[int64]int64{l.ID: 9}, "", at(7)); len(lost) != 1 || lost[0].Done != 0 {
			t.Errorf("lost %+v", lost)
		}
		if l = lease(t, q, 1, at(0)); l.Kind != kind || l.Done != 0 {
			t.Errorf("leased %+v again", l)
		}
		must(t, q.Touch(l.ID, 1, 2, at(5)))
		if deadline, _ := q.Deadline(); !deadline.Equal(at(15)) {
			t.Errorf("%v again: deadline after %v", kind, deadline.Sub(start))
		}
		must(t, q.Done(l.ID, 1, at(0)))
	}
}

// A worker whose effort rises is not overdue; one whose effort is constant is.
func TestEffort(t *testing.T) {
	q := newQueue(t, 10, Policy{RecordsPerTask: 10, Epochs: 1, Timeout: 10 * time.Second})
	l := lease(t, q, 0, at(0))
	for i, effort := range []int64{1, 5, 5, 2} {
		must(t, q.Work(l.ID, 0, effort, at(1+i)))
	}
	if deadline, _ := q.Deadline(); !deadline.Equal(at(12)) {
		t.Errorf("deadline after %v", deadline.Sub(start))
	}
	if s := q.Stats(); s.Done != 0 {
		t.Error(s)
	}
}
