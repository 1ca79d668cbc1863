// Package audit proves from what a job has left that each training record was applied to its model
// exactly once per epoch, and names the records that were not.
//
//	account of credits (elastic/book) ──┐
//	journal (elastic/journal) ──────────┼──> [Check] ──> [Report]: proved, violated, incomplete,
//	state of the job ───────────────────┘                 or unprovable, with findings
//
// The evidence is the record that the master writes: the [book.Saved] and the journal of one
// moment. The book has the data of the job, so that the proof needs neither the data itself nor the
// master.
//
// # What is proved
//
//   - Every finished epoch is in the book once, and the sum of its stretches is that of the job's
//     data. Sums are explained in package book: a record that was credited twice or never makes a
//     wrong one.
//   - The stretches of the open epoch have the sum that was added up when they were credited.
//   - The journal has the end of each epoch once, or once more after each rollback that undid it,
//     with the number of records that the data has, and as many ends as the book counts.
//
// # What is trusted
//
// A record is credited when the holders of the model have acknowledged its gradient: each of the
// parameter servers, or the state of every rank. That they apply a gradient when they acknowledge
// it, and once, is their law; tests with a model that counts its records hold it. After a loss the
// book takes the ledger of the holders, or of the checkpoint, for the truth.
//
// Laws:
//
//  1. Evidence in which one entry of the book or of the journal is missing, doubled or changed is
//     not proved, and the finding names the epoch, and the records of an entry of a task.
//  2. Evidence of a job whose records were each credited once, with any rollbacks, is proved.
//  3. Check returns at most [MostFindings] findings, and counts the others.
package audit
