// Package journal keeps what has happened to a job: a bounded list of typed entries, totals that
// are never dropped, and the conditions of the job.
//
//	master: Event ──> Entry ──> Journal.Add ──┬──> Snapshot ──> record of the master ──> Restore
//	                                          │
//	        status: Incidents, Conditions <───┤
//	        events of Kubernetes              ├───> Totals: metrics
//	        elasticdl events, the page   <────┘
//
// All views of a job are made from it, so that they agree. No view reads log lines.
//
// # How one drives it
//
//	var j journal.Journal
//	lost := journal.Entry{Kind: journal.PodLost, Pod: "worker-1", Cause: "preempted", Text: text}
//	lost = j.Add(lost, now)
//	saved := j.Snapshot()
//	j = journal.Restore(saved)
//	conditions := j.Observe(journal.Judge(facts), now)
//
// The caller gives the time. A [Journal] does no I/O and holds no lock.
//
// Laws:
//
//  1. Entries are numbered from 1 in the order in which they were added, over all masters and
//     resumes. Numbers only rise; entries that were dropped leave a gap.
//  2. A journal has at most [Most] entries and [MostBytes] bytes. If it has too many, the oldest of
//     the kind that takes the most bytes is dropped: many entries of one kind drop none of another.
//  3. Totals count every entry that was ever added, those too that are dropped.
//  4. A condition has the time of its last change of status. Another reason or message does not
//     change that time.
//  5. Restore of a Snapshot is the same journal: it answers all later calls as the saved one would.
package journal
