// Package pod decides which pods of a job run, and which are replaced.
//
// A [Table] holds the pods of one job. The shell reports their phases (Observe, Refused), and
// answers with [Action]s, which the master's shell performs outside its lock. Each incarnation of a
// pod is in one [Phase]:
//
//	            Tick: due            Observe             Observe             Observe
//	┌────────┐ ──────────> ┌──────────┐ ────> ┌─────────┐ ────> ┌─────────┐ ────> ┌─────────┐
//	│ Wanted │  (Create)   │ Creating │       │ Pending │       │ Running │       │ Leaving │
//	└────────┘ <────────── └──────────┘       └─────────┘       └─────────┘       └─────────┘
//	    │        Refused        │ Refused, and     │                 │                 │
//	    │ Scale, End            │ nobody wants it  └─────────────────┼─────────────────┘
//	    v                       v                                    │ Observe
//	┌──────────────────────────────────┐            ┌────────────────┴─────────────┐
//	│            Cancelled             │            │ Succeeded | Failed | Deleted │ (Lost)
//	└──────────────────────────────────┘            └────────────────┬─────────────┘
//	                                                                 v
//	                             Judge: relaunch? counted? rejected? more memory? fatal?
//	                               │             │              │
//	  worker: next number, Wanted  │             │              └─ Err: the job fails
//	  server: next incarnation <───┘             └─ this line ends; the others continue
//
// An observation may skip phases. It may also be of a pod that is Wanted, if the answer to its
// creation was lost. The picture leaves out:
//
//   - how far a creation is (when it is due, how often it was refused, since when, whether for want
//     of room): only Wanted and Creating have it;
//   - the order, the reason of a Delete that was handed out: only what is there, or may be, has it
//     (Creating to Leaving). It is observed as Leaving, or as the end. A creation that is refused
//     because it was deleted meanwhile returns to Wanted;
//   - the line, which is a pod and those that replaced it: worker-4 after worker-0. It keeps the
//     slot of its first, which priorities go by, its counted failures, how often it ran out of
//     memory, and how often nodes rejected it. One pod of it is the current one. A worker that is
//     leaving has a successor at once, which is the current one then; a server is replaced only
//     when it has ended, since the next has its name. A line that is scaled down has no current
//     pod. Only current pods are replaced.
//
// The table as a whole is going, ending (after End: workers may leave on their own) or swept (what
// was left is deleted).
//
// # A master that comes back
//
// What pods there are the runtime lists; what befell them before only a table knows. The shell
// writes a [Snapshot] before it performs a creation, so that no number is given out twice, and when
// it likes besides. A new master, once the one before can perform nothing more but what was under
// way, calls [Restore] with the last one and the list:
//
//	in the snapshot   in the list         then
//	wanted, not due   -                   the same number, when it is due
//	else              there, or its end   as observed: continues; or judged, counted, replaced
//	else              -                   [Lost]; followed under another number, a server in
//	                                      another incarnation. If it comes late: deleted
//	-                 a live worker       in the place of one that is lost; without such a place it
//	                                      is deleted, if it does not leave on its own
//	-                 an ended one        nothing
//
// What a restored table does not know: orders to delete that were not performed (silent and slow
// pods are found again), the time that a pod has run (from then on the master's), the cause of a
// refused creation. If the end of the job was written, the shell sets Over. If more or fewer
// workers were asked for since than the snapshot wants, it calls [Table.Scale].
//
// # Narrated scripts
//
// testdata/*.txt tell what happens, as commands and the actions that the table returns:
// a_worker_is_lost.txt, a_server_is_lost.txt, creation.txt, scale.txt, the_end.txt and
// master_restarts.txt. TestNarration runs them, and rewrites them with -rewrite.
//
// Laws:
//
//  1. At most one pod per role and index is live, and at most one of a line that is not leaving.
//     Worker numbers are never used twice; a server keeps its index and its address, and its
//     incarnation number grows.
//  2. A pod that was killed, deleted, evicted or preempted, or whose node is lost, is replaced at
//     once and without limit, a worker once asked to stop. One that failed on its own is counted,
//     and replaced Relaunches times a line, each time after twice the delay; one that ran out of
//     memory also as long as there is more to give.
//  3. Two incarnations of one line are never closer than Backoff, so that nothing spins. One that
//     its node rejects is replaced without limit and not counted, after twice the delay each time
//     up to a minute, until one has run for a minute.
//  4. Phases only go forward, but for a creation that is refused: an event that is repeated, late,
//     or about a former incarnation changes nothing.
//  5. The loss of a pod is reported once ([Lost]), when it has ended, for any cause. One that was
//     cancelled never was.
//  6. With the actions performed and observed there is nothing more to do.
//  7. A creation that is refused, for whatever reason, is tried again, later each time up to half a
//     minute, and tells why: a worker's without end, so that the job continues with those that
//     exist; a server's for ten minutes. A pod that is hopeless, refused or pending, ends the job
//     at once if no pod of its role has ever run, and else nothing. Workers do nothing without the
//     servers, so none is created before they are, and for a server that is refused for want of
//     room one is given up.
//  8. After End nobody is replaced, and every pod that does not leave is deleted.
//  9. Laws 1 to 8 hold over restarts, with any snapshot that was written since the last creation
//     that was performed, whatever happened to pods meanwhile; but each master may report a loss
//     once, and none reports the loss of a pod that it did not know.
//  10. A table that is restored from its snapshot, with a list of all pods, has the same pods,
//     lines, counted failures, numbers, due times, number of workers and error as the one that was
//     saved.
//  11. A snapshot is of the size of the job: 64 KiB for 1,000 workers. One that cannot be is an
//     error.
//  12. Of a job in a queue the first workers that are created are of the core, as many as
//     Policy.Core says; no other is created at the same time. Whenever the core has fewer, the next
//     one that is created is of it; if none is to be created, another worker is replaced.
package pod
