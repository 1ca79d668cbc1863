// Package lifecycle decides in which stage a job is in its master, and when the master ends the
// job, suspends it, or leaves it to the next master.
//
//	New, Restore
//	     │
//	     v       Plan                       Complete
//	Preparing ─────────────────> Training <──────────> Completing
//	     │                          ^       Rollback       │
//	     │ Plan, restored           │                      │
//	     └──────────> Recovering ───┘                      │
//	                      │      Recovered                 │
//	  ┌───────────────────┴────────── each of them ────────┘
//	  │
//	  ├── End: Succeeded, Failed ────────────────────> Ending ──> Run returns when the
//	  ├── Stop, Suspend,  ┐ Step: a checkpoint has ──>   │        pods have ended
//	  │   Yield           ├ what is in the model, or     │
//	  ├── Leave ──────────┘ the grace period is over ──┐ │ Supersede
//	  │                                                v v
//	  └── Supersede: another master has begun ───────> Left ──> Run returns at once
//
// A planned end is requested ([Lifecycle.Close], [Lifecycle.Stop]) in one stage and comes later, so
// that it loses no work: the request does not change the stage. Everything else changes it at once.
//
// A [Lifecycle] gets events, and returns [Action]s, which the master performs in their order. If a
// record cannot be written because another master has begun, the master drops the actions behind
// it, and calls [Lifecycle.Supersede]. [Lifecycle.Deadline] returns when [Lifecycle.Step] is to be
// called if nothing happens before.
//
// # How one drives it
//
//	l := lifecycle.New(policy, now)
//	perform(l.Plan(now))                           // the data is known
//	perform(l.Grant())                             // a task is leased
//	perform(l.Close(lifecycle.Suspend, facts, now))
//	perform(l.Step(facts, now))                    // after each change, and at the deadline
//	if l.Done(podsHaveEnded, now) {
//		return l.Left(), l.Err()
//	}
//
// Laws:
//
//  1. A job ends once, also if its master is lost meanwhile. State, reason and time of its end do
//     not change. After Left nothing is decided: the pods are the next master's.
//  2. An end is written before it is performed: the actions that end pods follow a record of the
//     end. The record of a master that leaves or suspends the job is its last one, and the first
//     with Last. A master that was superseded writes nothing.
//  3. A planned end waits for a checkpoint of what was in the model when it was first requested,
//     for Grace at most, and only while there are pods that may have it. The pods of a job that is
//     to stop, or to be suspended, have that time for a checkpoint of their own, too. A missed
//     checkpoint is reported; [Lifecycle.Unsaved] has the reason if processes missed theirs.
//  4. A stop beats every other request, and every other request beats one to yield. A second stop
//     ends the job at once, and so does one before the data is known. Requests that follow the
//     first do not extend the grace period.
//  5. A rollback of the model leads back from Completing to Training. Until a task is granted again
//     there is nothing to save.
//  6. A master that does not know what is in the model (Recovering) does not forget so when it ends
//     or leaves: its records of tasks are those of its predecessor.
//  7. [Restore] of a [Lifecycle.Snapshot] knows when the job began, whether something was trained
//     on in this generation of the model, and how the job has ended. It does not know of requests:
//     who wants the job to end asks the next master, too.
//  8. The master returns when all pods have ended, or Policy.End after the end of the job.
package lifecycle
