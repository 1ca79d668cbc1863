package book

import (
	"fmt"
	"slices"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
)

// Book is the account of a job. It is not safe for concurrent use.
type Book struct {
	Saved
	// nil: nothing is planned
	layout *task.Layout
	// records of the open epoch
	open ledger.Ledger
}

// Saved is a book as a record of the master has it.
type Saved struct {
	// Data is nil if the job has declared no records.
	Data *Data `json:"data,omitempty"`
	// Lines has the finished epochs, ascending.
	Lines []Line `json:"epochs,omitempty"`
	Open  Page   `json:"open,omitzero"`
	// Faults has the first faults, and More the number of others.
	Faults []Fault `json:"faults,omitempty"`
	More   int64   `json:"more,omitempty"`
	// Ended counts how often an epoch has ended, Returned how often the model returned to fewer
	// records, and Undone the records that it did not have any more.
	Ended    int64 `json:"ended,omitempty"`
	Returned int64 `json:"returned,omitempty"`
	Undone   int64 `json:"undone,omitempty"`
	// Return is the last return of the model, if nothing was credited since.
	Return *Return `json:"return,omitempty"`
	// Checkpoint is the newest checkpoint.
	Checkpoint Checkpoint `json:"checkpoint,omitzero"`
}

// Return is a return of the model from a number of records; Undone of them it does not have.
type Return struct {
	From   int64 `json:"from"`
	Undone int64 `json:"undone,omitempty"`
}

// Line has the account of finished epochs [First, Last].
type Line struct {
	First   int    `json:"first"`
	Last    int    `json:"last"`
	Records int64  `json:"records"`
	Sum     uint64 `json:"sum,string"`
}

// Page has the account of the open epoch.
type Page struct {
	Epoch   int    `json:"epoch"`
	Records int64  `json:"records"`
	Sum     uint64 `json:"sum,string"`
	// Ledger has its stretches; nil: there are too many to keep.
	Ledger *ledger.Ledger `json:"ledger,omitempty"`
}

// Checkpoint says what the holders of the model had written together.
type Checkpoint struct {
	Number int64 `json:"number"`
	// Epochs is the number of epochs that it has completely, and Records that of all its records.
	Epochs  int   `json:"epochs"`
	Records int64 `json:"records"`
}

// Kind is the kind of a [Fault].
type Kind string

// Kinds of faults.
const (
	Missing Kind = "missing"
	Twice   Kind = "twice"
)

// Fault is the records [From, To) of a task, in the order of the task, which were not credited
// once. If all records of a task of unknown length from From on are missing, To is [ledger.End].
type Fault struct {
	Kind   Kind  `json:"kind"`
	Epoch  int   `json:"epoch"`
	Number int   `json:"task"`
	From   int64 `json:"from"`
	To     int64 `json:"to"`
}

// records returns the number of records of a fault, 0 if their end is not known.
func (f Fault) records() int64 { return max(0, ledger.Count(f.To)-ledger.Count(f.From)) }

// New returns the book of a master: that of the one before, or an empty one.
func New(s Saved) *Book {
	b := &Book{Saved: s}
	b.Lines, b.Faults = slices.Clone(s.Lines), slices.Clone(s.Faults)
	if s.Return != nil {
		b.Return = new(*s.Return)
	}
	if l := s.Open.Ledger; l != nil {
		b.open = l.Clone()
	}
	b.Open.Ledger = nil
	return b
}

// Plan sets what the job trains on. An account of other data is dropped. Without shards nothing is
// planned.
func (b *Book) Plan(shards []task.Shard, p task.Policy) error {
	d, l, err := NewData(shards, p)
	if err != nil || l.Tasks() == 0 {
		return err
	}
	if b.Data != nil && !b.Data.same(d) {
		*b = Book{Saved: Saved{Ended: b.Ended}}
	}
	b.Data, b.layout = &d, l
	return nil
}

// Finished returns the number of finished epochs.
func (b *Book) Finished() int {
	if n := len(b.Lines); n > 0 {
		return b.Lines[n-1].Last
	}
	return 0
}

// Enter adds a stretch that is credited.
func (b *Book) Enter(c task.Credit) {
	if b.layout != nil && c.From < c.To {
		b.Return = nil
		b.enter(c)
	}
}

func (b *Book) enter(c task.Credit) {
	sum := Factor(c.Task.Epoch) * Sum(c.Task.Number, c.From, c.To)
	if c.Task.Epoch <= b.Finished() {
		b.fault(Fault{Twice, c.Task.Epoch, c.Task.Number, c.From, c.To})
		line := slices.IndexFunc(b.Lines, func(l Line) bool { return c.Task.Epoch <= l.Last })
		b.Lines[line].Sum += sum
		b.Lines[line].Records += c.Records()
		return
	}
	for c.Task.Epoch > b.Finished()+1 {
		b.close()
	}
	had, whole := b.open.Progress(c.Task)
	if whole {
		had = max(c.To, b.size(c.Task))
	}
	if c.From < had {
		b.fault(Fault{Twice, c.Task.Epoch, c.Task.Number, c.From, min(had, c.To)})
	}
	if c.From > had {
		b.fault(Fault{Missing, c.Task.Epoch, c.Task.Number, had, c.From})
	}
	b.Open.Epoch = c.Task.Epoch
	b.Open.Records += c.Records()
	b.Open.Sum += sum
	b.open.Add(c.Task, c.To, b.size(c.Task))
}

// fault notes a fault.
func (b *Book) fault(f Fault) {
	if len(b.Faults) < MostFaults {
		b.Faults = append(b.Faults, f)
	} else {
		b.More++
	}
}

// size returns the number of records of a task.
func (b *Book) size(t ledger.Task) int64 {
	if one, ok := b.layout.Task(t.Epoch, t.Number); ok {
		return one.Records()
	}
	return 0
}

// Finish ends the open epoch.
func (b *Book) Finish() {
	if b.layout != nil {
		b.close()
		b.Ended++
	}
}

// close makes a line of the open epoch.
func (b *Book) close() {
	epoch := b.Finished() + 1
	sum, records := b.Expected(epoch)
	if b.Open.Sum != sum || b.Open.Records != records && !b.Data.Unsized {
		for t := range b.layout.Of(epoch) {
			if had := t.In(&b.open); !t.Whole(had) {
				b.fault(Fault{Missing, epoch, t.Number, had, t.Records()})
			}
		}
	}
	b.Lines = append(b.Lines, Line{epoch, epoch, b.Open.Records, b.Open.Sum})
	b.Open, b.open = Page{}, ledger.Ledger{}
	b.merge()
}

// RecordsOf returns the number of records of a finished epoch; 0: it is not known.
func (b *Book) RecordsOf(epoch int) int64 {
	if !b.Data.Unsized {
		_, records := b.Expected(epoch)
		return records
	}
	for _, l := range b.Lines {
		if l.First == epoch && l.Last == epoch {
			return l.Records
		}
	}
	return 0
}

// Expected returns the sum and the number of records of an epoch all records of which were credited
// once.
func (b *Book) Expected(epoch int) (sum uint64, records int64) {
	return Expected(*b.Data, b.layout, epoch)
}

// Expected returns the sum and the number of records of an epoch of data, all records of which were
// credited once. The layout may be nil if the epoch has all records. The number is 0 if the lengths
// of the tasks are unknown.
func Expected(d Data, l *task.Layout, epoch int) (sum uint64, records int64) {
	if l == nil || l.RecordsOf(epoch) == d.Records {
		return Factor(epoch) * d.Sum, d.Records
	}
	for t := range l.Of(epoch) {
		sum += Sum(t.Number, 0, t.Records())
	}
	return Factor(epoch) * sum, l.RecordsOf(epoch)
}

// merge joins the oldest lines without faults if there are too many lines.
func (b *Book) merge() {
	for i := 0; len(b.Lines) > MostLines && i+1 < len(b.Lines); {
		if !b.clean(b.Lines[i]) || !b.clean(b.Lines[i+1]) {
			i++
			continue
		}
		b.join(i)
	}
	for len(b.Lines) > 2*MostLines { // many epochs are wrong
		b.join(0)
	}
}

// join makes one line of a line and the next.
func (b *Book) join(i int) {
	l, next := &b.Lines[i], b.Lines[i+1]
	l.Last, l.Records, l.Sum = next.Last, l.Records+next.Records, l.Sum+next.Sum
	b.Lines = slices.Delete(b.Lines, i+1, i+2)
}

// clean reports whether a line has the sum that it must have.
func (b *Book) clean(l Line) bool {
	is, err := Check(*b.Data, b.layout, l)
	return err == nil && is
}

// Check reports whether a line has the records and the sum of its epochs.
func Check(d Data, layout *task.Layout, l Line) (bool, error) {
	if l.First < 1 || l.Last < l.First || l.Last-l.First > 1<<24 {
		return false, fmt.Errorf("a line of the epochs %d to %d", l.First, l.Last)
	}
	var sum uint64
	var records int64
	for epoch := l.First; epoch <= l.Last; epoch++ {
		s, n := Expected(d, layout, epoch)
		sum, records = sum+s, records+n
	}
	return sum == l.Sum && (records == l.Records || d.Unsized), nil
}
