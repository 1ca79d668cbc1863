// Package evaluation decides which version of the model is measured when, and folds what the workers measured.
//
// While training goes on, the servers take a snapshot each Steps versions and hold it until
// they are told to release it, so that all records are measured on one and the same model:
//
//	 every server holds v        Begin             Report of the last task
//	─────────────────────> due ─────────> running ────────────────────────> Result[v]; release v
//	                         ^               │
//	  Final: the model as ───┘               └── a server lost its snapshot: withdrawn; release v
//	  it stands at the end
//
// Laws:
//
//  1. One evaluation at a time; no version is measured twice. The last one, by Final, is of the
//     model as it stands when training is done, unless that version was measured already.
//  2. The result is the metric of all records together, in whatever order their tasks are reported,
//     and a task that is reported twice counts once.
//  3. A result has all its tasks in it, each measured on that version in that life of the model, or it does not exist.
//  4. A snapshot that is no use is released: one that was measured or withdrawn, and those of
//     servers that missed each other. Release never goes back. Servers that keep on applying updates come to a
//     snapshot that all of them hold, if each remembers what was released and takes no snapshot of that any more.
//  5. A schedule that is restored from what was saved, and to which the servers have told what they hold, has the same due, measured and
//     released as the one that was saved, but for what was running: that is due. Laws 1 to 4 hold on from what was saved; with an
//     older one an evaluation is made again. What is saved is at most 4 KiB. What cannot be is an error.
package evaluation
