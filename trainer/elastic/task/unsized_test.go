package task

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
)

// shelf is a queue of shards of unknown length, with a simple model: the number of records of each
// shard that were credited in the open epoch.
type shelf struct {
	t       *rapid.T
	q       *Queue
	policy  Policy
	shards  []Shard
	lengths []int64
	had     []int64
	ended   map[int]bool
	epoch   int
	// records of the epochs before, and their number by epoch
	before int64
	at     time.Time
	// number of masters
	masters int
	held    []Lease
}

func newShelf(t *rapid.T) *shelf {
	s := &shelf{t: t, lengths: rapid.SliceOfN(rapid.Int64Range(0, 4), 1, 6).Draw(t, "lengths"), epoch: 1,
		at: time.Unix(1e9, 0), masters: 1, ended: make(map[int]bool)}
	s.policy = Policy{RecordsPerTask: 1, Epochs: rapid.IntRange(1, 3).Draw(t, "epochs"), Unsized: true,
		Shuffle: rapid.Bool().Draw(t, "shuffle"), Seed: 3}
	s.shards = []Shard{{Name: "shards", Count: int64(len(s.lengths))}}
	s.had = make([]int64, len(s.lengths))
	var err error
	if s.q, err = New(s.shards, s.policy); err != nil {
		t.Fatal(err)
	}
	return s
}

// enter counts what the queue has credited. Each stretch begins where the one before ended.
func (s *shelf) enter() {
	for _, c := range s.q.Credits() {
		number := c.Task.Number
		if c.Task.Epoch != s.epoch || c.From != s.had[number] || s.ended[number] || c.Records() < 0 {
			s.t.Fatalf("credited [%d, %d) of %v after %d records, ended %t", c.From, c.To, c.Task, s.had[number],
				s.ended[number])
		}
		s.had[number] = ledger.Count(c.To)
		s.ended[number] = ledger.Ended(c.To)
	}
	s.hold(s.q.Stats())
}

func (s *shelf) hold(stats Stats) {
	done := int64(0)
	for _, n := range s.had {
		done += n
	}
	if stats.EpochDone != done || stats.Done != s.before+done || stats.Total != 0 || stats.EpochTotal != 0 {
		s.t.Fatalf("%d of %d records in the epoch, %d of %d in all; want %d, %d and no totals", stats.EpochDone,
			stats.EpochTotal, stats.Done, stats.Total, done, s.before+done)
	}
	whole := 0
	for _, is := range s.ended {
		if is {
			whole++
		}
	}
	if settled := s.q.Settled(); settled && whole < len(s.lengths) {
		s.t.Fatalf("the epoch is settled after %d of %d shards", whole, len(s.lengths))
	}
}

// draw returns a held lease, and a count that is possible for it.
func (s *shelf) draw() (l Lease, count int64) {
	if len(s.held) == 0 {
		s.t.Skip("nothing is leased")
	}
	l = rapid.SampledFrom(s.held).Draw(s.t, "lease")
	length := s.lengths[l.Number]
	count = rapid.Int64Range(s.had[l.Number], length+1).Draw(s.t, "count")
	if count > length {
		count = ledger.End + length
	}
	return l, count
}

func (s *shelf) Lease(t *rapid.T) {
	l, ok := s.q.Lease(rapid.IntRange(0, 2).Draw(t, "worker"), s.at)
	if !ok {
		if s.q.Stats().Todo > 0 {
			t.Fatal("no lease, although shards wait")
		}
		return
	}
	if !l.Unsized || l.Start != int64(l.Number) || l.Done != s.had[l.Number] || s.ended[l.Number] {
		t.Fatalf("lease %+v after %d records, ended %t", l, s.had[l.Number], s.ended[l.Number])
	}
	s.held = append(s.held, l)
}

func (s *shelf) Touch(t *rapid.T) {
	l, count := s.draw()
	if err := s.q.Touch(l.ID, l.Worker, count, s.at); err != nil {
		t.Fatal(err)
	}
	s.enter()
}

func (s *shelf) Done(t *rapid.T) {
	l, _ := s.draw()
	err := s.q.Done(l.ID, l.Worker, s.at)
	if is := s.ended[l.Number]; is != (err == nil) {
		t.Fatalf("done with its end reported %t: %v", is, err)
	}
	if err == nil {
		s.held = slices.DeleteFunc(s.held, func(h Lease) bool { return h.ID == l.ID })
	}
	s.enter()
}

func (s *shelf) Lose(*rapid.T) {
	l, count := s.draw()
	s.q.Lose(l.Worker, map[int64]int64{l.ID: count}, "", s.at)
	s.held = slices.DeleteFunc(s.held, func(h Lease) bool { return h.Worker == l.Worker })
	s.enter()
}

func (s *shelf) NextEpoch(t *rapid.T) {
	if !s.q.Settled() {
		t.Skip("not settled")
	}
	more := s.q.NextEpoch()
	if more != (s.epoch < s.policy.Epochs) {
		t.Fatalf("another epoch after %d of %d: %t", s.epoch, s.policy.Epochs, more)
	}
	if !more {
		if s.hold(s.q.Stats()); !s.q.TrainingDone() {
			t.Fatal("the training is not done")
		}
		t.Skip("the training is done")
	}
	for i, n := range s.had {
		s.before += n
		s.had[i] = 0
	}
	clear(s.ended)
	s.epoch++
	s.hold(s.q.Stats())
}

// ledger returns the records that are credited; with late, the end of the epochs before is not
// known to the holders of the model, which still list them.
func (s *shelf) ledger() *ledger.Ledger {
	l := new(ledger.Ledger)
	l.SettleCounted(s.epoch-1, s.before)
	for number, n := range s.had {
		if s.ended[number] {
			n += ledger.End
		}
		l.Add(ledger.Task{Epoch: s.epoch, Number: number}, n, ledger.End)
	}
	return l
}

// Restart has another master take over, with the snapshot of now, and adopt some leases.
func (s *shelf) Restart(t *rapid.T) {
	if s.q.TrainingDone() {
		t.Skip("the training is done")
	}
	s.masters++
	q, err := Restore(s.shards, s.policy, s.ledger(), s.q.Snapshot(), s.masters)
	if err != nil {
		t.Fatal(err)
	}
	s.q = q
	var kept []Lease
	for _, l := range s.held {
		if s.ended[l.Number] || rapid.Bool().Draw(t, "forget") {
			continue
		}
		task := ledger.Task{Epoch: l.Epoch, Number: l.Number}
		if _, err := q.Adopt(l.ID, l.Worker, task, s.had[l.Number], s.at); err != nil {
			t.Fatal(err)
		}
		kept = append(kept, l)
	}
	s.held = kept
	q.Announced()
	s.hold(q.Stats())
}

// Rewind sets the queue back to a ledger with fewer records.
func (s *shelf) Rewind(t *rapid.T) {
	if s.q.TrainingDone() {
		t.Skip("the training is done")
	}
	for i, n := range s.had {
		if rapid.Bool().Draw(t, "less") {
			s.had[i], s.ended[i] = rapid.Int64Range(0, n).Draw(t, "count"), false
		}
	}
	if err := s.q.Rewind(s.ledger()); err != nil {
		t.Fatal(err)
	}
	s.held = nil
	s.hold(s.q.Stats())
}

func (s *shelf) Check(t *rapid.T) {
	whole := 0
	for _, is := range s.ended {
		if is {
			whole++
		}
	}
	if all := whole == len(s.lengths) && len(s.held) == 0; all != s.q.Settled() && !s.q.TrainingDone() {
		t.Fatalf("%d of %d shards have ended, %d leases are held: settled %t", whole, len(s.lengths), len(s.held), !all)
	}
}

// Each record of each shard of unknown length is credited once per epoch, an epoch ends when the
// ends of all shards are reported, and the counts survive restarts and rewinds.
func TestUnsized(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { t.Repeat(rapid.StateMachineActions(newShelf(t))) })
}

// A holder of the model may list an epoch whose end it does not know of, although it has all of it:
// its records are counted.
func TestUnsizedLateLedger(t *testing.T) {
	p := Policy{RecordsPerTask: 1, Epochs: 3, Unsized: true}
	q, err := New([]Shard{{Name: "shards", Count: 2}}, p)
	if err != nil {
		t.Fatal(err)
	}
	l := new(ledger.Ledger)
	for number, n := range []int64{ledger.End + 7, ledger.End} {
		l.Add(ledger.Task{Epoch: 1, Number: number}, n, ledger.End)
	}
	l.Add(ledger.Task{Epoch: 2, Number: 1}, 3, ledger.End)
	if err := q.Rewind(l); err != nil {
		t.Fatal(err)
	}
	if s := q.Stats(); s.Epoch != 2 || s.Done != 10 || s.EpochDone != 3 || s.Todo != 2 {
		t.Errorf("%+v, want epoch 2, and 10 records, 3 of them in this epoch", s)
	}
	if n, err := q.Records(l); err != nil || n != 10 {
		t.Errorf("%d records, %v, want 10", n, err)
	}
	whole := new(ledger.Ledger)
	whole.SettleCounted(2, 16)
	if err := q.Rewind(whole); err != nil || q.Stats().Done != 16 {
		t.Errorf("%d records at the end of the second epoch, %v, want 16", q.Stats().Done, err)
	}
	whole.Settle(4)
	if q.Rewind(whole) == nil {
		t.Error("a ledger of 4 epochs was accepted by a training of 3")
	}
}

// A ledger in which an epoch is settled does not have the length of a shard: the records of the
// shard that were credited before stay counted.
func TestUnsizedEndWithoutLength(t *testing.T) {
	q, err := New([]Shard{{Name: "shards", Count: 2}}, Policy{RecordsPerTask: 1, Epochs: 1, Unsized: true})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(0, 0)
	l, _ := q.Lease(1, now)
	if err := q.Touch(l.ID, 1, 17, now); err != nil {
		t.Fatal(err)
	}
	q.Lose(1, map[int64]int64{l.ID: ledger.End}, "", now)
	if s := q.Stats(); s.Done != 17 || s.Settled != 1 {
		t.Errorf("%+v, want 17 records and a settled shard", s)
	}
}
