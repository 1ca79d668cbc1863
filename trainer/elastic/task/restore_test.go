package task

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
)

// orphan is a lease of an earlier master, with the progress that its worker knows.
type orphan struct {
	Lease
	knows int64
}

// hint is a stored snapshot, with the state of the model at that time.
type hint struct {
	Snapshot
	counted, returned map[string]int
	fatal             string
}

func (m *model) hint() hint {
	return hint{m.q.Snapshot(), maps.Clone(m.counted), maps.Clone(m.returned), m.fatal}
}

// Hint stores a snapshot, which is older than the master's end.
func (m *model) Hint(*rapid.T) { m.hints = append(m.hints, m.hint()) }

// Restart replaces the master by another that has the ledger of the model, and a hint that may be
// old.
func (m *model) Restart(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "restart") > 0 {
		t.Skip("rarely")
	}
	ahead := func(rest int64) int64 { return rapid.Int64Range(0, rest).Draw(t, "in the model, and not heard of") }
	m.restart(rapid.SampledFrom(
		append(m.hints, m.hint(),
			hint{counted: make(map[string]int), returned: make(map[string]int)})).Draw(t, "hint"), ahead)
	if m.version > 0 && rapid.Bool().Draw(t, "the evaluation is due again") {
		m.version--
	}
}

// restart replaces the master. More of each leased task may be in the model than was credited.
func (m *model) restart(h hint, ahead func(rest int64) int64) {
	l := m.inModel(ahead)
	for _, id := range slices.Sorted(maps.Keys(m.leases)) {
		if it := m.leases[id]; it.Kind == Training {
			m.orphans = append(m.orphans, orphan{it, it.Done + ahead(it.Records()-it.Done)})
		}
		m.end(m.leases[id])
	}
	m.incarnation++
	for _, q := range []**Queue{&m.q, &m.twin} {
		text, err := json.Marshal(h.Snapshot)
		m.check(err)
		var s Snapshot
		m.check(json.Unmarshal(text, &s))
		policy := (*q).policy
		*q, err = Restore(m.shards, policy, l, s, m.incarnation)
		m.check(err)
	}
	m.counted, m.returned, m.fatal, m.exports, m.closed = maps.Clone(h.counted), maps.Clone(h.returned),
		h.fatal, 0, false
	m.adopted = make(map[int64]bool)
	current := fmt.Sprintf(", epoch %d", m.q.epoch)
	for _, count := range []map[string]int{m.counted, m.returned} {
		maps.DeleteFunc(count, func(name string, _ int) bool {
			return strings.HasPrefix(name, "training") && !strings.HasSuffix(name, current)
		})
	}
}

// inModel returns the ledger of a model that has all credited records and perhaps more of leased
// tasks, and credits those.
func (m *model) inModel(ahead func(rest int64) int64) *ledger.Ledger {
	l := new(ledger.Ledger)
	epoch := m.q.Stats().Epoch
	if m.q.TrainingDone() {
		l.Settle(epoch)
		return l
	}
	l.Settle(epoch - 1)
	for place := range m.q.training.end {
		task := m.q.training.at(place)
		had := m.prefix(task)
		if m.holder(task) >= 0 {
			more := ahead(task.Records() - had)
			for _, i := range m.policy.Order(task)[had : had+more] {
				m.credited[record{task.Shard, i}]++
			}
			had += more
		}
		l.Add(ledger.Task{Epoch: epoch, Number: task.Number}, had, task.Records())
		if had == task.Records() {
			m.over[task.String()] = true
		}
	}
	return l
}

// prefix returns how many records from the beginning of a task are credited.
func (m *model) prefix(t Task) (n int64) {
	order := m.policy.Order(t)
	for n < t.Records() && m.credited[record{t.Shard, order[n]}] > 0 {
		n++
	}
	return n
}

// holder returns the worker that holds a lease of a training task, -1 if none does.
func (m *model) holder(t Task) int {
	for _, l := range m.leases {
		if l.Kind == Training && l.Number == t.Number {
			return l.Worker
		}
	}
	return -1
}

// Announce announces a lease of an earlier master, once or several times.
func (m *model) Announce(t *rapid.T) {
	if len(m.orphans) == 0 {
		t.Skip("nothing is held from before")
	}
	o := rapid.SampledFrom(m.orphans).Draw(t, "lease of before")
	o.knows += rapid.Int64Range(0, o.Records()-o.knows).Draw(t, "meanwhile")
	m.announce(o)
}

func (m *model) announce(o orphan) {
	number := ledger.Task{Epoch: o.Epoch, Number: o.Number}
	held, again := m.leases[o.ID]
	before := m.q.Stats()
	got, err := m.q.Adopt(o.ID, o.Worker, number, o.knows, m.now)
	twin, _ := m.twin.Adopt(o.ID, o.Worker, number, o.knows, m.now)
	if got != twin {
		m.t.Fatalf("same calls, other lease: %v and %v", got, twin)
	}
	if again {
		m.check(err)
		if o.knows > m.reported[o.ID] {
			m.reported[o.ID], m.touched[o.Worker] = o.knows, m.now
		}
		m.credit(held, o.knows)
		m.leases[o.ID] = held.upTo(o.knows)
		return
	}
	refused := m.closed || m.q.TrainingDone() || o.Epoch != before.Epoch || m.over[o.Task.String()] ||
		m.holder(o.Task) >= 0 || m.adopted[o.ID]
	if refused {
		if !errors.Is(err, ErrStale) || m.q.Stats() != before {
			m.t.Fatalf("%v is adopted: %v, %v, %v before", o, err, m.q.Stats(), before)
		}
		return
	}
	m.check(err)
	had := m.prefix(o.Task)
	want := o.Lease
	want.Done = max(had, o.knows)
	if got.ID != o.ID || got.Worker != o.Worker || got.String() != want.String() ||
		got.Done != want.Done || got.Number != o.Number || got.Attempts != m.counted[o.Task.String()] {
		m.t.Fatalf("adopted %+v of %+v, of which %d are had, counted %d", got, o, had, m.counted[o.Task.String()])
	}
	want.Done = had
	m.credit(want, o.knows)
	if len(m.q.Held(o.Worker)) == 1 {
		m.touched[o.Worker] = m.now
	}
	m.leases[o.ID], m.reported[o.ID], m.adopted[o.ID] = got, max(got.Done, o.knows), true
	m.settled = slices.DeleteFunc(m.settled, func(l Lease) bool { return l.ID == o.ID })
}

// AnnounceImpossible announces leases that no worker can have.
func (m *model) AnnounceImpossible(t *rapid.T) {
	if m.q.TrainingDone() {
		t.Skip("not in an epoch")
	}
	before, epoch := m.q.Stats(), m.q.epoch
	for _, bad := range []struct {
		lease int64
		task  ledger.Task
		done  int64
	}{
		{m.q.lastID + 1, ledger.Task{Epoch: epoch}, 0}, // an id that was not given out yet
		{0, ledger.Task{Epoch: epoch}, 0},
		{1, ledger.Task{Epoch: epoch, Number: -1}, 0},
		{1, ledger.Task{Epoch: epoch, Number: m.q.cut.tasks}, 0},
		{1, ledger.Task{Epoch: epoch + 1}, 0},
		{1, ledger.Task{Epoch: epoch}, 1 << 40},
		{1, ledger.Task{Epoch: epoch}, -1},
	} {
		if got, err := m.q.Adopt(bad.lease, 9, bad.task, bad.done, m.now); err == nil || m.q.Stats() != before {
			t.Fatalf("%+v is adopted: %v", bad, got)
		}
	}
}

// Announced ends the time in which leases of earlier masters are adopted.
func (m *model) Announced(t *rapid.T) {
	if rapid.IntRange(0, 5).Draw(t, "all have announced") > 0 {
		t.Skip("rarely")
	}
	m.q.Announced()
	m.twin.Announced()
	m.closed = true
}

// Replace replaces the master by one with the newest snapshot, to which all workers announce their
// leases. It must act as the one before (law 13).
func (m *model) Replace(t *rapid.T) {
	for _, id := range slices.Sorted(maps.Keys(m.leases)) {
		// they are due again, or settled
		if l := m.leases[id]; l.Kind != Training || l.Done == l.Records() {
			t.Skip("something is held that is not announced")
		}
	}
	waiting := slices.Concat(m.q.training.again, m.q.training.later)
	if m.q.evaluating() > 0 || slices.ContainsFunc(waiting, func(t Task) bool { return t.Done == t.Records() }) {
		t.Skip("evaluations begin again; what failed with all of it in the model is settled")
	}
	saved := m.q
	held, longest := maps.Clone(m.leases), saved.longest
	m.restart(m.hint(), func(int64) int64 { return 0 })
	for _, o := range m.orphans {
		if l, ok := held[o.ID]; ok {
			o.knows = l.Done
			m.announce(o)
		}
	}
	were := saved.Stats()
	were.Measured, were.ToMeasure = 0, 0 // evaluations are not restored
	if a, b := were, m.q.Stats(); a != b {
		t.Fatalf("saved %v\nrestored %v", a, b)
	}
	for w := range 4 {
		m.same("restored", m.q.Held(w), saved.Held(w))
	}
	a, b := saved.Snapshot(), m.q.Snapshot()
	for _, s := range []*Snapshot{&a, &b} {
		slices.SortFunc(s.Tried, func(a, b TriedTask) int { return cmp.Compare(a.Number, b.Number) })
		s.Place = 0
		maps.DeleteFunc(s.Slow, func(_ Kind, n int) bool { return n == 0 })
	}
	if x, y := fmt.Sprintf("%+v", a), fmt.Sprintf("%+v", b); x != y || longest != m.q.longest {
		t.Fatalf("saved %s\nrestored %s", x, y)
	}
	if x, y := fmt.Sprint(saved.Err()), fmt.Sprint(m.q.Err()); x != y {
		t.Fatalf("saved %s\nrestored %s", x, y)
	}
}

// TestRestoreSettlesCompleteEpochs checks that an epoch is settled if a restored ledger has all its
// tasks without marking it complete.
func TestRestoreSettlesCompleteEpochs(t *testing.T) {
	shards, p := []Shard{{Name: "train", Start: 0, Count: 95}}, Policy{RecordsPerTask: 10, Epochs: 9}
	var l ledger.Ledger
	l.Settle(2)
	for epoch := 3; epoch <= 4; epoch++ {
		for number := range 10 {
			l.Add(ledger.Task{Epoch: epoch, Number: number}, 10, 10)
		}
	}
	l.Add(ledger.Task{Epoch: 5, Number: 7}, 4, 10)
	q, err := Restore(shards, p, &l, Snapshot{}, 2)
	must(t, err)
	if s := q.Stats(); q.SettledEpochs() != 4 || s.Epoch != 5 || s.Done != 4*95+4 || s.EpochDone != 4 {
		t.Errorf("%d epochs are settled, %+v", q.SettledEpochs(), s)
	}
	l.Add(ledger.Task{Epoch: 6, Number: 0}, 10, 10)
	if _, err := Restore(shards, p, &l, Snapshot{}, 2); err == nil ||
		!strings.Contains(err.Error(), "the ledger has records of epochs [5 6], and only the first 4 are complete") {
		t.Errorf("two epochs of which something is missing: %v", err)
	}
}

// TestRestoreRefuses checks that impossible snapshots are refused, with errors that say why.
func TestRestoreRefuses(t *testing.T) {
	shards, p := []Shard{{Name: "train", Start: 0, Count: 100}}, Policy{RecordsPerTask: 10, Epochs: 2}
	var other ledger.Ledger
	other.Settle(5)
	for _, tt := range []struct {
		ledger      *ledger.Ledger
		snapshot    Snapshot
		incarnation int
		want        string
	}{
		{new(ledger.Ledger), Snapshot{}, 0, "restore the training: incarnation 0 of the master: want 1 to 2^30-1"},
		{&other, Snapshot{}, 1, "rewind the training: the ledger has 5 complete epochs, and the " +
			"training ends after 200 records"},
		{new(ledger.Ledger), Snapshot{Place: -1, Longest: -1, Failed: -1,
			Slow: map[Kind]int{9: 1, Training: 7}, Tried: []TriedTask{{}}}, 1,
			"restore the training: snapshot of the tasks: negative: place -1 in epoch 0\nnegative: " +
				"longest lease -1ns\n" +
				"negative: 0 leases requeued, -1 failed\nlimit of training doubled 7 times, want 0 " +
				"to 6 of a known kind\n" +
				"limit of Kind(9) doubled 1 times, want 0 to 6 of a known kind\n" +
				"impossible tried task {Kind:Kind(0) Epoch:0 Version:0 Number:0 Attempts:0 Returned:0 Slow:0}"},
		{new(ledger.Ledger), Snapshot{Tried: make([]TriedTask, mostTried+1)}, 1, "401 tried tasks, want at most 400"},
	} {
		_, err := Restore(shards, p, tt.ledger, tt.snapshot, tt.incarnation)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %s", tt.snapshot, err, tt.want)
		}
	}
}

// TestSnapshotIsBounded checks that a snapshot fits into 64 KiB, and keeps the tasks that failed
// most often.
func TestSnapshotIsBounded(t *testing.T) {
	shards := []Shard{{Name: strings.Repeat("x", 5000), Start: 1 << 50, Count: 1e9}}
	q, err := New(shards, Policy{RecordsPerTask: 1, Epochs: 9, MaxAttempts: 1 << 30})
	must(t, err)
	q.epoch, q.training.like.Epoch = 1<<30, 1<<30
	for range 3 * mostTried {
		l := lease(t, q, 1<<30, start)
		must(t, q.Fail(l.ID, 1<<30, strings.Repeat("\x01", 5000), start))
	}
	q.training.later[len(q.training.later)-1].Attempts = 1 << 30
	for i := range q.training.later {
		q.training.later[i].Number += 1 << 29
	}
	q.err = errors.New(strings.Repeat("\x01", 5000))
	text, err := json.Marshal(q.Snapshot())
	must(t, err)
	if len(text) > 64<<10 {
		t.Errorf("%d bytes", len(text))
	}
	var s Snapshot
	must(t, json.Unmarshal(text, &s))
	must(t, s.validate())
	again, err := json.Marshal(s)
	must(t, err)
	if !bytes.Equal(text, again) || s.Tried[0].Attempts != 1<<30 {
		t.Errorf("read as another one, or the one that failed most is forgotten: %+v", s.Tried[0])
	}
}

// After a restart, leasing continues at the same place in the order, so that tasks that workers are
// about to announce are leased after those that were not leased yet. Tasks that failed before come
// last.
func TestRestoredOrder(t *testing.T) {
	q := newQueue(t, 6, Policy{RecordsPerTask: 1, Epochs: 1})
	for range 4 {
		lease(t, q, 0, start)
	}
	must(t, q.Fail(2, 0, "bad", start))
	must(t, q.Done(1, 0, start))
	var l ledger.Ledger
	l.Add(ledger.Task{Epoch: 1, Number: 0}, 1, 1)
	back, err := Restore([]Shard{{Name: "train", Start: 0, Count: 6}}, q.policy, &l, q.Snapshot(), 2)
	must(t, err)
	var order []int
	for back.training.len() > 0 {
		order = append(order, lease(t, back, 1, start).Number)
	}
	if want := []int{4, 5, 2, 3, 1}; !slices.Equal(order, want) {
		t.Errorf("%v, want %v", order, want)
	}
	if held := back.Held(1); held[0].ID != 2<<32+1 || held[4].Attempts != 1 {
		t.Errorf("%+v", held)
	}
}

// FuzzRestore checks that any snapshot is refused, or after its restore all records are trained on
// once.
func FuzzRestore(f *testing.F) {
	for _, s := range []Snapshot{
		{},
		{Epoch: 1, Place: 3, Longest: time.Second, Requeued: 2, Failed: 1,
			Slow: map[Kind]int{Training: 2}, Tried: []TriedTask{{Training, 1, 0, 2, 1, 2, 1},
				{Evaluation, 0, 5, 0, 1, 0, 0}}},
		{Err: "bad data"},
	} {
		text, err := json.Marshal(s)
		must(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var s Snapshot
		if json.Unmarshal(text, &s) != nil {
			return
		}
		var l ledger.Ledger
		l.Add(ledger.Task{Epoch: 1, Number: 1}, 3, 10)
		q, err := Restore([]Shard{{Name: "train", Start: 0, Count: 95}},
			Policy{RecordsPerTask: 10, Epochs: 1}, &l, s, 2)
		if err != nil || q.Err() != nil {
			return
		}
		q.Evaluate(5, []Shard{{Name: "test", Start: 0, Count: 20}})
		records := q.Stats().Done
		for range 12 {
			l := lease(t, q, 0, start)
			if l.Kind == Training {
				records += l.Records() - l.Done
			}
			must(t, q.Done(l.ID, 0, start))
		}
		after := q.Snapshot()
		if records != 95 || !q.Settled() || after.validate() != nil {
			t.Fatalf("%s: %d records, %v", text, records, q.Stats())
		}
	})
}
