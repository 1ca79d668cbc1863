// Package kube is the user's side of jobs on Kubernetes: it submits them, reads their status,
// changes and stops them, and copies data to claims and back. Package incluster runs in the pods of
// launcher and master; what both sides read out of objects and errors is package observe. No other
// package of the trainer talks to Kubernetes.
//
//	user's side                            API server                          the master's pod
//	───────────                            ──────────                          ────────────────
//	Client.Submit ───────────────────────> the objects (package manifest) ───> incluster.RunMaster
//	Client.Scale ────────────────────────> numWorkers of the spec ───────────> follows it
//	Client.Suspend, Resume ──────────────> suspend of the Job ───────────────> ends its pods
//	Client.Status, List, Logs, Wait <───── the state, objects, logs <───────── writes the state
//	Client.Stop ─────────────────────────> the Job is deleted, and with it all that it owns
//	Client.CopyToClaim, CopyFromClaim <──> a pod that mounts the claim runs [Receive] or [Send]
//
// Everything begins with a Client of a place:
//
//	c, err := kube.Connect(kube.Place{Namespace: "training"})
//	problems, err := c.Preflight(ctx, j)
//	created, err := c.Submit(ctx, j)
//	status, err := c.Wait(ctx, j.Name, func() { … }) // called when the job is found suspended
//
// Laws:
//
//  1. A request that the cluster does not answer is repeated: not for long if it has never
//     answered, since its address is wrong then; for long if it has, since API servers are
//     restarted. A refusal is reported at once, with what to do.
//  2. A job starts when all its objects exist: its Job is suspended until then. If not all can be
//     created, none remains.
//  3. A creation whose answer is lost is done once. A deletion affects the job that was read, and
//     no other of its name.
//  4. A state counts only if it is of the existing Job; what a Job says of its end counts more than
//     its state.
//  5. A copy is complete or absent: the receiver renames what it has received when the sums agree.
package kube
