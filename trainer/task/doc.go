// Package task decides which records are whose.
//
// A [Queue] cuts shards into tasks and leases them to workers. It knows no
// clock, no network and no pods: the master's shell tells it what happened and
// asks it what is next.
//
//	              Lease                      Done
//	   todo ─────────────────────> leased ─────────────> settled
//	    ^                            │
//	    ├── first again ── Lose (uncharged)
//	    ├── first again ── Return (uncharged) ───────> Returned = MaxAttempts in a row: the queue fails
//	    └── last again ─── Fail, Lose with a charge ──> Attempts = MaxAttempts: the queue fails
//
//	epoch 1 ── Settled ── NextEpoch ──> epoch 2 ── … ── Settled ── NextEpoch = false ──> TrainingDone
//
// # A master that comes back
//
// Nothing of a queue is written when a lease is granted or settled: the ledger is kept by those who hold the model, the leases by
// the workers. The master's new incarnation, which is written before anybody hears of it, asks both:
//
//	ledger of all holders ──┐
//	[Snapshot] (a hint) ────┼── [Restore] ──> nothing leased ── [Queue.Adopt], for each lease announced ──> [Queue.Announced]
//	incarnation ────────────┘
//
// The ledger is what all parameter servers have ([ledger.Ledger.Intersect]), or what the state has that a ring goes on with. It never
// has less than was credited, as credit needs proof; what it has more is credited by it. A snapshot is written now and then, in
// a key of its own; without it tasks that failed get all their attempts again, and tasks may be leased twice that are about to be
// announced, at the cost of the time of one of the two workers. Numbers of leases are told apart by the incarnation.
//
// Workers may announce and ask in any order: no gate is needed for the laws. Whoever has all living workers announce first
// spares them work. [Queue.Announced] is to be called when each of them has announced what it holds, or is gone; until then
// [Queue.Floor] allows nothing to be forgotten.
//
// Laws:
//
//  1. Within an epoch, todo + leased + settled tasks is constant.
//  2. Every record of an epoch is credited exactly once, and no record is in two live leases.
//  3. A report about a lease that its worker does not hold gives [ErrStale] and changes nothing.
//  4. A lost lease is not charged, however often; a failed one is. A task that failed too
//     often fails the queue, which names it; no task is ever dropped. So does one that was given back too often in a row,
//     with no progress between, as its data could not be reached; nothing is charged for that.
//  5. Progress within a lease is monotone, stays within the task, and outlives the lease:
//     who gets the task next begins after it. Evaluation is measured, and prediction written, whole or not at all: their
//     progress, and that of the export, keeps a worker from being overdue, and is not credited. Nor is the effort of who waits
//     for the storage of the data.
//  6. The next epoch opens only after the last lease of this one is settled.
//  7. Same shards, same policy, same calls: same leases.
//  8. After [Queue.Rewind] exactly the records that are not in the ledger are to be done, no lease of before is held, and the
//     laws hold from there on.
//  9. What MaxRecords leaves out is never leased, and Stats tells how much it is.
//  10. A worker without progress is overdue after max(Timeout, 3 × the longest completed lease). Each
//     time that befalls a task its limit is doubled, up to 64 times: what is slow for everybody ends.
//  11. No call costs more for more tasks: tasks and their order are computed from their numbers. (order.go, cut.go)
//  12. Laws 1 to 11 hold over a restart, with a snapshot of any age or none, and with more in the ledger than was credited: no record
//     is lost, and none credited twice.
//  13. A queue that is restored from all that is credited and from its snapshot, and to which all leases are announced, has the same
//     leases, charges, limits, statistics and error as the one that was saved; only the order of the tasks that wait may be another.
//  14. A lease of before is adopted once, by the worker that announces it first, if its task waits: it has the same number. Of a task that is
//     settled or another's it is stale. No two leases of a job have one number, whoever gave them out.
//  15. A snapshot is at most 64 KiB. One that cannot be is an error, and any other leads to a queue that obeys the laws.
package task
