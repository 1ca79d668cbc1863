// Package ledger says which training records are in a model.
//
// The records of an epoch are cut into tasks, which have numbers. The records of a task are taken in one order, so what of it
// is in a model is a stretch from its first record; it is told as a count. A [Ledger] holds that for all tasks of all epochs,
// in a bit for each task that is in it whole, and in nothing for epochs that are:
//
//	epoch    1 … 3        4                          5
//	       ┌─────────┬────────────────────────┬────────────────┐
//	       │ settled │ 1 1 1 0 1 0 0  3: 17   │ 0 0  0: 4      │
//	       └─────────┴────────────────────────┴────────────────┘
//	         a count    a bit per task, and      (as for 4)
//	                    parts: task 3, 17 records
//
// Whoever holds values holds their ledger beside them: a parameter server, a worker of a ring, a checkpoint.
//
// Laws:
//
//  1. What is had only grows: no call but [Ledger.Reset] and [Ledger.Intersect] takes anything out.
//  2. The union of two ledgers has what one of them has, and nothing else; it [Ledger.Covers] both.
//  3. The intersection of two ledgers has what both of them have, and nothing else; both cover it.
//  4. What is written with [Ledger.Append] is read by [Parse] as the same ledger; equal ledgers are written as the same bytes.
//  5. [Parse] takes no more memory than a few times the bytes that it is given.
package ledger
