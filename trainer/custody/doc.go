// Package custody knows who holds the model, in which life of it, and what follows from a loss.
//
// A life of the model is the time in which nothing of it was lost. It has a number, from 1. [Servers] is of a job with
// parameter servers: each holds one stretch of the values, its optimizer's slots, and the markers of what was applied to
// them.
//
//	          Join                     Told(order of this life)
//	absent ─────────> joined, behind ───────────────────────────> current
//	  ^                    ^                                         │
//	  ├── Leave ───────────┼────────────────── Leave, a later Join ──┤
//	  │   (a joined one:   └──── the life is raised ─────────────────┘
//	  │    the life is raised)
//
// There is no replica: the values of a server that is gone are gone, and so are the training steps that were made with them. All
// servers begin a new life then, with a [Base], which is the last checkpoint that is at rest, or the initial values; and the shell
// rewinds its books to that.
//
// A checkpoint is an aligned cut ([Cut]): each holder says what it has and takes nothing new, all come to the union of that, copy
// it, and go on; the copies are written meanwhile. It is given up when a gradient of the union does not come to all in time, and tried
// again later. A ring's members have the same state after each round: there one of them copies it between two rounds.
//
// [Ring] is of a job whose workers hold the whole model each. Nothing is lost there as long as one lives who has it. But what is
// credited must be in the state of whoever survives: a world is safe when no death of its members can take back what it
// began with, which is so if all who had a state had that one, or when its members have come through the beginning of a round.
//
// Laws of Servers:
//
//  1. The life rises when a server that had joined is gone, or another process joins in its place, and never else. It
//     never falls. Another process is another incarnation, or, where a cluster restarts a container in its pod
//     (--restart_policy), the same one.
//
//  2. An incarnation that is older than one that has joined is refused, and nothing it says counts.
//
//  3. Nothing that was said or acknowledged in another life counts: no version, no snapshot, no order.
//
//  4. An order is a level: it stays due until the server has acknowledged exactly it, in the incarnation that is there, and is
//     due again when what is observed is not as ordered.
//
//  5. An epoch is applied when every server has acknowledged, in this life, that it is settled.
//
//  6. A life begins with what was kept when it began, and with nothing else.
//
//  7. The life of a master that has come back goes on if every server joins with its values; else the one that begins is later than
//     any that a server knows of, and than any that the master before may have begun. Until that is known nothing is ordered.
//
// Laws of Cut:
//
//  8. What all copy has the same records, those that any of them had when the cut began, and no others.
//  9. A cut is done when every holder has written its copy, each under the cut's number; a word of another number changes nothing.
//  10. Nobody is held up for longer than Hold, which doubles up to HoldMost each time that it was too short.
//
// Laws of Ring:
//
//  11. The life rises when the last member that had the model is gone, if anything was trained on, and never else. The first one that
//     begins after a master has come back is later than any that the one before may have begun.
//  12. The training leases of a worker that is gone are taken back when a world without it is safe, and credited with exactly
//     what that world began with.
//  13. What a member says of a model that is lost does not count.
package custody
