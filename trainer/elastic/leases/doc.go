// Package leases decides which process of a worker trains with which lease, and which of its
// records the master may credit.
//
// The master leases records to a worker. The processes of the worker's program train on them, and
// end at any time. A [Holder] gets what processes and the master say, and the time as an argument.
// Its agent is the shell: it makes the calls to the master, and delivers what the methods return.
//
//	h := leases.New()
//	h.Declared(dataset, grant)               // the master has accepted the data set
//	a := h.Ask(conn, now)                    // a process asks for a lease
//	if a.Kind == leases.AskMaster {          // call the master, with h.Held()
//		a = h.Answered(conn, grant, now) // or h.Unreachable(now)
//	}
//	first, whole := h.Round(conn, round)     // report the leases of whole to the master, in order,
//	all := h.Delivered(lease)                // and say when each report was delivered
//	whole = h.Met(conn)                      // the ranks have met without a round
//	h.Received(conn, progress)               // a process has received its state from another one
//	h.Free(conn)                             // a process has ended, all its messages are handled
//	h.Enter(floor)                           // a world begins
//	h.Status()                               // for heartbeats
//
// # Safe records
//
// A rank completes a round when it has the gradients of all ranks. Then these ranks have begun the
// round, but may be lost before they complete it, and this rank with them. When a rank completes
// the next round, all ranks have begun that one, so all have completed this one:
//
//	rank 0   ── round 7: records of lease 1 ──> completed ── round 8 ──> completed: those are safe
//	rank 1   ── round 7 ─────────────> completed ── round 8 begins ──┘
//
//	         Ask               Round, Received        next Round, Met     Delivered
//	granted ─────> of a process ──────> in its state ──────> safe ─ all of them: done ─> forgotten
//	   ^                │
//	   └── Free: from the first record that is not safe
//
// Laws:
//
//  1. A lease is given to one process at a time, the one with the lowest number first. It is given
//     again only when its process has ended, beginning with the first record that is not safe.
//  2. A record is safe only when it is in the state of every rank: when its process has completed
//     the next round of its world, or has met all ranks. The beginning of a world makes none safe.
//  3. A lease is reported to the master once, when all its records are safe.
//  4. Requests to the master name each lease as held until its report was delivered: otherwise the
//     master would grant it again.
//  5. Leases below the floor of a world are void: they are not reported, and not held.
//  6. If the master had no lease, or was unreachable, it is not asked again for [RetryAfter],
//     unless a round is completed or a world begins before. If it had no more records, it is not
//     asked until the next world.
//  7. The number of steps rises by one with each round of a world, however many processes complete
//     it, also if the world has begun with an older state.
//  8. Only the first round of the newest generation is reported as first.
//  9. The same calls return the same results.
package leases
