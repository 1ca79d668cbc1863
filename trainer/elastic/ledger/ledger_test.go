package ledger

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Tasks of the tests have that many records each.
const records = 3

// dumb is a ledger as a table: how many records of each task are had.
type dumb struct {
	settled int
	merged  map[Task]int64
}

func (d *dumb) get(t Task) int64 {
	if t.Epoch <= d.settled {
		return records
	}
	return d.merged[t]
}

var numbers = []int{0, 1, 2, 63, 64, 200}

// unsized reports whether the length of a task is unknown until its end is read.
func unsized(t Task) bool { return t.Number == 2 || t.Number == 63 }

func tasks() (all []Task) {
	for epoch := 1; epoch <= 4; epoch++ {
		for _, n := range numbers {
			all = append(all, Task{epoch, n})
		}
	}
	return all
}

// agree asserts that a ledger has what the table has.
func agree(t *rapid.T, l *Ledger, d *dumb) {
	for _, task := range tasks() {
		n, whole := l.Progress(task)
		if whole && unsized(task) && task.Epoch > l.Settled() && n != records {
			t.Fatalf("%v: its length is %d, want %d", task, n, records)
		}
		if whole {
			n = records
		}
		if n != d.get(task) {
			t.Fatalf("%v: %d records are had, want %d", task, n, d.get(task))
		}
	}
	for epoch := 1; epoch <= 4; epoch++ {
		whole, highest, parts := 0, -1, make(map[int]int64)
		for _, n := range numbers {
			switch had := d.get(Task{epoch, n}); {
			case epoch <= l.Settled():
				continue
			case had == records:
				whole++
			case had > 0:
				parts[n] = had
			default:
				continue
			}
			highest = n
		}
		if l.Whole(epoch) != whole || l.Highest(epoch) != highest || !maps.Equal(l.Parts(epoch), parts) {
			t.Fatalf("epoch %d: %d tasks whole, parts %v, the highest is %d; want %d, %v, %d",
				epoch, l.Whole(epoch), l.Parts(epoch), l.Highest(epoch), whole, parts, highest)
		}
	}
}

// draw makes a ledger by random calls, and its table.
func draw(t *rapid.T) (*Ledger, *dumb) {
	l, d := new(Ledger), &dumb{merged: make(map[Task]int64)}
	for range rapid.IntRange(0, 30).Draw(t, "calls") {
		task := rapid.SampledFrom(tasks()).Draw(t, "task")
		if rapid.IntRange(0, 9).Draw(t, "settle") == 0 {
			l.Settle(task.Epoch - 2)
			d.settled = max(d.settled, task.Epoch-2)
			continue
		}
		n := rapid.Int64Range(0, records).Draw(t, "records")
		switch {
		case !unsized(task):
			l.Add(task, n, records)
		case n == records:
			l.Add(task, End+n, End)
		default:
			l.Add(task, n, End)
		}
		d.merged[task] = max(d.merged[task], n)
	}
	agree(t, l, d)
	return l, d
}

func TestLedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, da := draw(t)
		b, db := draw(t)
		covers := true
		both := &dumb{settled: max(da.settled, db.settled), merged: make(map[Task]int64)}
		for _, task := range tasks() {
			both.merged[task] = max(da.get(task), db.get(task))
			covers = covers && da.get(task) >= db.get(task)
		}
		// how many tasks an epoch has is not known: only a settled one is complete
		if da.settled < db.settled {
			covers = false
		}
		if got := a.Covers(b); got != covers {
			t.Fatalf("covers: %t, want %t", got, covers)
		}
		u := a.Clone()
		u.Union(b)
		agree(t, &u, both)
		agree(t, a, da)
		if !u.Covers(a) || !u.Covers(b) {
			t.Fatal("the union does not cover what it was made of")
		}
		least := &dumb{settled: min(da.settled, db.settled), merged: make(map[Task]int64)}
		for _, task := range tasks() {
			least.merged[task] = min(da.get(task), db.get(task))
		}
		i := a.Clone()
		i.Intersect(b)
		agree(t, &i, least)
		agree(t, a, da)
		agree(t, b, db)
		if !a.Covers(&i) || !b.Covers(&i) {
			t.Fatal("the intersection has what one of the two has not")
		}
		if back, err := Parse(i.Append(nil)); err != nil || !back.Covers(&i) || !i.Covers(&back) {
			t.Fatalf("the intersection is written and read as another ledger: %v", err)
		}
		i.Add(Task{4, 0}, 1, records) // what it was made of is not changed
		agree(t, a, da)
		agree(t, b, db)
		back, err := Parse(u.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		agree(t, &back, both)
		if !bytes.Equal(back.Append(nil), u.Append(nil)) {
			t.Fatal("the same ledger is written in other bytes")
		}
	})
}

// A ledger has the number of records of shards of unknown length in complete epochs, if it had the
// ends of the shards, or is made of a ledger that has the number.
func TestCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lengths := rapid.SliceOfN(rapid.Int64Range(0, 9), 3, 3).Draw(t, "lengths")
		each := int64(0)
		for _, n := range lengths {
			each += n
		}
		holder := func(name string) (*Ledger, int) {
			l, settled := new(Ledger), rapid.IntRange(0, 4).Draw(t, name)
			for epoch := 1; epoch <= settled+1; epoch++ {
				for number, n := range lengths {
					if epoch <= settled {
						n += End
					}
					l.Add(Task{epoch, number}, n, End)
				}
				if epoch <= settled && rapid.Bool().Draw(t, "settle") {
					l.Settle(epoch)
				}
			}
			l.Settle(settled)
			return l, settled
		}
		check := func(l *Ledger, settled int) {
			t.Helper()
			if want := int64(settled) * each; l.Settled() != settled || l.Counted() != want {
				t.Fatalf("%d records in %d epochs, want %d in %d", l.Counted(), l.Settled(), want, settled)
			}
		}
		a, more := holder("a")
		b, less := holder("b")
		if more < less {
			a, b, more, less = b, a, less, more
		}
		check(a, more)
		for _, pair := range [][2]*Ledger{{a, b}, {b, a}} {
			u, i := pair[0].Clone(), pair[0].Clone()
			u.Union(pair[1])
			check(&u, more)
			i.Intersect(pair[1])
			check(&i, less)
			back, err := Parse(u.Append(nil))
			if err != nil {
				t.Fatal(err)
			}
			check(&back, more)
		}
		var taken Ledger
		taken.SettleCounted(more, int64(more)*each)
		check(&taken, more)
		taken.SettleCounted(more-1, 1)
		check(&taken, more)
	})
}

func TestJSON(t *testing.T) {
	var l, back Ledger
	l.Settle(2)
	l.Add(Task{3, 70}, 5, 5)
	l.Add(Task{3, 2}, 4, 5)
	text, err := json.Marshal(map[string]*Ledger{"ledger": &l})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &map[string]*Ledger{"ledger": &back}); err != nil {
		t.Fatal(err)
	}
	var in struct{ Ledger Ledger }
	if err := json.Unmarshal(text, &in); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(in.Ledger.Append(nil), l.Append(nil)) {
		t.Errorf("%s is read as another ledger", text)
	}
}

// TestSize holds the promise of a bit for each task.
func TestSize(t *testing.T) {
	var l Ledger
	for n := range 1_000_000 {
		l.Add(Task{1, n}, 1, 1)
	}
	if n := len(l.Append(nil)); n > 126_000 {
		t.Errorf("a million tasks take %d bytes", n)
	}
}

func TestParseRefuses(t *testing.T) {
	var l Ledger
	l.Settle(1)
	l.Add(Task{2, 70}, 5, 5)
	l.Add(Task{2, 3}, 4, 5)
	b := l.Append(nil)
	for n := range b {
		if got, err := Parse(b[:n]); err == nil && n != 1 {
			t.Errorf("of %d bytes the first %d are read as %+v", len(b), n, got)
		}
	}
	for name, bad := range map[string][]byte{
		"epochs out of order": {1, 1, 0, 1, 5, 5},
		"an empty epoch":      {1, 2, 0, 0},
		"a count of nothing":  {1, 0, 0},
		"a count twice":       {1, 0, 5, 0, 5},
		"a count of no epoch": {0, 0, 5},
		"no count":            {1, 0},
		"an empty last word":  {1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"a part twice":        {1, 2, 0, 2, 5, 5, 0, 5},
		"a part of nothing":   {1, 2, 0, 1, 5, 0},
		"a part of a whole":   {1, 2, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 5},
		"many words":          slices.Concat([]byte{1, 2}, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0}),
	} {
		if l, err := Parse(bad); err == nil {
			t.Errorf("%s: read as %+v", name, l)
		}
	}
}

func FuzzParse(f *testing.F) {
	var l Ledger
	l.Settle(1)
	l.Add(Task{2, 70}, 5, 5)
	l.Add(Task{2, 3}, 4, 5)
	f.Add(l.Append(nil))
	l.SettleCounted(1, 70)
	f.Add(l.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := Parse(b)
		if err != nil {
			return
		}
		back, err := Parse(l.Append(nil))
		if err != nil || !l.Covers(&back) || !back.Covers(&l) || l.Counted() != back.Counted() {
			t.Fatalf("%x is read, written and read as another ledger: %v", b, err)
		}
	})
}
