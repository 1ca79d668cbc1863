// Package pod decides who lives, and who is replaced.
//
// A [Table] holds the pods of one job. It is told what became of them, and
// answers with [Action]s, which the master's shell performs outside its lock:
//
//	           Observe: Pending        Observe: Running      Observe: Leaving
//	Initial ──────────────────> Pending ──────────────> Running ──────────> Leaving ─> a worker is followed at once,
//	   │                           │                       │                   │       a server when it is gone
//	   └───────────────────────────┴───────────┬───────────┴───────────────────┘
//	                                           │ Observe: Succeeded, Failed, Deleted
//	                                           v
//	                           Judge: relaunch? charged? more memory? fatal?
//	                            │             │              │
//	      worker: next number   │             │              └─ Err: the job fails
//	      server: same number <─┘             └─ this line ends; the others go on
//
// A line is a pod and those that replaced it: worker-4 after worker-0. It keeps the
// slot of its first, which priorities go by, its charges, and how often it ran out of memory.
//
// Laws:
//
//  1. At most one pod per role and index is live, and at most one of a line that is not leaving. Worker
//     numbers are never used twice; a server keeps its index and its address, and its launch number grows.
//  2. A pod that was killed, deleted, evicted or preempted, or whose node is gone, is replaced at once and without
//     limit, a worker as soon as it is asked to go. One that failed by itself is charged, and replaced Relaunches
//     times a line, each time after twice the delay; one that ran out of memory also as long as there is more to give.
//  3. Two launches of one line are never closer than Backoff, so that nothing spins.
//  4. Phases only go forward: an event told twice, late, or about a former launch changes nothing.
//  5. The loss of a pod is told once ([Lost]), when it has ended and however it did.
//  6. With the actions performed and observed there is nothing more to do.
//  7. A creation that is refused is tried again, a worker's without end: the job goes on with those that are there.
//     A server that is refused for ten minutes, and a pod that is Hopeless, end the job.
//     Workers do nothing without the servers, so none is created before they are, and for a server that is refused
//     for want of room one is given up.
//  8. After End nobody is replaced, and every pod that does not leave is deleted.
package pod
