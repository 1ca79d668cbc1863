// Package incluster is the master of a job in a cluster, and the launcher that keeps it running.
// The launcher is the main of the pod of the job's Job. It creates the pod of the master, as
// package launch decides. The master gives [master.Run] the pods of the cluster, a memory that
// outlives it, and the changes that users make to the job.
//
//	the Job ── its pod ──> RunLauncher ── create, replace ──> elasticdl-JOB-master ──> RunMaster
//
//	API server                          the master's pod
//	──────────                          ────────────────
//	the spec ── numWorkers, watched ────────────> RunMaster ─> master.Run
//	events <───────────────────────────── eventWriter <──┤ │  ^
//	the state <────────────────────────────── recorder <──┘ │  ^
//	the Secret <── the authority, once ──> certifier        v  │ pod.Event
//	the cluster's keys ────────────────────────^      Runtime, a master.Pods
//	pods ps-I, worker-N <────── create, delete ───────────┘  ^
//	  └──────── list, watch ──> package observe ─────────────┘
//
// A master is driven by one call, which returns when the job is over or the master has to leave:
//
//	err := incluster.RunMaster(ctx, incluster.MasterConfig{
//		Job: name, Namespace: namespace, Environ: os.Environ(), Output: os.Stderr,
//	})
//
// A master's requests are repeated as long as the API server does not answer, in bounded parallel
// and at a bounded rate. Its refusals return to the table of pods, which waits longer each time,
// and shows why.
//
// Laws:
//
//  1. The end of each created pod is reported once, also if its object was never seen, or was
//     deleted and replaced by another of its name while nobody could watch: a pod that a newer list
//     lacks is deleted.
//  2. The cluster's last report of a pod is in its end: whether it was preempted, evicted, or its
//     node lost.
//  3. A creation whose answer is lost is done once. A deletion is of one pod, and never of the next
//     of its name.
//  4. Pods of another job, or of one of the same name before, are not touched.
//  5. A pod that still exists ten seconds after its grace period is on a node that does not answer,
//     and is deleted by force.
//  6. Of the masters of a Job one writes at a time. Each start of one raises the incarnation in the
//     state by compare-and-swap, which locks out those before: what they write then, status or
//     record, is refused, and they end and touch no pod. The state of another Job of the name is
//     ignored.
//  7. A master continues with the record of the one before. Without one nothing of the Job is
//     begun: it begins when the pods of a former Job of its name are deleted, which would take its
//     master for theirs.
//  8. A job whose end is written is not run again. The exit code is 0 only if it is written that
//     every record was done. A job fails in this order: that is written, its pods are deleted, its
//     Job may start no other master, the process ends.
//  9. A master that is asked to go does what its Job says: deleted, or over its deadline, the job
//     stops; suspended, its pods are ended until it is resumed; else they work on, and the next
//     master finds them ([Runtime.Adopt]).
//  10. Incidents of the job, and failures and refusals of its pods, are events of its Job: few,
//     however often that happens. They are written before the master's process ends, if the API
//     server answers. No job waits for an event while it runs, or fails for want of one.
//  11. Servers and workers prove which pod they are by a token that the cluster signed for this job
//     and that is bound to a pod which the master made, and lives; a pod has certificates of one
//     key.
package incluster
