// Package elastic holds what decides. Its packages get events and the time as arguments and return
// what is to be done: they do no I/O, read no clock, start no goroutine, hold no lock and write no
// log, so that a seed replays a whole job with its faults in virtual time.
//
//	job/        what a job is: parsed from flags, to and from JSON, validated
//	source/     where a user's program comes from, as a command names it
//	task/       shards, tasks, leases: which worker has which records
//	ledger/     which training records are in a model
//	pod/        the life of pods: what ended one, and what follows from it
//	lifecycle/  the stages of a job in its master, and how it ends
//	verdict/    what the end of a program's processes means for its job
//	rendezvous/ who is in the world, with which ranks, and whose state they take
//	supervise/  the processes of a user's program on one worker, through worlds and failures
//	custody/    who holds the model, in which life of it, and what follows from a loss
//	evaluation/ when to measure which version; folding of what was measured
//	timing/     how long the processes of a job wait for each other, and the laws between these
//	            times
//	identity/   who speaks in a job, and who may say what
//	param/      names and shapes of parameters; which server holds which range
//
// A machine belongs here if a shell can perform what it returns. It imports the standard library
// and its neighbours in this folder, nothing of the wire, of storage or of the shells.
package elastic
