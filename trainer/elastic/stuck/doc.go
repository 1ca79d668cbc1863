// Package stuck suspects that the processes of a job make no progress. It knows nothing of their
// code: it has their output, their use of processors, the bytes that they move, and the job's
// rounds if it counts any. A suspicion is a reason to look at the stacks, not a proof.
//
// A [Watch] raises suspicions. An [Inquiry] has one, and looks at the stacks before it states
// anything:
//
//	Observe ──> Watch: suspicion ──> Ask ──> Answer ──┬─ a debugger: nothing
//	   ^                                              ├─ computes, and moves: a false alarm
//	   └── a sign of life: Clear <── State <──────────┘
//	                                   └─ --hang_timeout ──> Ask ──> Answer ──> Kill
//
//	q := stuck.NewInquiry(stuck.Policy{Kill: timeout})
//	for observation := range everyTwoSeconds {
//		for _, action := range q.Observe(now(), observation) {
//			perform(action) // Ask: later Answer; State, Clear: tell users; Kill
//		}
//	}
//
// # Signs of life
//
// A job lives as long as one of its ranks gives a sign:
//
//	output        a rank has written something
//	progress      the job's rounds, steps or records have changed
//	flow          a rank moves 32 KiB/s or more, to files or over the network
//	held          a debugger or a user holds a rank, so that nothing is expected of any
//	a new process a rank has started again
//
// A job without a sign for 45 s is judged by the processors that its ranks use, if each of them has
// either computed or waited for the last 30 s. A rank that wants a processor and gets none counts
// as one that computes.
//
//	all compute   no suspicion: evaluation at full load looks the same
//	all wait      suspected: they wait for a message, a lock or the end of a sleep
//	both          suspected: some wait for the others, or spin for one that sleeps
//
// # False alarms
//
// An alarm may be false: one rank evaluates while the others wait for it, or all of them wait for
// another system. The job shows that by its next sign of life, or because a rank changes between
// computing and waiting. Then its next pause is suspected only when it is twice as long, so that an
// evaluation after each epoch raises one alarm. A transfer of less than 32 KiB/s raises one, and so
// does work on a GPU for which the ranks wait without using a processor.
//
// Of ranks that compute, the inquiry takes the stacks three times within some seconds, each with up
// to eight looks, which count only if the rank has run in between. If one has moved, that alarm is
// false, and is not stated. So an evaluation by one rank raises none, unless it stays in one call,
// or at one line, for seconds. Of a rank that gets no processor nothing is stated.
//
// Some hangs look like work, and are not found:
//
//   - All ranks use processors, as when one loops and the others spin in NCCL.
//   - A thread still writes lines or moves bytes, as a monitor or a progress bar may.
//   - One rank hangs in a program whose ranks do not wait for each other.
//   - A rank changes between computing and waiting, as in a loop that tries again and again.
//   - A rank computes in a loop of its language, so that its stack changes.
//
// # Laws
//
//  1. No suspicion is raised sooner than 45 s after a sign of life, nor sooner than 30 s after a
//     rank has changed between computing and waiting, nor while all ranks compute.
//  2. A job whose ranks give no more signs, and of which one waits, is suspected within 60 s, if it
//     is observed every 2 s and none of its alarms was false.
//  3. After a false alarm no pause is suspected until it is twice as long as that one was, or 4 h.
//     A new process and a debugger prove no alarm false.
//  4. A suspicion holds until the next sign of life or change.
//  5. The same calls return the same suspicions, in any order of the ranks.
//  6. An inquiry asks for stacks only while a suspicion holds, and not again before an answer.
//  7. Nothing is stated, and nobody killed, while a debugger is in the stacks of a rank. Each
//     statement is cleared once, before the next one.
//  8. Processes are killed at most once after a statement, no sooner than Policy.Kill after the
//     last sign of life, and only if each rank stands at the line where it stood then. If no rank
//     differs, all are.
package stuck
