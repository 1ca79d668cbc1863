package audit

import (
	"slices"

	"github.com/elasticdl/elasticdl/trainer/elastic/book"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
)

// returns has the kinds of entries after which the training continues from another number of
// epochs.
var returns = []journal.Kind{journal.TrainingStartedOver, journal.TrainingRolledBack, journal.TrainingResumed}

// journal compares the ends of epochs in the journal with those in the book. A journal drops its
// oldest entries when it is full; nothing is concluded from the time before.
func (c *checker) journal() {
	s := c.Journal
	have := make(map[journal.Kind]int64)
	c.ends = make(map[int]int64)
	for _, e := range s.Entries {
		have[e.Kind]++
		if e.Kind == journal.EpochFinished {
			c.ends[e.Epoch] = e.N
		}
	}
	lacks := func(k journal.Kind) bool { return have[k] < s.Totals.Kinds[k] }
	// number of the entry from which on nothing was dropped
	from := int64(0)
	for _, k := range append([]journal.Kind{journal.EpochFinished}, returns...) {
		if lacks(k) && c.full() {
			from = max(from, c.oldest(k))
		}
	}
	before := len(c.report.Findings)
	next, known := 1, from == 0
	// the first epoch that the model returned to, and whose end was not seen: rather one before
	// which an entry is missing than one that had not ended
	skipped, gone := 0, false
	gap, last := false, max(from, 1)-1
	for _, e := range s.Entries {
		if e.N < from {
			continue
		}
		gap, last = gap || e.N > last+1, e.N
		if known && e.Kind == journal.TrainingRolledBack && e.Epoch >= next && (skipped == 0 || gap && !gone) {
			skipped, gone = next, gap
		}
		if e.Kind == journal.EpochFinished || slices.Contains(returns, e.Kind) {
			gap = false
		}
		next, known = c.entry(e, next, known)
	}
	finished := c.report.Finished
	switch {
	case !known:
	case next-1 > finished:
		c.wrong(InJournal, book.Missing, finished+1, "epoch %d: its end is in the journal, and not in the ledger",
			finished+1)
	default:
		for ; next <= finished; next++ {
			c.wrong(InJournal, book.Missing, next, "epoch %d: its end is missing from the journal", next)
			if len(c.report.Findings) == MostFindings {
				break
			}
		}
	}
	if lacks(journal.EpochFinished) && !c.full() && len(c.report.Findings) == before {
		c.wrong(InJournal, book.Missing, skipped, "epoch %d: its end is missing from the journal", skipped)
	}
	if n := s.Totals.Kinds[journal.EpochFinished]; n != c.book.Ended && len(c.report.Findings) == before {
		c.wrong(InJournal, Damaged, 0, "the journal counts %d ends of epochs, and the ledger %d", n, c.book.Ended)
	}
}

// entry follows one entry. next is the epoch that is to end next, if it is known.
func (c *checker) entry(e journal.Entry, next int, known bool) (int, bool) {
	if slices.Contains(returns, e.Kind) {
		return e.Epoch + 1, true
	}
	if e.Kind != journal.EpochFinished {
		return next, known
	}
	if want, known := c.counted(e); known && e.Records != want {
		c.wrong(InJournal, Damaged, e.Epoch, "epoch %d: its end in the journal has %d records, expected %d "+
			"(entry %d)", e.Epoch, e.Records, want, e.N)
	}
	if !known || e.Epoch == next {
		return e.Epoch + 1, true
	}
	if e.Epoch < next {
		c.wrong(InJournal, book.Twice, e.Epoch, "epoch %d: its end is twice in the journal (entry %d), and no "+
			"rollback is between", e.Epoch, e.N)
		return next, true
	}
	for ; next < e.Epoch && len(c.report.Findings) < MostFindings; next++ {
		c.wrong(InJournal, book.Missing, next, "epoch %d: its end is missing from the journal", next)
	}
	return e.Epoch + 1, true
}

// counted returns the number of records that an entry about the end of an epoch must have; false:
// it is not known. The end of an epoch of shards of unknown length has as many as the ledger
// counts: an end that was undone, or an epoch whose line was joined with others, is not compared.
func (c *checker) counted(e journal.Entry) (records int64, known bool) {
	if !c.book.Data.Unsized {
		return c.recordsOf(e.Epoch), true
	}
	for _, l := range c.book.Lines {
		if l.First == e.Epoch && l.Last == e.Epoch {
			return l.Records, c.ends[e.Epoch] == e.N
		}
	}
	return 0, false
}

// full reports whether the journal may have dropped entries.
func (c *checker) full() bool {
	s := c.Journal
	return s.Brief || s.Full()
}

// oldest returns the number of the oldest entry of a kind, that after the newest entry if there is
// none.
func (c *checker) oldest(k journal.Kind) int64 {
	for _, e := range c.Journal.Entries {
		if e.Kind == k {
			return e.N
		}
	}
	return c.Journal.Last + 1
}
