// Package evaluation decides when which version of the model is measured on the validation data,
// and adds up what the workers measured. It does no I/O and reads no clock.
//
// While training continues, the servers take a snapshot each Steps versions, and hold it until
// the master has them release it, so that all records are measured on the same model:
//
//	 every server holds v        Begin             Report of the last task
//	─────────────────────> due ─────────> running ────────────────────────> Result[v]; release v
//	                         ^               │
//	  Final: the model as ───┘               └── a server lost its snapshot: withdrawn; release v
//	  it stands at the end
//
// Laws:
//
//  1. One evaluation runs at a time, and no version is measured twice. The last one, by Final, is
//     of the model as it stands when training is done, unless that version was measured already.
//  2. The result is the metric of all records together, whatever the order in which their tasks are
//     reported. A task that is reported twice counts once.
//  3. A result contains all its tasks, each measured on that version in that model generation, or
//     there is no result.
//  4. A snapshot without use is released: one that was measured or withdrawn, and those of servers
//     that hold snapshots of different versions. Release never falls. Servers that keep applying
//     updates reach a snapshot that all of them hold, if each remembers which versions were
//     released and takes no snapshot of them again.
//  5. A restored schedule, once the servers have reported their snapshots, has the same due,
//     measured and released versions as the one that was saved, except that a running evaluation is
//     due instead. Laws 1 to 4 hold from the saved state on; restored from an older one, an
//     evaluation may be made again. The saved state takes at most 4 KiB. An impossible one is
//     refused with an error.
package evaluation
