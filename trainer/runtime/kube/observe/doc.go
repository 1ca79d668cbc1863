// Package observe reads what a cluster says of a job: how its pods are and why they ended, what its
// Job's conditions mean, and whether a request that failed may succeed later. Both sides read it by
// this package: the user's (package kube) and the master's (package incluster). It asks nothing
// itself.
//
//	core.Pod  ──Pod──> pod.Event, for the table of pods;  Exit, Waiting, ImageMissing say why
//	batch.Job ──Failure, JobCondition, Suspended──> what becomes of the job
//	error     ──Transient, Unreachable──> ask again, or tell the user;  Denied says why not
//
// Laws:
//
//  1. The same object gives the same result, for every reader at any time: there is neither a clock
//     nor a memory here.
//  2. Causes of a pod's end are distinguished: the pod on its own, its memory, its node, deletion,
//     eviction or preemption. The cluster's report counts more than the exit code.
//  3. A reason is one line, the last one that is not empty; a killed process has none of its own.
package observe
