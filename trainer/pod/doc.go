// Package pod decides who lives, and who is replaced.
//
// A [Table] holds the pods of one job. It is told what became of them, and
// answers with [Action]s, which the master's shell performs outside its lock:
//
//	           Observe: Pending        Observe: Running
//	Initial ──────────────────> Pending ──────────────> Running
//	   │                           │                       │
//	   └───────────────────────────┴───────────┬───────────┘
//	                                           │ Observe: Succeeded, Failed, Deleted
//	                                           v
//	                           Judge: relaunch? charged? fatal?
//	                            │             │              │
//	      worker: next number   │             │              └─ Err: the job fails
//	      server: same number <─┘             └─ this line ends; the others go on
//
// A line is a pod and those that replaced it: worker-4 after worker-0. It keeps the
// slot of its first, which priorities go by, and its charges.
//
// Laws:
//
//  1. At most one pod per role and index is live. Worker numbers are never used twice;
//     a server keeps its index and its address, and its launch number grows.
//  2. A pod that was killed, deleted, evicted or preempted, or whose node is gone, is replaced
//     at once and without limit. One that failed by itself is charged, and replaced
//     Relaunches times a line, each time after twice the delay.
//  3. Two launches of one line are never closer than Backoff, so that nothing spins.
//  4. Phases only go forward: an event told twice, late, or about a former launch changes nothing.
//     Hence [Table.Relist] with the last event of each pod does what those events did.
//  5. The loss of a pod is told once ([Lost]), however it ended.
//  6. With the actions performed and observed there is nothing more to do.
//  7. After End nobody is replaced, and every pod that does not leave is deleted.
package pod
