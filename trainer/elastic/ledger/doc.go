// Package ledger records which training records are in a model.
//
// The records of an epoch are cut into numbered tasks. The records of a task are always trained on
// in the same order, so those that are in a model are the first n of it, and the count n describes
// them. A [Ledger] has that for all tasks of all epochs: one number for the epochs that are in the
// model completely, which are settled; for every other epoch a bit per complete task, and a count
// per partial one:
//
//	epoch    1 … 3        4                          5
//	       ┌─────────┬────────────────────────┬────────────────┐
//	       │ settled │ 1 1 1 0 1 0 0  3: 17   │ 0 0  0: 4      │
//	       └─────────┴────────────────────────┴────────────────┘
//	         a count    a bit per task, and      (as for 4)
//	                    parts: task 3, 17 records
//
// The length of a task may be unknown until its records are read, as that of a stream or a file.
// Its count then has [End] added when the end was reached: 17 are its first 17 records, End+17 are
// all of its records, 17 in number. The sum of counts keeps its order, so the laws hold for these
// tasks too.
//
// A ledger is kept wherever values of the model are: in a parameter server, a worker of a ring, a
// checkpoint.
//
// Laws:
//
//  1. A ledger only grows: no call but [Ledger.Reset] and [Ledger.Intersect] takes a record out.
//  2. The union of two ledgers has the records that are in either of them, and no others; it
//     [Ledger.Covers] both.
//  3. The intersection of two ledgers has the records that are in both of them, and no others; both
//     cover it.
//  4. [Parse] reads what [Ledger.Append] wrote as the same ledger; equal ledgers are written as the
//     same bytes.
//  5. [Parse] allocates at most a few times the size of its input.
package ledger
