// Package admission decides when a job in a queue gives its quota back.
//
// Kueue admits the pods of a job one by one. Its core, without which it makes no progress, is the
// master, the servers and the workers that it needs at least. Two jobs of which each has a part of
// its core would wait for each other without end: each holds what the other lacks. So a job does
// not hold a part of its core for long:
//
//	         a pod of the core             half of the time          the time is over
//	Complete ────────────────> Waiting ──────────────────> Waiting ───────────────> yields
//	   ^      waits for quota     │       (Shed)                         (Yield)       │
//	   └──────────────────────────┘                                                    │
//	     none waits any more                                                           v
//	                             the next master begins after a pause: New(p, attempts)
//
// [Shed] deletes workers beyond the core, whose quota may suffice. [Yield] ends all pods, also the
// master's, after a checkpoint. The launcher, which starts the next master, holds no quota. The
// time that a job waits is random, and longer for one of which a greater share is admitted: so the
// job that is nearest to its start is the last to yield. The pauses are random, and grow with the
// attempts in a row that failed, as those of Ethernet do (binary exponential backoff, IEEE 802.3):
// the jobs that compete become fewer until one of them gets all that it needs.
//
// How one drives it:
//
//	a := admission.New(policy, attempts)
//	perform(a.Step(facts, now)) // after each change of the pods, and at the time of a.Deadline()
//
// Laws:
//
//  1. Nothing is given back while no pod of the core waits for quota.
//  2. A job yields at most once, after Timeout at the earliest, and after 3·Timeout at the latest
//     if a pod of its core waits all that time.
//  3. A job sheds no more workers than pods of the core wait, and none before half of Timeout.
//  4. Any number of jobs, each of which fits the quota alone, get through, in any order.
package admission
