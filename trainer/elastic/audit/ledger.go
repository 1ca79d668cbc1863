package audit

import (
	"fmt"
	"iter"

	"github.com/elasticdl/elasticdl/trainer/elastic/book"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
)

// mostSearched limits the search for the record that makes a sum wrong, in tasks.
const mostSearched = 10_000_000

// texts says what is wrong with the records of a fault.
var texts = map[book.Kind]string{
	book.Missing: "missing: never applied",
	book.Twice:   "applied twice",
}

// faults reports the faults that the book noted when they happened.
func (c *checker) faults() {
	for _, f := range c.book.Faults {
		text := texts[f.Kind]
		if text == "" {
			text = fmt.Sprintf("an unknown fault %q", f.Kind)
		}
		c.stretch(f.Kind, f.Epoch, f.Number, f.From, f.To, text)
	}
	c.report.More += c.book.More
}

// faulty reports whether a fault of the book explains a wrong sum.
func (c *checker) faulty(first, last int) bool {
	for _, f := range c.book.Faults {
		if first <= f.Epoch && f.Epoch <= last {
			return true
		}
	}
	return c.book.More > 0
}

// lines checks the finished epochs.
func (c *checker) lines() {
	next := 1
	for _, l := range c.book.Lines {
		right, err := book.Check(*c.book.Data, c.layout, l)
		if err != nil {
			c.wrong(InLedger, Damaged, 0, "the ledger is damaged: %v", err)
			continue
		}
		for ; next < l.First; next++ {
			c.wrong(InLedger, book.Missing, next, "epoch %d: missing from the ledger", next)
			if len(c.report.Findings) == MostFindings {
				next = l.First - 1
			}
		}
		if l.First < next {
			c.wrong(InLedger, book.Twice, l.First, "epoch %d: twice in the ledger", l.First)
			continue
		}
		next = l.Last + 1
		c.report.Applied += l.Records
		if n := c.epochs(); n > 0 && l.Last > n {
			c.wrong(InLedger, book.Twice, l.Last, "epoch %d: in the ledger of a job of %d epochs", l.Last, n)
			continue
		}
		if !right && !c.faulty(l.First, l.Last) {
			c.search(l)
		}
	}
	c.report.Finished = next - 1
}

// search finds the task that makes the sum of a line wrong.
func (c *checker) search(l book.Line) {
	var want uint64
	var records int64
	for epoch := l.First; epoch <= l.Last; epoch++ {
		sum, n := book.Expected(*c.book.Data, c.layout, epoch)
		want, records = want+sum, records+n
	}
	off := l.Sum - want
	searched := 0
	for epoch := l.First; epoch <= l.Last && c.layout != nil && off != 0; epoch++ {
		if searched += c.book.Data.Tasks; searched > mostSearched {
			break
		}
		for t := range c.layout.Of(epoch) {
			switch v := book.Factor(epoch) * book.Sum(t.Number, 0, t.Records()); off {
			case v:
				c.stretch(book.Twice, epoch, t.Number, 0, t.Records(), texts[book.Twice])
				return
			case -v:
				c.stretch(book.Missing, epoch, t.Number, 0, t.Records(), texts[book.Missing])
				return
			}
		}
	}
	name := fmt.Sprintf("epoch %d", l.First)
	if l.Last > l.First {
		name = fmt.Sprintf("epochs %d to %d", l.First, l.Last)
	}
	if c.book.Data.Unsized {
		c.wrong(InLedger, Damaged, l.First, "%s: the sum of the ledger's records is wrong", name)
		return
	}
	c.wrong(InLedger, Damaged, l.First, "%s: the ledger has %d records, and their sum is wrong or their number: "+
		"expected %d, each once", name, l.Records, records)
}

// open checks the open epoch.
func (c *checker) open() {
	p := c.book.Open
	epoch := c.report.Finished + 1
	c.report.Whole = c.recordsOf(epoch)
	if p.Epoch == 0 {
		return
	}
	if p.Epoch != epoch {
		c.wrong(InLedger, Damaged, p.Epoch, "epoch %d: open in the ledger, and %d epochs are finished", p.Epoch,
			c.report.Finished)
		return
	}
	c.report.Open = p.Records
	c.report.Applied += p.Records
	if p.Ledger == nil || c.layout == nil {
		return
	}
	var sum uint64
	var records int64
	for t := range c.layout.Of(epoch) {
		n := t.In(p.Ledger)
		sum += book.Factor(epoch) * book.Sum(t.Number, 0, n)
		records += ledger.Count(n)
	}
	for _, f := range c.book.Faults {
		if f.Epoch != epoch {
			continue
		}
		s, n := book.Factor(epoch)*book.Sum(f.Number, f.From, f.To), max(0, ledger.Count(f.To)-ledger.Count(f.From))
		if f.Kind == book.Missing {
			s, n = -s, -n
		}
		sum, records = sum+s, records+n
	}
	if sum != p.Sum || records != p.Records {
		c.searchOpen(epoch, p.Sum-sum, records)
	}
}

// searchOpen finds the task of the open epoch of which the ledger has more or fewer records than
// were credited. off is the sum of those that it lacks.
func (c *checker) searchOpen(epoch int, off uint64, records int64) {
	for t := range c.layout.Of(epoch) {
		n := t.In(c.book.Open.Ledger)
		factor := book.Factor(epoch)
		for at := range counts(t, n) {
			switch {
			case at > n && off == factor*book.Sum(t.Number, n, at):
				c.stretch(book.Missing, epoch, t.Number, n, at, "credited, and missing from the ledger")
				return
			case at < n && off == -factor*book.Sum(t.Number, at, n):
				c.stretch(book.Twice, epoch, t.Number, at, n, "in the ledger, and not credited")
				return
			}
		}
	}
	c.wrong(InLedger, Damaged, epoch, "epoch %d: the ledger has %d records, and %d were credited, or others", epoch,
		records, c.book.Open.Records)
}

// counts yields the counts of a task's first records that are searched. The length of a task may
// not be known: then these are as many as the ledger has of it, as many more as were credited in a
// short time, and the end.
func counts(t task.Task, n int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		most := t.Records()
		if t.Unsized {
			most = min(2*ledger.Count(n)+1000, 100_000)
		}
		for at := range most + 1 {
			if !yield(at) {
				return
			}
		}
		if t.Unsized {
			yield(ledger.End)
		}
	}
}

// recordsOf returns the number of records of an epoch; 0: there is no such epoch, or the number is
// not known.
func (c *checker) recordsOf(epoch int) int64 {
	if c.layout != nil {
		return c.layout.RecordsOf(epoch)
	}
	if n := c.book.Data.Epochs; n > 0 && epoch > n {
		return 0
	}
	return c.book.Data.Records
}

// remaining reports the records that a job which has ended was to train on, and did not.
func (c *checker) remaining() bool {
	epoch, n := c.report.Finished+1, c.epochs()
	open, whole := c.report.Open, c.report.Whole
	if c.book.Data.Unsized {
		return c.unread(epoch)
	}
	if whole > 0 && open == whole { // it has all records, and was not ended
		epoch++
		open, whole = 0, c.recordsOf(epoch)
	}
	if whole == 0 || n == 0 && open == 0 {
		return false
	}
	l := c.book.Open.Ledger
	if l == nil {
		l = new(ledger.Ledger)
	}
	if c.layout != nil && open > 0 && c.book.Open.Ledger != nil {
		c.rest(epoch, l)
	} else {
		c.wrong(InLedger, book.Missing, epoch, "epoch %d: %d of %d records: the job ended before the others", epoch,
			open, whole)
	}
	c.further(epoch)
	return true
}

// unread reports the shards of unknown length that a job which has ended was to read, and did not.
func (c *checker) unread(epoch int) bool {
	p := c.book.Open
	if c.epochs() == 0 && p.Epoch == 0 || c.layout != nil && !c.layout.Has(epoch) {
		return false
	}
	before := len(c.report.Findings)
	switch {
	case p.Epoch == 0:
		epoch-- // all of this epoch is missing, too
	case p.Ledger == nil || c.layout == nil:
		c.wrong(InLedger, book.Missing, epoch, "epoch %d: %d records: the job ended before the others", epoch,
			p.Records)
	default:
		c.rest(epoch, p.Ledger)
	}
	c.further(epoch)
	return len(c.report.Findings) > before
}

// rest reports the records of the open epoch that a ledger does not have.
func (c *checker) rest(epoch int, l *ledger.Ledger) {
	for t := range c.layout.Of(epoch) {
		if had := t.In(l); !t.Whole(had) {
			c.stretch(book.Missing, epoch, t.Number, had, t.Records(), "missing: the job ended before")
		}
	}
}

// further reports the epochs after one, of which the job has no record.
func (c *checker) further(epoch int) {
	if n := c.epochs(); n > epoch {
		c.wrong(InLedger, book.Missing, epoch+1, "epochs %d to %d: missing: the job ended before", epoch+1, n)
	}
}
