package task

import "github.com/elasticdl/elasticdl/trainer/elastic/ledger"

// Credit is the records [From, To) of a training task, in the order of [Policy.Order], which were
// credited by one report. To has [ledger.End] added if they are the last of a task of unknown
// length.
type Credit struct {
	Task     ledger.Task
	From, To int64
}

// Records returns the number of records of a credit. It is 0 if To is the end of a task in an epoch
// that is settled: then a ledger does not have the length of the task.
func (c Credit) Records() int64 { return max(0, ledger.Count(c.To)-ledger.Count(c.From)) }

// Credits returns the stretches that were credited since the call before, in their order. Records
// that are in the ledger of [Queue.Rewind] or [Restore] were not credited by a report, and are not
// among them.
func (q *Queue) Credits() []Credit {
	credits := q.credits
	q.credits = nil
	return credits
}
