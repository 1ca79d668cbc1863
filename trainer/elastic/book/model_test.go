package book

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
)

// account is a book with a dumb model: how often each record of each task was credited.
type account struct {
	t      *rapid.T
	shards []task.Shard
	policy task.Policy
	b      *Book
	layout *task.Layout
	// times each record was credited, by epoch, task and place
	times map[ledger.Task][]int
	// if the lengths of tasks are unknown: their lengths, and whose end was credited
	lengths []int64
	ended   map[ledger.Task]bool
	// the open epoch
	epoch int
	// ledgers that the model had, to which it may return
	saved []ledger.Ledger
	// records that the model had and lost
	undone int64
}

func newAccount(t *rapid.T) *account {
	a := &account{t: t, epoch: 1, times: make(map[ledger.Task][]int), ended: make(map[ledger.Task]bool)}
	for i := range rapid.IntRange(1, 3).Draw(t, "shards") {
		count := rapid.Int64Range(0, 9).Draw(t, "records")
		a.shards = append(a.shards, task.Shard{Name: fmt.Sprint("shard-", i), Count: count})
	}
	a.shards = append(a.shards, task.Shard{Name: "last", Count: 5})
	a.policy = task.Policy{RecordsPerTask: rapid.Int64Range(1, 4).Draw(t, "each"), Epochs: 3,
		Shuffle: rapid.Bool().Draw(t, "shuffle"), Seed: 7}
	if rapid.Bool().Draw(t, "limited") {
		a.policy.MaxRecords = rapid.Int64Range(1, 60).Draw(t, "most")
	}
	if rapid.Bool().Draw(t, "unsized") {
		a.policy.RecordsPerTask, a.policy.MaxRecords, a.policy.Unsized = 1, 0, true
	}
	a.b = New(Saved{})
	a.plan()
	for range a.layout.Tasks() {
		a.lengths = append(a.lengths, rapid.Int64Range(0, 4).Draw(t, "length"))
	}
	return a
}

// all reports whether all records of a task are credited.
func (a *account) all(t task.Task) bool {
	at := ledger.Task{Epoch: a.epoch, Number: t.Number}
	if t.Unsized {
		return a.ended[at]
	}
	return a.had(at) == t.Records()
}

// count returns the count of the credited records of a task.
func (a *account) count(at ledger.Task) int64 {
	if a.ended[at] {
		return ledger.End + a.had(at)
	}
	return a.had(at)
}

func (a *account) plan() {
	if err := a.b.Plan(a.shards, a.policy); err != nil {
		a.t.Fatal(err)
	}
	var err error
	if a.layout, err = task.NewLayout(a.shards, a.policy); err != nil {
		a.t.Fatal(err)
	}
}

// had returns how many of the first records of a task are credited.
func (a *account) had(at ledger.Task) int64 { return int64(len(a.times[at])) }

// credit enters the next records of a random task of the open epoch, and returns the credit; false:
// there are none.
func (a *account) credit() (task.Credit, bool) {
	var left []task.Task
	for t := range a.layout.Of(a.epoch) {
		if !a.all(t) {
			left = append(left, t)
		}
	}
	if len(left) == 0 {
		return task.Credit{}, false
	}
	one := rapid.SampledFrom(left).Draw(a.t, "task")
	at := ledger.Task{Epoch: a.epoch, Number: one.Number}
	c := task.Credit{Task: at, From: a.had(at)}
	most := one.Records()
	if one.Unsized {
		most = a.lengths[one.Number] + 1
	}
	c.To = rapid.Int64Range(c.From+1, most).Draw(a.t, "to")
	if one.Unsized && c.To == most {
		c.To = ledger.End + most - 1
		a.ended[at] = true
	}
	a.b.Enter(c)
	for range c.Records() {
		a.times[at] = append(a.times[at], 1)
	}
	return c, true
}

// finish ends the open epoch if all of it is credited; it returns false if there is no other.
func (a *account) finish() bool {
	for t := range a.layout.Of(a.epoch) {
		if !a.all(t) {
			return true
		}
	}
	a.b.Finish()
	a.epoch++
	return a.layout.Has(a.epoch)
}

// ledger returns what the model has.
func (a *account) ledger() (l ledger.Ledger) {
	counted := int64(0)
	for at := range a.times {
		if a.policy.Unsized && at.Epoch < a.epoch {
			counted += a.had(at)
		}
	}
	l.SettleCounted(a.epoch-1, counted)
	for t := range a.layout.Of(a.epoch) {
		at := ledger.Task{Epoch: a.epoch, Number: t.Number}
		if n := a.count(at); n > 0 {
			l.Add(at, n, t.Records())
		}
	}
	return l
}

// back returns the model to an earlier ledger.
func (a *account) back() {
	if len(a.saved) == 0 {
		return
	}
	l := rapid.SampledFrom(a.saved).Draw(a.t, "ledger")
	before := a.records()
	a.b.Set(&l)
	a.epoch = a.b.whole(&l) + 1 // all records of an epoch end it, too
	maps.DeleteFunc(a.ended, func(at ledger.Task, _ bool) bool {
		_, whole := l.Progress(at)
		return !whole
	})
	for at := range a.times {
		switch n, whole := l.Progress(at); {
		case whole:
		case n == 0:
			delete(a.times, at)
		default:
			a.times[at] = a.times[at][:n]
		}
	}
	a.undone += before - a.records()
	if a.b.Return == nil || a.b.Return.From-a.b.Return.Undone != a.records() {
		a.t.Fatalf("returned %+v, and there are %d records", a.b.Return, a.records())
	}
	a.saved = nil
}

func (a *account) records() (n int64) {
	for _, of := range a.times {
		n += int64(len(of))
	}
	return n
}

// throughJSON restores the book.
func (a *account) throughJSON() {
	text, err := json.Marshal(a.b.Save())
	if err != nil {
		a.t.Fatal(err)
	}
	var s Saved
	if err := json.Unmarshal(text, &s); err != nil {
		a.t.Fatal(err)
	}
	b := New(s)
	before := a.b
	a.b = b
	a.plan()
	if got, want := b.Save(), before.Save(); !reflect.DeepEqual(texts(a.t, got), texts(a.t, want)) {
		a.t.Fatalf("restored %v, want %v", texts(a.t, got), texts(a.t, want))
	}
}

func texts(t *rapid.T, s Saved) string {
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// step does something; it returns false at the end of the training.
func (a *account) step() bool {
	if !a.layout.Has(a.epoch) {
		return false
	}
	switch rapid.IntRange(0, 9).Draw(a.t, "step") {
	case 0:
		a.throughJSON()
	case 1:
		a.saved = append(a.saved, a.ledger())
	case 2:
		a.back()
	default:
		if _, ok := a.credit(); !ok {
			return a.finish()
		}
	}
	return true
}

// check compares the sums with those of the model.
func (a *account) check() {
	if got := a.b.Records(); got != a.records() {
		a.t.Fatalf("%d records in the book, want %d", got, a.records())
	}
	if a.b.Finished() != a.epoch-1 {
		a.t.Fatalf("%d epochs finished, want %d", a.b.Finished(), a.epoch-1)
	}
	var sum uint64
	for number := range a.layout.Tasks() {
		sum += Factor(a.epoch) * Sum(number, 0, a.count(ledger.Task{Epoch: a.epoch, Number: number}))
	}
	if a.b.Open.Sum != sum {
		a.t.Fatalf("the sum of the open epoch is %d, want %d", a.b.Open.Sum, sum)
	}
	for _, l := range a.b.Lines {
		if !a.b.clean(l) {
			a.t.Fatalf("line %+v is wrong", l)
		}
	}
}

// Laws 2 to 4: a book of records that were credited once, with returns and other masters, has no
// fault and the right sums.
func TestEveryRecordOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := newAccount(t)
		for steps := 0; steps < 300 && a.step(); steps++ {
			a.check()
		}
		a.check()
		if len(a.b.Faults) > 0 || a.b.More > 0 || a.b.Undone != a.undone {
			t.Fatalf("faults %v, %d undone, want %d", a.b.Faults, a.b.Undone, a.undone)
		}
	})
}

// Law 1: a stretch that is credited twice, or never, is named, and makes the sum of its epoch
// wrong.
func TestFaults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := newAccount(t)
		var all []task.Credit
		for a.epoch == 1 {
			c, ok := a.credit()
			if !ok {
				break
			}
			all = append(all, c)
		}
		spoiled := rapid.IntRange(0, len(all)-1).Draw(t, "spoiled")
		of := all[spoiled]
		kind := rapid.SampledFrom([]Kind{Missing, Twice}).Draw(t, "kind")
		late := kind == Twice && rapid.Bool().Draw(t, "late")
		b := New(Saved{})
		if err := b.Plan(a.shards, a.policy); err != nil {
			t.Fatal(err)
		}
		for i, c := range all {
			if i != spoiled || kind == Twice {
				b.Enter(c)
			}
			if i == spoiled && kind == Twice && !late {
				b.Enter(c)
			}
		}
		b.Finish()
		if late { // after the end of the epoch
			b.Enter(of)
		}
		want := Fault{kind, 1, of.Task.Number, of.From, of.To}
		if kind == Missing && ledger.Ended(of.To) {
			want.To = ledger.End // its length is not known
		}
		if len(b.Faults) != 1 || b.Faults[0] != want {
			t.Fatalf("faults %+v, want %+v", b.Faults, want)
		}
		if b.clean(b.Lines[0]) {
			t.Fatalf("the sum of %+v is right", b.Lines[0])
		}
		var done ledger.Ledger
		done.Settle(1)
		if b.Set(&done); len(b.Faults) != 1 {
			t.Fatal("a fault of a record that the model has is dropped")
		}
		b.Set(new(ledger.Ledger))
		if len(b.Faults) != 0 || len(b.Lines) != 0 || kind == Twice && b.Undone == 0 && of.Records() > 0 {
			t.Fatalf("the model has no record, and the book has %+v", b.Saved)
		}
	})
}

// A new master learns from the holders that epochs have ended since the book was saved.
func TestFind(t *testing.T) {
	b := New(Saved{})
	shards := []task.Shard{{Name: "a", Count: 10}}
	if err := b.Plan(shards, task.Policy{RecordsPerTask: 4, Epochs: 5}); err != nil {
		t.Fatal(err)
	}
	b.Enter(task.Credit{Task: ledger.Task{Epoch: 1}, To: 3})
	var l ledger.Ledger
	l.Settle(1)
	// all of epoch 2, although it is not settled
	for n, of := range []int64{4, 4, 2} {
		l.Add(ledger.Task{Epoch: 2, Number: n}, of, of)
	}
	if ended := b.Find(&l); fmt.Sprint(ended) != "[1 2]" || b.Ended != 2 || b.Undone != 0 || len(b.Faults) > 0 {
		t.Errorf("ended %v: %+v", ended, b.Saved)
	}
	if ended := b.Find(&l); len(ended) > 0 || b.Ended != 2 {
		t.Errorf("ended again %v", ended)
	}
	b.Set(&l)
	b.Set(new(ledger.Ledger))
	if b.Undone != 20 || b.Returned != 1 {
		t.Errorf("returned to nothing: %+v", b.Saved)
	}
	if b.Set(&l); b.Undone != 0 || b.Returned != 0 { // its program has read all of it
		t.Errorf("returned to all: %+v", b.Saved)
	}
}

// Law 5: a saved book is small, and the sums of joined lines are right.
func TestBounds(t *testing.T) {
	var shards []task.Shard
	for i := range 3000 {
		shards = append(shards, task.Shard{Name: fmt.Sprint(i), Count: int64(100 + i%2)})
	}
	b := New(Saved{})
	if err := b.Plan(shards, task.Policy{RecordsPerTask: 64}); err != nil {
		t.Fatal(err)
	}
	if !b.Data.Cut || b.Data.Shards != nil {
		t.Errorf("%d groups of shards are kept", len(b.Data.Shards))
	}
	var l ledger.Ledger
	l.Settle(5000)
	b.Set(&l)
	for i := range 2 * MostFaults {
		b.Enter(task.Credit{Task: ledger.Task{Epoch: 4990, Number: i}, To: 1})
	}
	if len(b.Lines) > MostLines || !b.clean(b.Lines[0]) || b.Lines[0].First != 1 || b.Finished() != 5000 {
		t.Errorf("%d lines, the first is %+v", len(b.Lines), b.Lines[0])
	}
	if len(b.Faults) != MostFaults || b.More != MostFaults {
		t.Errorf("%d faults, and %d more", len(b.Faults), b.More)
	}
	l = ledger.Ledger{}
	l.Settle(70)
	if b.Set(&l); b.Finished() != 70 || !b.clean(b.Lines[0]) || len(b.Faults) > 0 {
		t.Errorf("a part of a joined line: %+v", b.Lines)
	}
	text, err := json.Marshal(b.Save())
	if err != nil || len(text) > MostOpen {
		t.Errorf("%d bytes: %v", len(text), err)
	}
}

// The layout of saved data is that of the shards; an impossible one is refused.
func TestData(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := newAccount(t)
		l, err := a.b.Data.Layout()
		if err != nil {
			t.Fatal(err)
		}
		for epoch := range 4 {
			if l.RecordsOf(epoch) != a.layout.RecordsOf(epoch) {
				t.Fatalf("epoch %d has %d records, want %d", epoch, l.RecordsOf(epoch), a.layout.RecordsOf(epoch))
			}
			for one := range a.layout.Of(epoch) {
				if got, ok := l.Task(epoch, one.Number); !ok || got != one {
					t.Fatalf("task %v, want %v", got, one)
				}
			}
		}
		d := *a.b.Data
		switch rapid.IntRange(0, 3).Draw(t, "damage") {
		case 0:
			d.Sum++
		case 1:
			d.Records++
		case 2:
			d.Shards = append(d.Shards, Shards{Records: 1, Times: 1 << 40})
		case 3:
			d.PerTask = 0
		}
		if _, err := d.Layout(); err == nil {
			t.Fatalf("accepted %+v", d)
		}
	})
}

// A ledger has the number of records of a complete epoch no more, if the lengths of tasks are
// unknown. The book has it, also if the model returned to the beginning meanwhile.
func TestCountedEpochs(t *testing.T) {
	b := New(Saved{})
	if err := b.Plan([]task.Shard{{Name: "a", Count: 1}}, task.Policy{RecordsPerTask: 1, Unsized: true}); err != nil {
		t.Fatal(err)
	}
	for epoch := 1; epoch <= 3*MostLines; epoch++ {
		b.Enter(task.Credit{Task: ledger.Task{Epoch: epoch}, To: ledger.End + int64(epoch)})
		b.Finish()
	}
	b = New(b.Save())
	if err := b.Plan([]task.Shard{{Name: "a", Count: 1}}, task.Policy{RecordsPerTask: 1, Unsized: true}); err != nil {
		t.Fatal(err)
	}
	all := b.Records()
	var settled ledger.Ledger
	settled.SettleCounted(3*MostLines-1, all-3*MostLines)
	if b.Set(&settled); b.Records() != all-3*MostLines {
		t.Errorf("%d records without the last epoch, want %d", b.Records(), all-3*MostLines)
	}
	b.Set(new(ledger.Ledger))
	if b.Set(&settled); b.Records() != all-3*MostLines {
		t.Errorf("%d records after the loss of all, and a return, want %d", b.Records(), all-3*MostLines)
	}
	if len(b.Faults) > 0 {
		t.Errorf("faults %v", b.Faults)
	}
}
