// Package supervise decides about the processes of a user's program on one worker: when they start,
// enter a world, leave it, and are ended, and what is reported to the master.
//
// A [Supervisor] gets [Event]s and returns [Action]s. Its agent is the shell: it tells what has
// happened, and performs the actions in their order.
//
//	s := supervise.New(policy)
//	events := []supervise.Event{supervise.Begin{}}
//	for {
//		var answers []supervise.Event
//		for _, action := range s.Handle(now(), events...) {
//			answers = append(answers, perform(action)...) // Start's is Started, Open's is Opened, …
//		}
//		if events = answers; len(events) == 0 {
//			events = waitUntil(s.Deadline()) // a process exits, a world is assigned, …
//		}
//	}
//
// # Phases
//
//	  Begin
//	    │ processes that keep state: Preparing │ a newcomer: Warming
//	    v                                      v
//	Meeting <───────────────────────────────────────────────────────────────┐
//	    │ World                                                             │
//	    v                                                                   │
//	BackingOff ─ a pause ─> Starting ─> Entering ─> Running                 │ Arrive
//	    │ the world is over before            a failure: Lingering          │
//	    │                                     the worker leaves: Draining   │
//	    │           ┌─ a recall, a newcomer ─────────┤                      │
//	    │           v                                │ a member or a        │
//	    │       Recalling: the processes leave       │ process is lost      │
//	    │           │      after a round             v                      │
//	    │           └──────────────────────> Breaking ─> Killing ─> Completing, Reaping
//	    └───────────────────────────────────────────────────────────────────┘
//	any phase ─ End ─> Ending ─ no process is left ─> Ended
//
// Processes that use the package and keep their state live through worlds: they are recalled,
// arrive, and receive the next world. Other processes end with their world and start again. Those
// of them that use the package end on their own after a round, unless a member is lost, so that
// they can write what they have. A process that has completed the training needs no further world.
// It continues with what the script does afterwards, and ends on its own.
//
// Laws:
//
//  1. Processes of two worlds never run at once, except for those that keep their state and
//     enter the next world. Arrive comes only when no process takes part in a world. Finish comes
//     when no process is left, or the processes have survived SIGKILL for 30 s.
//  2. A process that fails on its own is reported to the master once, with its cause, also while
//     its world ends. One that was ended on purpose is not.
//  3. A worker that is to leave starts no processes. It reports that it can leave when its
//     processes have ended, when they wait for the recall of the others, or when it has finished.
//  4. A loss ends a world at once. A recall ends it after a round, or not at all: after the
//     training all complete what follows it, and processes that keep no state start again for
//     newcomers only as --restart_on_join says.
//  5. Nobody waits without a limit for a process that must leave its world at once: it is
//     killed when a task may take no longer. Processes past the training have as long again to
//     complete.
//  6. A process that is stopped by a signal for the heartbeat timeout is killed, and counts as
//     failed. So is one that the master judges to hang, once, if its world still works.
//  7. A worker has finished when all its processes of the world have ended with 0, everything
//     is handled that they had said, and the master knows of all leases that have ended.
//  8. A process gets SIGTERM once. It has the restart grace if processes are to start again,
//     and the whole grace period if the worker leaves or the job ends, whichever is reported first.
//  9. Messages on the connection of another process than those of this worker have no effect,
//     and such a process is ordered to end. So is one that connects after it was ordered to end:
//     it would be killed in its next world.
//  10. The answer to the master's question about records is never older than the question.
//  11. A worker whose processes were all killed from outside before they joined a world counts as
//     lost, and as failed otherwise. A process that was killed counts as out of memory if the
//     kernel's OOM killer has killed processes of its worker since their world began.
//  12. While others train, they do not wait for a process that has yet to make its model: it comes
//     when it has. Until then it has a rank above theirs.
//  13. The same calls return the same actions. After each call, Deadline is later than now or
//     zero.
package supervise
