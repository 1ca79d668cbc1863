// Package verdict decides what the end of a program's processes means for its job: whether it
// counts against the retry budget, whether and when the processes start again, or whether the job
// fails.
//
//	worker comes back: Hear ─┐               ┌──────────────────────────────────────────┐
//	round completed: Advance ┼─────────────> │ Judge                                    │
//	                         │               │  which failure ended the world  (causes) │
//	next world: End ─────────┘               │  counted, doubted, the same as before?   │
//	                                         └───────┬──────────────┬───────────┬───────┘
//	                                                 │              │           │
//	                                        nothing to report    Restart   Verdict.Err:
//	                                        (a member is lost,   (Start:   the job fails
//	                                         nobody failed)       pause)
//
// A world ends when its workers come back from it. Each of them reports the failures of its
// processes. A failing process makes others fail, so at most one failure of a world is judged: the
// one that comes first in the table of causes, and of several of that cause the earliest.
//
// # How one drives it
//
//	j := verdict.New(verdict.Policy{MaxRestarts: 3})
//	pause := j.Start(2, now)                      // a world of two workers begins
//	j.Hear(verdict.Report{Worker: 0, Generation: 1, Failures: failures})
//	j.Hear(verdict.Report{Worker: 1, Generation: 1})
//	switch v := j.End(verdict.End{World: world, Next: next, Wanted: 2}, now); {
//	case v.Err != nil:
//		fail(v.Err)
//	case v.Text != "":
//		log(v.Text, v.Counted)
//	}
//	pause = j.Start(2, now)
//
// now is the time on a clock that stands still while the master does not run. [Judge.Waiting] says
// what the processes wait for before they start, and [StandsStill] what they wait for when they get
// on no further.
//
// Laws:
//
//  1. A world is judged once, and at most one failure of it counts, whatever its workers report and
//     however often. A report from another world than the last changes nothing that is counted.
//  2. A failure that is not the program's own never counts: the world has lost a member, or one was
//     asked to leave; the process was killed from outside, or may have crashed because it was
//     forked; it followed from a recall; or the world lacked workers that were on their way. A
//     process that was killed because it hung has failed on its own.
//  3. A doubt counts only as the last of mostDoubts worlds in a row, none of which completed a
//     round or ended by a failure that counts. So a restart that does not help ends, too.
//  4. The job fails exactly when more than MaxRestarts failures count, or when the program ends in
//     the same way mostSame times in a row (mostSameKept, if other processes kept the state)
//     without progress: a completed round, a new checkpoint file, or other output. So a program
//     that makes progress is never ended by kills.
//  5. Processes start again at once after a world that lasted. After brief worlds in a row they
//     wait longer each time, from the fifth on, at most longestPause. Workers that come back
//     meanwhile do not extend the wait, and those for which it waits end it.
//  6. Counts survive a restart of the master: [Restore] of a [Judge.Snapshot] has the same budget,
//     doubts and repetitions. How long the last world ran, its reports, its rounds and its pause
//     are not in it: a restored judge takes a world as one that lasted.
//  7. The same calls return the same verdicts.
package verdict
