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
//	    └── last again ─── Fail, Lose with a charge ──> Attempts = MaxAttempts: the queue fails
//
//	epoch 1 ── Settled ── NextEpoch ──> epoch 2 ── … ── Settled ── NextEpoch = false ──> TrainingDone
//
// Laws:
//
//  1. Within an epoch, todo + leased + settled tasks is constant.
//  2. Every record of an epoch is credited exactly once, and no record is in two live leases.
//  3. A report about a lease that its worker does not hold gives [ErrStale] and changes nothing.
//  4. A lost lease is not charged, however often; a failed one is. A task that failed too
//     often fails the queue, which names it; no task is ever dropped.
//  5. Progress within a lease is monotone, stays within the task, and outlives the lease:
//     who gets the task next begins after it. Evaluation is measured whole or not at all: its
//     progress, and that of the export, keeps a worker from being overdue, and is not credited.
//  6. The next epoch opens only after the last lease of this one is settled.
//  7. Same shards, same policy, same calls: same leases.
//  8. After [Queue.Rewind] exactly the records that are not in the ledger are to be done, no lease of before is held, and the
//     laws hold from there on.
//  9. What MaxRecords leaves out is never leased, and Stats tells how much it is.
//  10. A worker without progress is overdue after max(Timeout, 3 × the longest completed lease). Each
//     time that befalls a task its limit is doubled, up to 64 times: what is slow for everybody ends.
//  11. No call costs more for more tasks: tasks and their order are computed from their numbers. (order.go, cut.go)
package task
