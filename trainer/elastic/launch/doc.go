// Package launch decides when a job's next master starts, after the one before has ended.
//
// [Restarts] is the pause before the next master. A launcher of this machine needs nothing else:
// its masters are its own processes. On Kubernetes the master is a pod of a fixed name, which
// outlives its launcher and may be on a node that does not answer. [Launcher] decides for it.
//
//	           Seen                    Seen: it has failed
//	Unknown ──────────> Present <────┐ Deleted
//	   │                   │         │
//	   │ Deleted           v         │ Create
//	   └───────────────> Absent ─────┘ after a pause, if the Job is to continue
//	                       │
//	                       │ the master has succeeded, or the Job is not to continue
//	                       v
//	                     Ended: so does the launcher, and the Job with it
//
// How one drives it:
//
//	l := launch.New(begun)
//	perform(l.Seen(launch.Pod{…}, now))   // the pod of the master's name, at each change of it
//	perform(l.Deleted(uid, now))          // there is none
//	perform(l.Job(launch.Continues, now)) // the answer to Ask
//	perform(l.Rests(until, now))          // or this one
//	perform(l.Leave(now))                 // the launcher itself is asked to terminate
//	perform(l.Tick(now))                  // at the time of l.Deadline()
//
// Laws:
//
//  1. A pod is created only when none of its name is there, and only after the Job was read and was
//     to continue: once for each answer.
//  2. The launcher ends with success only if the master has.
//  3. A pod is deleted without its grace period only if it was asked to terminate before, and its
//     node does not answer or its grace period is over.
//  4. A pod of another Job is never asked to terminate. One of a former Job of the name that was is
//     deleted like the own.
//  5. A launcher that is asked to terminate deletes the master only if the Job is not to continue.
//     Otherwise it leaves at once, and the master works on.
//  6. A master that was lost by no fault of its own is replaced at once. Pauses grow only while
//     masters crash, up to 10 seconds, and a master that has lived for 10 seconds resets them.
//  7. The pod of the last master stays, with its log: one that is known to have ended is deleted
//     only if another follows, after the pause. A master that has made its Job fail has 30 seconds
//     for its end.
//  8. The launcher makes the Job fail only if no master has ever run: creations are denied for ten
//     minutes, and that does not pass unless somebody acts.
//  9. A job that has given back the quota of its queue gets its next master when its pause is over.
//     Whenever a master has waited for quota for twice the time that the core may wait, the other
//     pods of the job are deleted: they may hold what another job waits for, and without a master
//     nobody gives it back.
package launch
