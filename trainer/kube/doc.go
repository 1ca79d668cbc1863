// Package kube runs jobs on Kubernetes, and is the only one that talks to it.
//
//	user's side                       API server                  the pod of the master's Job
//	───────────                       ──────────                  ───────────────────────────
//	Client.Submit ───────────────────> the objects (package manifest)
//	Client.Scale ────────────────────> numWorkers of the spec ──────────> RunMaster ─> master.Run
//	kubectl events <────────────────── events <───────────── eventWriter <──┤ │  ^
//	Client.Status, List, Logs, Wait <─ the state <───────────── recorder <──┘ │  ^
//	Client.Stop ─────────────────────> the Job is deleted                     v  │ pod.Event
//	                                   and with it all that it owns     Runtime, a master.Pods
//	                                   pods ps-I, worker-N <─── create, delete ──┘  ^
//	                                     └──── list, watch ──> observe ─────────────┘
//
// A master's requests are repeated as long as the API server does not answer, in bounded parallel and at a
// bounded rate. What it refuses goes back to the table of pods, which waits longer each time, and shows why.
//
// Laws:
//
//  1. Of each pod that was made one end is told, also if its object was never seen, or was gone and another of its name
//     there, while nobody could watch: what a list lacks that is younger than the pod is gone.
//  2. What the cluster said of a pod before it was gone is in its end: whether it was preempted, evicted, or its node lost.
//  3. A creation whose answer is lost is done once. A deletion is of one pod, and never of the next of its name.
//  4. Pods of another job, or of one of the same name before, are not touched.
//  5. A pod that is not gone ten seconds after its grace is on a node that does not answer, and is taken from it.
//  6. A job is begun once. The state names the master that began it; another one ends the job and what was left of it, and a
//     master that finds another's name gives way. It begins when the pods of a former Job of its name are gone, which would
//     take its master for theirs.
//  7. The last state is written before the master's process ends, if there is any way to do so; its exit code is 0 if
//     and only if every record was done.
//  8. What befalls the job as a whole, and failures and refusals of its pods, are told by events of its Job: few, however often
//     that happens. They are written before the master's process ends, if the API server answers. No job waits for an event
//     while it runs, or fails for want of one.
package kube
