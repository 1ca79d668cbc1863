// Package master runs a job. It is the shell round the machines that decide:
//
//	workers, servers ──gRPC──> service ─┐   one mutex    ┌─ task.Queue           which records are whose
//	runtime ────────pod.Event─> loop ───┼─────────────────┼─ pod.Table            who lives, who is replaced
//	timer ──────────────────────────────┘   (advance)     └─ evaluation.Schedule  what is measured when
//	                                            │
//	     executor: create and delete pods  <────┤ actions, performed outside the mutex
//	     links:    tell and ask the servers <───┘
//
// Whatever happens, a call, an event or the timer, steps a machine under the
// mutex and then calls advance, which looks at where the job stands and does
// what is next. There is one timer, set to the least of the machines'
// deadlines. Nothing polls: a worker's GetTask waits for a change.
//
//	training ── last epoch settled ──> measuring ──> exporting ──> leaving ──> Run returns
//	     │                            (validation data) (--output)    ^
//	     └── a machine's Err, Stop, ctx ──────────────────────────────┘
//
// Laws:
//
//  1. A job succeeds if and only if every record of every epoch was credited. Otherwise
//     Run's error says why, and names what was not done.
//  2. The leases of a pod that is gone stay held until the servers were asked how much of
//     them they have, for a second at most; the least that any of them has is credited.
//  3. An epoch ends when every lease of it is settled and every server has applied what it
//     gathered. The next one opens then.
//  4. A GetTask whose reply was lost loses nothing: the worker says what it holds, and
//     gets first what it was granted and does not know of.
//  5. A pod that is unknown or was replaced is told to leave. One that has been heard and is
//     silent for --task_timeout, or shows no progress for as long as [task.Policy]
//     says, is deleted and replaced.
//  6. When Run returns, every pod is gone, or the runtime did not say so for endLimit.
package master
