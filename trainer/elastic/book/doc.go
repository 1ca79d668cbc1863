// Package book keeps evidence of which training records a job has credited: a second account
// next to the queue of tasks, with which it shares no state.
//
// A [Book] is given each stretch of records [from, to) of a task when it is credited. For the open
// epoch it has the stretches of each task; for a finished one it keeps a number of records and a
// sum. The master writes it into its record, and elastic/audit proves from it that each record was
// credited exactly once per epoch.
//
//	b := book.New(saved)            // of the master before, or empty
//	err := b.Plan(data)             // what the job trains on
//	b.Enter(credit)                 // each stretch that the queue has credited
//	b.Finish()                      // an epoch ends
//	b.Set(ledger)                   // the model returned to a ledger
//	ended := b.Find(ledger)         // a new master has asked the holders of the model
//	saved = b.Save()
//
// # The sum
//
// Each position n of a task t has a pseudorandom number f(t, n), and f(t, 0) is 0. A stretch adds
// f(t, to) - f(t, from), multiplied by an odd number of its epoch, modulo 2^64. The terms of
// stretches that join each other cancel, so that the sum of a task whose records were credited once
// is f(t, size), however they were cut. Two sets of stretches have the same terms only if they have
// each record equally often. So a wrong account has the right sum by chance only, once in 2^64. The
// sum protects from errors and from damage, not from a forger who computes it.
//
// A task of unknown length, such as a file that is read as a stream, has its end as one more
// position, whatever its length is. So the sum proves that the task was read from its first record
// to its end, each once; the number of its records is counted, and has nothing to be compared with.
//
// # Laws
//
//  1. A record that is credited again, without a [Book.Set] in between that took it out, is in a
//     [Fault] "twice". A record that is not credited when its epoch finishes is in one "missing".
//  2. After Set the book has the records of the ledger and no others. Faults of records that the
//     ledger has are kept.
//  3. The sum of a finished epoch is that of the layout if and only if each record was credited
//     once.
//  4. A book that is saved and restored answers all later calls as the saved one would, if its open
//     epoch fits the limit of [MostOpen]. Otherwise it does after the next Set.
//  5. A saved book has at most [MostLines] lines, [MostFaults] faults and [MostShards] groups of
//     shards. Faults that are not kept are counted.
package book
