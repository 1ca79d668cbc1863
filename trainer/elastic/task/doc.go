// Package task decides which worker trains on which records.
//
// A [Queue] divides shards into tasks and leases them to workers. It has no clock, no network and
// no pods: the master calls it with every event and the current time, and asks it for the next
// task.
//
//	q, err := New(shards, policy)                 // the first epoch is open
//	l, ok := q.Lease(worker, now)                 // for each request of a worker
//	q.Touch, q.Work                               // progress, from heartbeats
//	q.Done, q.Fail, q.Return                      // what the worker reports of a lease
//	q.Lose(worker, progress, fault, now)          // the worker ended
//	q.Overdue(now), at the time of q.Deadline()   // stragglers, which the master replaces
//	if q.Settled() { more := q.NextEpoch() }      // after the model has all gradients of the epoch
//	q.Rewind(ledger)                              // the model returned to a checkpoint
//
//	              Lease                      Done
//	   todo ─────────────────────> leased ─────────────> settled
//	    ^                            │
//	    ├── first again ── Lose (not counted)
//	    ├── first again ── Return (not counted) ────> Returned = MaxAttempts in a row: it fails
//	    └── last again ─── Fail, Lose with a fault ──> Attempts = MaxAttempts: it fails
//
//	epoch 1 ── Settled ── NextEpoch ──> epoch 2 ── … ── NextEpoch = false ──> TrainingDone
//
// # Restart of the master
//
// Nothing is stored when a lease is granted or settled: the holders of the model keep the ledger,
// and the workers keep their leases. A master's new incarnation asks both. Its number is stored
// before any other process learns it.
//
//	ledger of all holders ──┐
//	[Snapshot] (a hint) ────┼── [Restore] ──> nothing leased ── [Queue.Adopt], for each lease
//	incarnation ────────────┘                                   announced ──> [Queue.Announced]
//
// The ledger is the intersection of the ledgers of all parameter servers
// ([ledger.Ledger.Intersect]), or that of the state with which a ring continues. It holds every
// record that was credited, because a record is credited only after a holder of the model has
// confirmed it. Records of the ledger that were not credited yet are credited by Restore.
//
// A snapshot is stored from time to time. Without one, tasks that failed get all their attempts
// again, and a task whose lease is about to be announced may be leased a second time, which wastes
// the time of one worker. The incarnation is part of a lease's number, so that no two masters give
// out the same number.
//
// Workers may announce leases and ask for new ones in any order; the laws hold. A master that lets
// all live workers announce first saves work. It calls [Queue.Announced] when each worker has
// announced its leases or has ended. Until then [Queue.Floor] stays at the first lease, so that
// nobody forgets anything.
//
// # Shards of unknown length
//
// With [Policy.Unsized] a task is one shard, such as a file or a stream, and the number of its
// records is found by reading them. Counts of its records rise as those of other tasks. The last
// count has [ledger.End] added; then the task is whole, and Done settles it. Nothing else differs:
// the laws hold for these tasks. Totals are unknown, and 0 in Stats.
//
// Laws:
//
//  1. Within an epoch, the sum of waiting, leased and settled tasks is constant.
//  2. Every record of an epoch is credited exactly once, and no record is in two live leases.
//  3. A report about a lease that the worker does not hold returns [ErrStale] and changes nothing.
//  4. A lost lease never counts as a failure; a failed one does. A task that failed too often fails
//     the queue with an error that names it; no task is dropped. A task that was given back too
//     often in a row, without progress in between, fails the queue too; giving it back, because its
//     data could not be reached, is not counted.
//  5. Progress within a lease only rises, stays within the task, and outlives the lease: the next
//     worker of the task begins after it. An evaluation is measured, and a prediction written,
//     completely or not at all: their progress, and that of an export, keeps the worker from being
//     overdue and is not credited. The same holds for effort ([Queue.Work]).
//  6. The next epoch opens only after every task of this one is settled.
//  7. The same shards, policy and calls give the same leases.
//  8. After [Queue.Rewind] exactly the records that are not in the ledger are to be trained on, no
//     earlier lease is held, and the laws hold from there on.
//  9. Records beyond MaxRecords are never leased, and Stats counts them.
//  10. A worker without progress is overdue after max(Timeout, 3 × the longest completed lease).
//     Each time that happens during a task, the limit of the task is doubled, up to 64 times the
//     limit: a task that is slow for every worker ends too.
//  11. No call costs more if there are more tasks: tasks and their order are computed from their
//     numbers. (order.go, cut.go)
//  12. Laws 1 to 11 hold over a restart, with a snapshot of any age or none, and also if the ledger
//     has more than was credited: no record is lost, and none is credited twice.
//  13. A queue that is restored from a ledger of all credited records and its last snapshot, and to
//     which all leases are announced, has the same leases, counted failures, limits, statistics
//     and error as the queue that was saved; only the order of the waiting tasks may differ.
//  14. A lease of an earlier master is adopted at most once, under its number, by the first worker
//     that announces it, if its task waits. If the task is settled or leased, the announcement is
//     stale. No two leases of a job have the same number.
//  15. A snapshot has at most 64 KiB. Restoring one with impossible values is an error; any other
//     gives a queue that obeys the laws.
package task
