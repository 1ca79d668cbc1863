package book

import (
	"cmp"
	"slices"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
)

// Set makes the book that of a model with exactly the records of a ledger: the model returned to a
// checkpoint. Of several calls without a credit in between the last one counts as the return.
func (b *Book) Set(l *ledger.Ledger) {
	if b.layout == nil {
		return
	}
	settled := b.whole(l)
	if b.Return == nil {
		b.Return = &Return{From: b.Records()}
	}
	if b.Finished() != settled {
		b.setLines(settled, l)
	}
	b.keepFaults(settled, l)
	b.page(settled+1, l)
	before := b.Return.Undone
	b.Return.Undone = max(0, b.Return.From-b.Records())
	b.Undone += b.Return.Undone - before
	b.Returned += int64(sign(b.Return.Undone) - sign(before))
}

func sign(n int64) int { return cmp.Compare(n, 0) }

// Find is [Book.Set] for a new master, which has asked the holders of the model. It returns the
// epochs that have ended since the book was saved.
func (b *Book) Find(l *ledger.Ledger) (ended []int) {
	before := b.Finished()
	b.Set(l)
	for epoch := before + 1; epoch <= b.Finished(); epoch++ {
		ended = append(ended, epoch)
	}
	b.Ended += int64(len(ended))
	b.Return = nil
	return ended
}

// setLines makes lines of the first epochs, all records of which a ledger has. If the lengths of
// tasks are unknown, the ledger has the number of all records of its settled epochs, and not of
// each: those that the book does not have get one line.
func (b *Book) setLines(settled int, l *ledger.Ledger) {
	if settled < b.Finished() {
		b.cutLines(settled)
		all := l.Clone()
		all.Settle(settled)
		b.countLines(all.Counted())
		return
	}
	first := b.Finished() + 1
	for b.Finished() < settled {
		b.fill(b.Finished()+1, l)
		b.close()
		if b.Data.Unsized && b.Finished() == l.Settled() {
			i := slices.IndexFunc(b.Lines, func(line Line) bool { return line.First >= first })
			for i >= 0 && len(b.Lines) > i+1 {
				b.join(i)
			}
			b.countLines(l.Counted())
		}
	}
}

// countLines corrects the last line, given the number of records of all lines. It is 0 if it is not
// known.
func (b *Book) countLines(records int64) {
	if n := len(b.Lines); n > 0 && b.Data.Unsized && records > 0 {
		b.Lines[n-1].Records = max(0, b.Lines[n-1].Records+records-b.lineRecords())
	}
}

// lineRecords returns the number of records of the finished epochs.
func (b *Book) lineRecords() (n int64) {
	for _, l := range b.Lines {
		n += l.Records
	}
	return n
}

// whole returns the number of epochs all records of which are in the ledger.
func (b *Book) whole(l *ledger.Ledger) int {
	n := l.Settled()
	for {
		if !b.layout.Has(n+1) || l.Highest(n+1) < 0 {
			return n
		}
		for t := range b.layout.Of(n + 1) {
			if !t.Whole(t.In(l)) {
				return n
			}
		}
		n++
	}
}

// Records returns the number of records in the book.
func (b *Book) Records() int64 { return b.Open.Records + b.lineRecords() }

// fill adds the records of an epoch that the book does not have, and a ledger has.
func (b *Book) fill(epoch int, l *ledger.Ledger) {
	b.Open.Epoch = epoch
	for t := range b.layout.Of(epoch) {
		had := t.In(&b.open)
		if t.Whole(had) {
			continue
		}
		all := Fault{From: had, To: t.In(l)}
		b.Open.Sum += Factor(epoch) * Sum(t.Number, had, all.To)
		b.Open.Records += all.records()
		b.open.Add(ledger.Task{Epoch: epoch, Number: t.Number}, all.To, t.Records())
	}
}

// cutLines drops the lines of the epochs after one.
func (b *Book) cutLines(settled int) {
	b.Open, b.open = Page{}, ledger.Ledger{}
	for i, l := range b.Lines {
		if l.Last <= settled {
			continue
		}
		b.Lines = b.Lines[:i]
		if l.First > settled {
			return
		}
		// lines of several epochs are right, as long as there are not too many wrong ones
		kept := Line{First: l.First, Last: settled}
		for epoch := l.First; epoch <= settled; epoch++ {
			sum, _ := b.Expected(epoch)
			kept.Sum, kept.Records = kept.Sum+sum, kept.Records+b.RecordsOf(epoch)
		}
		b.Lines = append(b.Lines, kept)
		return
	}
}

// keepFaults drops the faults of records that the ledger does not have.
func (b *Book) keepFaults(settled int, l *ledger.Ledger) {
	b.Faults = slices.DeleteFunc(b.Faults, func(f Fault) bool {
		if f.Epoch <= settled {
			return false
		}
		had, whole := l.Progress(ledger.Task{Epoch: f.Epoch, Number: f.Number})
		return !whole && had <= f.From
	})
}

// page makes the page of the open epoch from a ledger.
func (b *Book) page(epoch int, l *ledger.Ledger) {
	b.Open, b.open = Page{}, ledger.Ledger{}
	for number := range l.Highest(epoch) + 1 {
		t, ok := b.layout.Task(epoch, number)
		if n := t.In(l); ok && n > 0 {
			b.enter(task.Credit{Task: ledger.Task{Epoch: epoch, Number: number}, To: n})
		}
	}
	for _, f := range b.Faults {
		if f.Epoch != epoch {
			continue
		}
		sum, n := Factor(epoch)*Sum(f.Number, f.From, f.To), f.records()
		if f.Kind == Missing {
			sum, n = -sum, -n
		}
		b.Open.Sum, b.Open.Records = b.Open.Sum+sum, b.Open.Records+n
	}
}

// Committed notes the newest checkpoint, with the ledger that the holders of the model have
// written.
func (b *Book) Committed(number, records int64, l *ledger.Ledger) {
	if b.layout != nil {
		b.Checkpoint = Checkpoint{number, b.whole(l), records}
	}
}

// Save returns what [New] takes.
func (b *Book) Save() Saved {
	s := b.Saved
	s.Lines, s.Faults = slices.Clone(b.Lines), slices.Clone(b.Faults)
	if b.Return != nil {
		s.Return = new(*b.Return)
	}
	if b.Open.Epoch > 0 && b.open.Size() <= MostOpen {
		l := b.open.Clone()
		s.Open.Ledger = &l
	}
	return s
}
