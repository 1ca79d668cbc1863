// Package custody decides, from which processes hold the model, what the master does when one of
// them joins or is lost: which model generation it is, from which checkpoint a new generation
// begins, when a checkpoint is made, and which records of a lost worker are credited. It does no
// I/O and reads no clock.
//
// A model generation is a period in which no part of the model was lost. Generations are numbered
// from 1.
//
// [Servers] is for a job with parameter servers: each holds a range of the values, the optimizer's
// slots of it, and a ledger of the records that were applied to it.
//
//	          Join                  Acknowledged(order of this generation)
//	absent ─────────> joined, behind ───────────────────────────> current
//	  ^                    ^                                         │
//	  ├── Leave ───────────┼────────────────── Leave, a later Join ──┤
//	  │   (a joined one:   └──────── the generation is raised ───────┘
//	  │    the generation is raised)
//
// Parameter servers are not replicated: when one is lost, so are its values and the training steps
// that made them. Then all servers begin a new generation with a [Base], which is the newest
// complete checkpoint or the initial values, and the master rewinds its ledger to it.
//
// A checkpoint is an aligned cut ([Cut]). Each holder stops accepting new gradients and reports its
// ledger. The union of these ledgers is the target: each holder accepts the gradients of it that it
// lacks, and nothing else, until it has all of it. Then it copies its values and accepts new
// gradients again; the copies are written in the background. A cut is given up, and tried again
// later, if a gradient of the target does not reach all holders in time. The members of a ring have
// the same state after each round, so one of them copies it between two rounds.
//
// [Ring] is for a job without parameter servers, each worker of which holds the whole model. The
// model is lost only with the last worker that has it. A record may be credited only when it is in
// the state of every survivor. A world is safe when the state that it began with survives the loss
// of any of its members: when all members that had a state had the same one, or when its members
// have come through the beginning of a round, in which that state is passed on to all.
//
// # Narrated scripts
//
// testdata/servers.txt, ring.txt and checkpoint.txt tell what happens when a server, a worker of a
// ring, the whole ring or the master is lost, and how a checkpoint is made. TestNarration runs
// them, and rewrites them with -rewrite.
//
// # Laws
//
// Laws of Servers:
//
//  1. The generation rises when a server that had joined is lost, or when another process joins in
//     its place, and at no other time. It never falls. Another process has another incarnation, or
//     the same one where a cluster restarts a container in its pod (--restart_policy).
//
//  2. An incarnation older than one that has joined is refused, and none of its reports counts.
//
//  3. Nothing reported or acknowledged in another generation counts: no version, no snapshot, no
//     order.
//
//  4. An order describes a state, not a change. It stays due until the present incarnation of the
//     server has acknowledged exactly that order, and is due again when the server's reports
//     contradict it.
//
//  5. An epoch is applied when every server has acknowledged, in this generation, that it is
//     settled.
//
//  6. A generation begins with the base that was noted last before it began, and with nothing else.
//
//  7. After a restart of the master the generation continues if every server joins with its values,
//     or if it is certain that no record was trained on in it. If not, the new generation is
//     numbered above any that a server knows of, and any that the master's predecessor may have
//     begun. Until that is decided no order is due.
//
// Laws of Cut:
//
//  8. All copies of a cut have the same records: those that any holder had when the cut began, and
//     no others.
//  9. A cut is complete when every holder has written its copy under the cut's number. A report of
//     another number changes nothing.
//  10. No holder is held for longer than Hold, which doubles up to HoldMost each time that it was
//     too short.
//
// Laws of Ring:
//
//  11. The generation rises when the last member that had the model is lost after any training, and
//     at no other time. The first generation that begins after a restart of the master is numbered
//     above any that its predecessor may have begun.
//  12. The training leases of a lost worker are taken back when a world without it is safe. Exactly
//     those of their records are credited that are in the state with which that world began.
//  13. A member's report of a model that is lost does not count.
package custody
