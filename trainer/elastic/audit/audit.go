package audit

import (
	"fmt"

	"github.com/elasticdl/elasticdl/trainer/elastic/book"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
)

// MostFindings is the largest number of findings of a report.
const MostFindings = 20

// Evidence has the record that a job has left.
type Evidence struct {
	// State is the state of the job, as in its status.
	State string
	// Program reports whether the job runs a user's program.
	Program bool
	// Journal is the journal of the job, with its book.
	Journal journal.Snapshot
}

// over reports whether the job has ended.
func (e Evidence) over() bool {
	return e.State == "Succeeded" || e.State == "Failed" || e.State == "Stopped"
}

// Verdict is the result of an audit.
type Verdict string

// Verdicts.
const (
	// Proved: each record was applied once per epoch; of a job that has not ended, each that was
	// applied so far.
	Proved Verdict = "proved"
	// Violated: the findings name what was not applied once, or is damaged in the evidence.
	Violated Verdict = "violated"
	// Incomplete: the job ended before all records were applied. The findings name the others.
	Incomplete Verdict = "incomplete"
	// Unprovable: the evidence says nothing about records.
	Unprovable Verdict = "unprovable"
)

// Report is the result of [Check].
type Report struct {
	Verdict Verdict `json:"verdict"`
	// Reason says why nothing can be proved.
	Reason string `json:"reason,omitempty"`
	// Records counts those of the data, and Epochs those that the job is to train; 0: no limit.
	// Data with Shards, which are of unknown length, has no number of records.
	Records int64 `json:"records,omitempty"`
	Shards  int   `json:"shards,omitempty"`
	Epochs  int   `json:"epochs,omitempty"`
	// Finished counts the epochs that are finished, and Applied the records that are in the model.
	Finished int   `json:"finished"`
	Applied  int64 `json:"applied"`
	// Open counts the records of the open epoch that were applied, Whole all of its records; 0: not
	// known.
	Open  int64 `json:"open,omitempty"`
	Whole int64 `json:"whole,omitempty"`
	// Rollbacks counts the returns of the model to fewer records, and Repeated the records that the
	// model did not have any more.
	Rollbacks int64 `json:"rollbacks,omitempty"`
	Repeated  int64 `json:"repeated,omitempty"`
	// Ends counts the ends of epochs in the journal, those that were undone included.
	Ends int64 `json:"ends"`
	// Checkpoint is the newest checkpoint; its records are those of the ledgers of the holders.
	Checkpoint book.Checkpoint `json:"checkpoint,omitzero"`
	Findings   []Finding       `json:"findings,omitempty"`
	// More counts the findings that are not listed.
	More int64 `json:"more,omitempty"`
}

// Part is the part of the evidence in which a finding was made.
type Part string

// Parts of the evidence.
const (
	InLedger  Part = "ledger"
	InJournal Part = "journal"
)

// Finding is one thing that is wrong.
type Finding struct {
	In   Part      `json:"in"`
	Kind book.Kind `json:"kind"`
	// Epoch is the epoch, from 1; 0: all of them.
	Epoch int `json:"epoch,omitempty"`
	// Shard names the shard, and its records are [Start, End) in the order of the file; Count of
	// them are concerned. Shard is empty if the whole epoch is.
	Shard string `json:"shard,omitempty"`
	Start int64  `json:"start,omitempty"`
	End   int64  `json:"end,omitempty"`
	Count int64  `json:"count,omitempty"`
	Text  string `json:"text"`
}

// Damaged is the kind of a finding that says that the evidence does not fit itself.
const Damaged book.Kind = "damaged"

// checker makes a report.
type checker struct {
	Evidence
	book   book.Saved
	layout *task.Layout // nil: its shards are not kept
	// number of the last entry in the journal about the end of each epoch
	ends   map[int]int64
	report Report
}

// Check returns what the evidence proves.
func Check(e Evidence) Report {
	c := checker{Evidence: e, book: e.Journal.Book}
	d := c.book.Data
	if d == nil {
		c.report.Verdict, c.report.Reason = Unprovable, e.nothing()
		return c.report
	}
	layout, err := d.Layout()
	if err != nil {
		c.report.Verdict, c.report.Reason = Unprovable, "the account of the job is damaged: "+err.Error()
		return c.report
	}
	c.layout = layout
	c.report.Records, c.report.Checkpoint = d.Records, c.book.Checkpoint
	if d.Unsized {
		c.report.Shards = d.Tasks
	}
	c.report.Epochs = c.epochs()
	c.report.Rollbacks, c.report.Repeated = c.book.Returned, c.book.Undone
	c.report.Ends = e.Journal.Totals.Kinds[journal.EpochFinished]
	c.faults()
	c.lines()
	c.open()
	c.journal()
	c.report.Verdict = Proved
	switch n := len(c.report.Findings); {
	case n > 0:
		c.report.Verdict = Violated
	case e.over() && c.remaining():
		c.report.Verdict = Incomplete
	}
	return c.report
}

// nothing says why there is no account.
func (e Evidence) nothing() string {
	switch {
	case e.Program && e.over():
		return "this program does not use elasticdl's data package: nothing can be proved about its records"
	case e.Program:
		return "this program has not declared a data set with elasticdl's data package: nothing can be proved " +
			"about its records"
	case e.Journal.Last == 0 && !e.over():
		return "the master has written no record yet"
	}
	return "this job has trained on no records"
}

// epochs returns the number of epochs of the job; 0: no limit.
func (c *checker) epochs() int {
	if c.layout != nil {
		return c.layout.Epochs()
	}
	return c.book.Data.Epochs
}

// find adds a finding.
func (c *checker) find(f Finding) {
	if len(c.report.Findings) < MostFindings {
		c.report.Findings = append(c.report.Findings, f)
	} else {
		c.report.More++
	}
}

// wrong adds a finding about an epoch.
func (c *checker) wrong(in Part, kind book.Kind, epoch int, format string, args ...any) {
	c.find(Finding{In: in, Kind: kind, Epoch: epoch, Text: fmt.Sprintf(format, args...)})
}

// stretch adds a finding about the records [from, to) of a task. text names the fault.
func (c *checker) stretch(kind book.Kind, epoch, number int, from, to int64, text string) {
	f := Finding{In: InLedger, Kind: kind, Epoch: epoch, Count: max(0, ledger.Count(to)-ledger.Count(from))}
	where := fmt.Sprintf("task %d", number)
	if t, ok := c.task(epoch, number); ok && t.Unsized {
		f.Shard, f.Start, f.End = fmt.Sprintf("shard %d", number), ledger.Count(from), ledger.Count(to)
		where = fmt.Sprintf("records [%d, %d) of %s", f.Start, f.End, f.Shard)
		if f.Count == 0 { // its length is not known, or it is empty
			where = fmt.Sprintf("%s from record %d to its end", f.Shard, f.Start)
			f.End = 0
		}
	} else if ok {
		f.Start, f.End = t.Start, t.End
		f.Shard = t.Shard
		if f.Shard == "" {
			f.Shard = fmt.Sprintf("shard %d", c.shard(number))
		}
		whole := from == 0 && to == t.Records()
		if !whole && !c.book.Data.Shuffle {
			f.Start, f.End = t.Start+from, t.Start+to
		}
		where = fmt.Sprintf("records [%d, %d) of %s", f.Start, f.End, f.Shard)
		if !whole && c.book.Data.Shuffle {
			where = fmt.Sprintf("%d of the %s: numbers %d to %d of their order", to-from, where, from, to-1)
		}
	}
	f.Text = fmt.Sprintf("epoch %d, %s: %s", epoch, where, text)
	c.find(f)
}

// task returns a task of an epoch; false if its shard is not known.
func (c *checker) task(epoch, number int) (task.Task, bool) {
	if c.layout == nil {
		return task.Task{}, false
	}
	return c.layout.Task(epoch, number)
}

// shard returns the index of the shard of a task, from 0.
func (c *checker) shard(number int) int {
	index := 0
	for _, g := range c.book.Data.Shards {
		tasks := int((g.Records + c.book.Data.PerTask - 1) / c.book.Data.PerTask)
		if all := tasks * g.Times; number >= all {
			number -= all
			index += g.Times
			continue
		}
		return index + number/tasks
	}
	return index
}
