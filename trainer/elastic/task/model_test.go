package task

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
)

// record is one record of one shard.
type record struct {
	shard string
	index int64
}

// model is a simple queue for comparison: it counts every record, and searches all of its state.
type model struct {
	t *rapid.T
	// the twin gets the same calls
	q, twin *Queue
	policy  Policy
	shards  []Shard
	now     time.Time
	leases  map[int64]Lease
	// leases that are no longer held
	settled []Lease
	// by record: how often it was credited in this epoch
	credited map[record]int
	// by task: its counted failures
	counted map[string]int
	// by task: how often in a row it was returned without progress
	returned map[string]int
	// by lease: the greatest effort that was reported
	effort map[int64]int64
	// by lease: the greatest progress that was reported
	reported map[int64]int64
	// by worker: when it showed progress last, or got its first lease
	touched map[int]time.Time
	// the reason that failed the queue
	fatal string
	// number of tasks in this epoch
	total   int
	exports int
	kept    []saved
	// version of the last evaluation
	version int64

	// ids of leases, of all masters
	given map[int64]bool
	// training tasks of this epoch that are settled
	over        map[string]bool
	incarnation int
	hints       []hint
	// leases of earlier masters
	orphans []orphan
	// orphans that this master has adopted
	adopted map[int64]bool
	// no more orphans are adopted
	closed bool
}

func newModel(t *rapid.T) *model {
	m := &model{t: t, now: time.Unix(1e9, 0), leases: make(map[int64]Lease),
		counted: make(map[string]int), returned: make(map[string]int), effort: make(map[int64]int64),
		reported: make(map[int64]int64), touched: make(map[int]time.Time), given: make(map[int64]bool),
		over: make(map[string]bool), closed: true}
	for i := range rapid.IntRange(1, 3).Draw(t, "shards") {
		m.shards = append(m.shards, Shard{
			Name:  fmt.Sprintf("shard-%c", 'a'+i),
			Start: rapid.Int64Range(0, 5).Draw(t, "start"),
			Count: rapid.Int64Range(0, 12).Draw(t, "count"),
		})
	}
	m.shards[0].Count++
	m.policy = Policy{
		RecordsPerTask: rapid.Int64Range(1, 6).Draw(t, "records per task"),
		Epochs:         rapid.IntRange(0, 3).Draw(t, "epochs"),
		MaxAttempts:    rapid.IntRange(0, 4).Draw(t, "attempts"),
		Timeout:        time.Duration(rapid.IntRange(0, 20).Draw(t, "timeout")) * time.Second,
		Shuffle:        rapid.Bool().Draw(t, "shuffle"),
		Seed:           rapid.Uint64().Draw(t, "seed"),
		MaxRecords:     rapid.SampledFrom([]int64{0, 0, 1, 7, 40}).Draw(t, "limit"),
	}
	var errs [2]error
	m.q, errs[0] = New(m.shards, m.policy)
	m.twin, errs[1] = New(m.shards, m.policy)
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	m.epoch()
	return m
}

func (m *model) epoch() {
	m.credited, m.over = make(map[record]int), make(map[string]bool)
	for _, count := range []map[string]int{m.counted, m.returned} {
		maps.DeleteFunc(count, func(name string, _ int) bool { return strings.HasPrefix(name, "training") })
	}
	s := m.q.Stats()
	m.total = s.Todo + s.Leased + s.Settled
}

func (m *model) worker() int { return rapid.IntRange(0, 3).Draw(m.t, "worker") }

// lease returns a live lease.
func (m *model) lease() Lease {
	ids := slices.Sorted(maps.Keys(m.leases))
	if len(ids) == 0 {
		m.t.Skip("nothing is leased")
	}
	return m.leases[rapid.SampledFrom(ids).Draw(m.t, "lease")]
}

// credit counts the records of l up to done as credited.
func (m *model) credit(l Lease, done int64) {
	if l.Kind != Training {
		return
	}
	if done > l.Done {
		delete(m.returned, l.String())
	}
	for _, i := range m.policy.Order(l.Task)[l.Done:max(l.Done, done)] {
		m.credited[record{l.Shard, i}]++
	}
}

// upTo returns l with that many records done. Only those of training count.
func (l Lease) upTo(done int64) Lease {
	if l.Kind == Training && done > l.Done {
		l.Done, l.Returned = done, 0
	}
	return l
}

func (m *model) fault(l Lease, reason string) {
	m.counted[l.String()]++
	if m.counted[l.String()] >= m.q.policy.MaxAttempts && m.fatal == "" {
		m.fatal = reason
	}
}

func (m *model) end(l Lease) {
	delete(m.leases, l.ID)
	m.settled = append(m.settled, l)
}

func (m *model) check(err error) {
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) both(f func(q *Queue) error) {
	m.check(f(m.q))
	m.check(f(m.twin))
}

func (m *model) Lease(t *rapid.T) {
	w := m.worker()
	l, ok := m.q.Lease(w, m.now)
	other, _ := m.twin.Lease(w, m.now)
	if l != other {
		t.Fatalf("same calls, other lease: %v and %v", l, other)
	}
	if !ok {
		if s := m.q.Stats(); m.q.Err() == nil && (s.Todo > 0 || len(m.q.evaluations) > 0) {
			t.Fatalf("no lease, although %v", s)
		}
		return
	}
	if m.fatal != "" {
		t.Fatalf("%v leased by a queue that failed", l)
	}
	if m.given[l.ID] {
		t.Fatalf("%v: a lease had that number before", l)
	}
	m.given[l.ID] = true
	if l.Worker != w || l.Granted != m.now || l.Attempts != m.counted[l.String()] ||
		l.Returned != m.returned[l.String()] {
		t.Fatalf("lease %+v, counted %d, returned %d", l, m.counted[l.String()], m.returned[l.String()])
	}
	if l.Kind == Export && (!m.q.TrainingDone() || len(m.leases) > 0) {
		t.Fatalf("export with %d leases out", len(m.leases))
	}
	if l.Kind == Training {
		for k, i := range m.policy.Order(l.Task) {
			want := 0
			if int64(k) < l.Done {
				want = 1
			}
			if got := m.credited[record{l.Shard, i}]; got != want {
				t.Fatalf("%v, %d done: its record %d (%d) was credited %d times", l, l.Done, k, i, got)
			}
		}
	}
	for _, x := range m.leases {
		if x.Kind == l.Kind && x.Shard == l.Shard && x.Version == l.Version && x.Start < l.End && l.Start < x.End {
			t.Fatalf("%v is leased twice: %v", l, x)
		}
	}
	if len(m.q.Held(w)) == 1 {
		m.touched[w] = m.now
	}
	m.leases[l.ID], m.reported[l.ID] = l, l.Done
}

func (m *model) Lose(t *rapid.T) {
	w := m.worker()
	fault := rapid.SampledFrom([]string{"", "", "exit code 1"}).Draw(t, "fault")
	progress := make(map[int64]int64)
	for _, l := range m.q.Held(w) {
		progress[l.ID] = rapid.Int64Range(0, l.Records()+3).Draw(t, "progress")
	}
	m.lose(w, progress, fault)
}

func (m *model) lose(w int, progress map[int64]int64, fault string) {
	var held []Lease
	for _, id := range slices.Sorted(maps.Keys(m.leases)) {
		if l := m.leases[id]; l.Worker == w {
			m.credit(l, min(l.Records(), progress[id]))
			held = append(held, l.upTo(min(l.Records(), progress[id])))
			if last := held[len(held)-1]; last.Done == last.Records() {
				m.over[l.String()] = true
			}
			m.end(l)
		}
	}
	lost := m.q.Lose(w, progress, fault, m.now)
	m.twin.Lose(w, progress, fault, m.now)
	m.same("took back", lost, held)
	if len(held) > 0 && fault != "" && (held[0].Kind != Training || held[0].Done < held[0].Records()) {
		m.fault(held[0], fault)
	}
}

// same compares leases with those of the model.
func (m *model) same(what string, got, want []Lease) {
	same := func(a, b Lease) bool { return a.ID == b.ID && a.Task == b.Task && a.Worker == b.Worker }
	if !slices.EqualFunc(got, want, same) {
		m.t.Fatalf("%s %v, the model has %v", what, got, want)
	}
}

// Overdue lets time pass, and ends the workers that are overdue then.
func (m *model) Overdue(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "seconds")) * time.Second)
	at, ok := m.q.Deadline()
	workers := m.q.Overdue(m.now)
	if twins := m.twin.Overdue(m.now); !slices.Equal(workers, twins) {
		t.Fatalf("same calls, other workers overdue: %v and %v", workers, twins)
	}
	if due := ok && !m.now.Before(at); due != (len(workers) > 0) {
		t.Fatalf("deadline %v (%t), now %v: %v are overdue", at, ok, m.now, workers)
	}
	for _, w := range workers {
		held := m.q.Held(w)
		if len(held) == 0 {
			t.Fatalf("worker %d is overdue and holds nothing", w)
		}
		before := m.leases[held[0].ID]
		limit := max(m.policy.Timeout, 3*m.q.longest)
		if held[0].Slow != min(before.Slow+1, 6) || m.now.Sub(m.touched[w]) < limit<<before.Slow {
			t.Fatalf("worker %d is overdue at %v with %+v, its last progress was at %v; before %+v", w,
				m.now, held[0], m.touched[w], before)
		}
		before.Slow = held[0].Slow
		m.leases[before.ID] = before
		m.touched[w] = m.now
		if rapid.Bool().Draw(t, "end it") {
			m.lose(w, nil, "")
		}
	}
	if at, ok := m.q.Deadline(); ok && !m.now.Before(at) {
		t.Fatalf("still due at %v, now %v", at, m.now)
	}
}

// Stale reports about a lease that is not held, or is held by another worker.
func (m *model) Stale(t *rapid.T) {
	id, w := int64(1e6), 0
	if len(m.settled) > 0 && rapid.Bool().Draw(t, "settled") {
		l := rapid.SampledFrom(m.settled).Draw(t, "lease")
		id, w = l.ID, l.Worker
	} else if len(m.leases) > 0 {
		l := m.lease()
		id, w = l.ID, l.Worker+1
	}
	before := m.q.Stats()
	for _, err := range []error{
		m.q.Done(id, w, m.now),
		m.q.Fail(id, w, "late", m.now),
		m.q.Touch(id, w, 1, m.now),
		m.q.Work(id, w, 1<<40, m.now),
		m.q.Return(id, w, "late", m.now),
	} {
		if !errors.Is(err, ErrStale) {
			t.Fatalf("report on lease %d by worker %d: %v", id, w, err)
		}
	}
	if after := m.q.Stats(); before != after {
		t.Fatalf("stale reports changed %v to %v", before, after)
	}
}

func (m *model) NextEpoch(t *rapid.T) {
	if !m.q.Settled() {
		t.Skip("not settled")
	}
	s := m.q.Stats()
	if int64(len(m.credited)) != s.EpochTotal {
		t.Fatalf("%d records credited, %v", len(m.credited), s)
	}
	more := m.q.NextEpoch()
	if more != m.twin.NextEpoch() || more == m.q.TrainingDone() {
		t.Fatalf("another epoch: %t; training done: %t", more, m.q.TrainingDone())
	}
	if more {
		m.epoch()
		return
	}
	if s := m.q.Stats(); s.Done != s.Total && s.Total > 0 || s.Skipped > 0 && s.Done != m.policy.MaxRecords {
		t.Fatalf("training is done with %d records of %d, %d skipped", s.Done, s.Total, s.Skipped)
	}
}

func (m *model) Evaluate(t *rapid.T) {
	m.version++
	shards := []Shard{{Name: "test", Start: 0, Count: 3}}
	n := m.q.Evaluate(m.version, shards)
	if m.twin.Evaluate(m.version, shards) != n || int64(n) != (2+m.policy.RecordsPerTask)/m.policy.RecordsPerTask {
		t.Fatalf("%d evaluation tasks", n)
	}
}

func (m *model) Predict(t *rapid.T) {
	m.version++
	shards := []Shard{{Name: "new", Start: 0, Count: 4}}
	n := m.q.Predict(m.version, shards)
	if m.twin.Predict(m.version, shards) != n || int64(n) != (3+m.policy.RecordsPerTask)/m.policy.RecordsPerTask {
		t.Fatalf("%d prediction tasks", n)
	}
}

func (m *model) withdrawn(version int64) {
	for _, l := range m.leases {
		if l.Kind == Evaluation && l.Version == version {
			m.end(l)
		}
	}
}

func (m *model) Withdraw(t *rapid.T) {
	l := m.lease()
	if l.Kind != Evaluation {
		t.Skip("not an evaluation")
	}
	m.both(func(q *Queue) error { q.Withdraw(l.Version, m.now); return nil })
	prefix := fmt.Sprintf("evaluation[v=%d]", l.Version)
	for _, count := range []map[string]int{m.counted, m.returned} {
		maps.DeleteFunc(count, func(name string, _ int) bool { return strings.HasPrefix(name, prefix) })
	}
	m.withdrawn(l.Version)
}

func (m *model) Export(t *rapid.T) {
	if m.exports++; m.exports > 1 {
		t.Skip("once")
	}
	m.both(func(q *Queue) error { q.Export(0, 0); return nil })
}

// saved is the content of a checkpoint.
type saved struct {
	ledger ledger.Ledger
	// by record: how often it was credited in the open epoch
	credited map[record]int
}

// Save makes a checkpoint of the records that are credited now, or of a few less: a holder of the
// model may be behind, by less than an epoch.
func (m *model) Save(t *rapid.T) {
	if m.q.TrainingDone() {
		t.Skip("not in an epoch")
	}
	kept := saved{credited: make(map[record]int)}
	epoch := m.q.Stats().Epoch
	kept.ledger.Settle(epoch - 1)
	for place := range m.q.training.end {
		task := m.q.training.at(place)
		var had int64
		order := m.policy.Order(task)
		for had < task.Records() && m.credited[record{task.Shard, order[had]}] == 1 {
			had++
		}
		had -= min(had, rapid.SampledFrom([]int64{0, 0, 0, 1, 2, 100}).Draw(t, "behind"))
		kept.ledger.Add(ledger.Task{Epoch: epoch, Number: task.Number}, had, task.Records())
		for _, i := range order[:had] {
			kept.credited[record{task.Shard, i}] = 1
		}
	}
	m.kept = append(m.kept, kept)
}

// Rewind sometimes sets the training back to a checkpoint or to the beginning.
func (m *model) Rewind(t *rapid.T) {
	if rapid.IntRange(0, 5).Draw(t, "rewind") > 0 {
		t.Skip("rarely")
	}
	to := rapid.SampledFrom(append(m.kept, saved{})).Draw(t, "to")
	requeued := m.q.Stats().Requeued + len(m.leases)
	m.both(func(q *Queue) error { return q.Rewind(&to.ledger) })
	for _, id := range slices.Sorted(maps.Keys(m.leases)) {
		m.end(m.leases[id])
	}
	clear(m.counted)
	clear(m.returned)
	m.exports, m.closed = 0, true
	m.epoch()
	maps.Copy(m.credited, to.credited)
	s := m.q.Stats()
	done := int64(to.ledger.Settled())*m.q.cut.records + int64(len(to.credited))
	if s.Epoch != to.ledger.Settled()+1 || s.Done != done || s.Leased+s.Evaluating > 0 || s.Requeued != requeued {
		t.Fatalf("back at %+v, which took %d leases back: %v", to, requeued, s)
	}
}

// Check checks what holds after every step.
func (m *model) Check(t *rapid.T) {
	s := m.q.Stats()
	if sum := s.Todo + s.Leased + s.Settled; sum != m.total {
		t.Fatalf("%d tasks of %d: %v", sum, m.total, s)
	}
	if s != m.twin.Stats() {
		t.Fatalf("same calls, other state: %v and %v", s, m.twin.Stats())
	}
	leased, holders := 0, make(map[int]bool)
	for _, l := range m.leases {
		if l.Kind == Training {
			leased++
			holders[l.Worker] = true
		}
	}
	if s.Leased != leased || m.q.Holders() != len(holders) {
		t.Fatalf("%d leased, %d holders; the model has %d, %d", s.Leased, m.q.Holders(), leased, len(holders))
	}
	for w := range 4 {
		var held []Lease
		for _, id := range slices.Sorted(maps.Keys(m.leases)) {
			if l := m.leases[id]; l.Worker == w {
				held = append(held, l)
			}
		}
		m.same("held", m.q.Held(w), held)
	}
	floor := m.q.Floor()
	if !m.closed {
		if floor != 1 {
			t.Fatalf("floor %d, and leases of before may be announced", floor)
		}
		floor = 0
	}
	for _, l := range m.settled[max(0, len(m.settled)-10):] {
		if l.ID == floor {
			t.Fatalf("floor %d, which is settled", floor)
		}
	}
	for id := range m.leases {
		if id < floor {
			t.Fatalf("floor %d, lease %d is held", floor, id)
		}
	}
	if m.closed && len(m.leases) == 0 && floor != m.q.lastID+1 {
		t.Fatalf("floor %d with nothing held, the last lease was %d", floor, m.q.lastID)
	}
	m.remaining(s)
	for r, n := range m.credited {
		if n != 1 {
			t.Fatalf("record %v was credited %d times", r, n)
		}
	}
	if s.EpochDone != int64(len(m.credited)) {
		t.Fatalf("%d records done of the epoch, the model has %d", s.EpochDone, len(m.credited))
	}
	err := m.q.Err()
	if (err != nil) != (m.fatal != "") {
		t.Fatalf("queue says %v, the model %q", err, m.fatal)
	}
	if err != nil && !strings.HasSuffix(err.Error(), m.fatal) {
		t.Fatalf("%v does not tell the reason %q", err, m.fatal)
	}
	if settled := s.Todo == 0 && leased == 0 && !m.q.TrainingDone(); settled != m.q.Settled() {
		t.Fatalf("settled: %t, %v", m.q.Settled(), s)
	}
	if finished := err == nil && m.q.TrainingDone() && s.Evaluating == 0; finished != m.q.Finished() {
		t.Fatalf("finished: %t, %v", m.q.Finished(), s)
	}
}

// remaining compares the tasks that are not settled with those of the epoch.
func (m *model) remaining(s Stats) {
	first, n := m.q.Remaining()
	if n != s.Todo+s.Leased {
		m.t.Fatalf("%d tasks remain, %v", n, s)
	}
	if n == 0 {
		return
	}
	var rest int64
	var waits []Task
	waits = append(append(waits, m.q.training.again...), m.q.training.later...)
	for passed := m.q.training.next; passed < m.q.training.end; passed++ {
		if task, ok := m.q.training.left(m.q.training.position(passed)); ok {
			waits = append(waits, task)
		}
	}
	for _, l := range m.leases {
		if l.Kind == Training {
			waits = append(waits, l.Task)
		}
	}
	least := waits[0]
	for _, task := range waits {
		rest += task.Records() - task.Done
		if task.Number < least.Number {
			least = task
		}
	}
	if rest != s.EpochTotal-s.EpochDone || len(waits) != n || first != least {
		m.t.Fatalf("%d records remain, %v; first %v of %v", rest, s, first, waits)
	}
}
