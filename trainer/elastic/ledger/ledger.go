package ledger

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
)

// MaxTasks is the largest number of tasks in an epoch: a bit for each takes 128 MB.
const MaxTasks = 1 << 30

// End marks the end of a task of unknown length: that of a shard whose records are found by reading
// it. After all n records of such a task the count is End+n, and there are no further records.
const End = 1 << 40

// Ended reports whether a count of the first records of a task of unknown length has its end.
func Ended(n int64) bool { return n >= End }

// Count returns the number of records of a count that may have the end of its task.
func Count(n int64) int64 {
	if Ended(n) {
		return n - End
	}
	return n
}

// Ledger is the set of training records that are in a model. The zero value is empty. It is not
// safe for concurrent use.
type Ledger struct {
	// all records of the epochs up to this one are in the model
	settled int
	// number of the records of tasks of unknown length in these epochs
	counted int64
	// later epochs that have a record in the model
	open map[int]*open
}

// open is the records of one unsettled epoch that are in the model.
type open struct {
	// bit n: all records of task n; the last element is not 0
	whole []uint64
	// number of leading records of each other task, not 0; with [End] of a task of unknown length
	// all of whose records are in the model
	parts map[int]int64
}

// Task names a training task. The name stays the same whichever worker trains on it, and however
// often.
type Task struct {
	// from 1
	Epoch int
	// of the task in its epoch before shuffling, from 0
	Number int
}

func (t Task) String() string { return fmt.Sprintf("task %d of epoch %d", t.Number, t.Epoch) }

// Settled returns the number of epochs all records of which are in the ledger.
func (l *Ledger) Settled() int { return l.settled }

// Counted returns the number of records of tasks of unknown length in the epochs that are settled.
func (l *Ledger) Counted() int64 { return l.counted }

// Progress returns how many records of a task are in the ledger, counted from its first. If all of
// them are, whole is true, and records is 0; of a task of unknown length it is their number.
func (l *Ledger) Progress(t Task) (records int64, whole bool) {
	if t.Epoch <= l.settled {
		return 0, true
	}
	e := l.open[t.Epoch]
	switch {
	case e == nil:
		return 0, false
	case e.has(t.Number):
		return 0, true
	}
	n := e.parts[t.Number]
	return Count(n), Ended(n)
}

// Add adds the first records of a task, which has of records in all. A count below the one that the
// ledger has changes nothing. Of a task of unknown length, of is [End], and all of its n records
// are End+n.
func (l *Ledger) Add(t Task, records, of int64) {
	before, whole := l.Progress(t)
	if whole || records <= before {
		return
	}
	e := l.epoch(t.Epoch)
	if records < of || Ended(records) {
		e.parts[t.Number] = records
		return
	}
	delete(e.parts, t.Number)
	e.set(t.Number)
}

// epoch returns the entry of an unsettled epoch, and makes it if there is none.
func (l *Ledger) epoch(n int) *open {
	if l.open == nil {
		l.open = make(map[int]*open)
	}
	e := l.open[n]
	if e == nil {
		e = &open{parts: make(map[int]int64)}
		l.open[n] = e
	}
	return e
}

// Settle adds all records of the epochs up to this one. Of tasks of unknown length it counts those
// whose end is in the ledger.
func (l *Ledger) Settle(epoch int) {
	l.settled = max(l.settled, epoch)
	for n, e := range l.open {
		if n > l.settled {
			continue
		}
		for _, records := range e.parts {
			if Ended(records) {
				l.counted += Count(records)
			}
		}
		delete(l.open, n)
	}
}

// SettleCounted adds all records of the epochs up to this one. The caller knows the number of those
// of tasks of unknown length. If the ledger has more epochs already, nothing changes.
func (l *Ledger) SettleCounted(epoch int, counted int64) {
	if epoch >= l.settled {
		l.Settle(epoch)
		l.counted = counted
	}
}

// Reset empties the ledger.
func (l *Ledger) Reset() { *l = Ledger{} }

// Clone returns a copy that shares no memory with the ledger.
func (l *Ledger) Clone() Ledger {
	c := Ledger{settled: l.settled, counted: l.counted}
	for n, e := range l.open {
		c.put(n, e.clone())
	}
	return c
}

func (e *open) clone() *open { return &open{slices.Clone(e.whole), maps.Clone(e.parts)} }

// Union adds the records of another ledger, which is not changed.
func (l *Ledger) Union(o *Ledger) {
	if o.settled > l.settled || o.settled == l.settled && o.counted > l.counted {
		l.SettleCounted(o.settled, o.counted)
	}
	for n, theirs := range o.open {
		if n <= l.settled {
			continue
		}
		e := l.epoch(n)
		if grow := len(theirs.whole) - len(e.whole); grow > 0 {
			e.whole = append(e.whole, make([]uint64, grow)...)
		}
		for i, word := range theirs.whole {
			e.whole[i] |= word
		}
		for number, records := range theirs.parts {
			e.parts[number] = max(e.parts[number], records)
		}
		maps.DeleteFunc(e.parts, func(number int, _ int64) bool { return e.has(number) })
	}
}

// Intersect removes the records that another ledger does not have. Where several processes hold a
// part of the model each, a record can be credited when it is in the ledgers of all of them.
func (l *Ledger) Intersect(o *Ledger) {
	both := Ledger{settled: l.settled, counted: l.counted}
	if o.settled < l.settled || o.settled == l.settled && o.counted < l.counted {
		both.settled, both.counted = o.settled, o.counted
	}
	for _, n := range l.Epochs() {
		switch theirs := o.open[n]; {
		case n <= o.settled:
			both.put(n, l.open[n])
		case theirs != nil:
			both.put(n, l.open[n].and(theirs))
		}
	}
	for n, theirs := range o.open {
		if n <= l.settled {
			both.put(n, theirs.clone())
		}
	}
	*l = both
}

// and returns the records of one epoch that are in both entries.
func (e *open) and(o *open) *open {
	both := &open{parts: make(map[int]int64)}
	for i := range min(len(e.whole), len(o.whole)) {
		both.whole = append(both.whole, e.whole[i]&o.whole[i])
	}
	for n := len(both.whole); n > 0 && both.whole[n-1] == 0; n-- {
		both.whole = both.whole[:n-1]
	}
	for number, records := range e.parts {
		if theirs := o.parts[number]; o.has(number) || theirs > records {
			both.parts[number] = records
		} else if theirs > 0 {
			both.parts[number] = theirs
		}
	}
	for number, records := range o.parts {
		if e.has(number) {
			both.parts[number] = records
		}
	}
	return both
}

// Size returns about how many bytes [Ledger.Append] appends.
func (l *Ledger) Size() int {
	n := 8
	for _, e := range l.open {
		n += 16 + 8*len(e.whole) + 8*len(e.parts)
	}
	return n
}

// put sets the entry of an epoch, unless it is empty.
func (l *Ledger) put(epoch int, e *open) {
	if len(e.whole)+len(e.parts) == 0 {
		return
	}
	if l.open == nil {
		l.open = make(map[int]*open)
	}
	l.open[epoch] = e
}

// Covers reports whether the ledger has every record of another ledger.
func (l *Ledger) Covers(o *Ledger) bool {
	if o.settled > l.settled {
		return false
	}
	for n, theirs := range o.open {
		if n <= l.settled {
			continue
		}
		e := l.open[n]
		if e == nil {
			e = new(open)
		}
		for i, word := range theirs.whole {
			if i >= len(e.whole) && word != 0 || i < len(e.whole) && word&^e.whole[i] != 0 {
				return false
			}
		}
		for number, records := range theirs.parts {
			if !e.has(number) && e.parts[number] < records {
				return false
			}
		}
	}
	return true
}

// Epochs returns the unsettled epochs that have a record in the ledger, ascending.
func (l *Ledger) Epochs() []int { return slices.Sorted(maps.Keys(l.open)) }

// Whole returns the number of tasks of an unsettled epoch that are in the ledger completely.
func (l *Ledger) Whole(epoch int) int {
	n := 0
	if e := l.open[epoch]; e != nil {
		for _, word := range e.whole {
			n += bits.OnesCount64(word)
		}
		for _, records := range e.parts {
			if Ended(records) {
				n++
			}
		}
	}
	return n
}

// Parts returns, for each task of an unsettled epoch that is in the ledger in part, how many of its
// records are, counted from its first.
func (l *Ledger) Parts(epoch int) map[int]int64 {
	e := l.open[epoch]
	if e == nil {
		return nil
	}
	parts := maps.Clone(e.parts)
	maps.DeleteFunc(parts, func(_ int, records int64) bool { return Ended(records) })
	return parts
}

// Highest returns the highest task number of an unsettled epoch that has a record in the ledger, -1
// if there is none.
func (l *Ledger) Highest(epoch int) int {
	e := l.open[epoch]
	if e == nil {
		return -1
	}
	highest := -1
	if n := len(e.whole); n > 0 {
		highest = 64*n - 1 - bits.LeadingZeros64(e.whole[n-1])
	}
	for number := range e.parts {
		highest = max(highest, number)
	}
	return highest
}

func (e *open) has(number int) bool {
	i := number / 64
	return i < len(e.whole) && e.whole[i]>>(number%64)&1 == 1
}

func (e *open) set(number int) {
	i := number / 64
	if grow := i + 1 - len(e.whole); grow > 0 {
		e.whole = append(e.whole, make([]uint64, grow)...)
	}
	e.whole[i] |= 1 << (number % 64)
}
