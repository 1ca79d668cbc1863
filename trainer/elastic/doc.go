// Package elastic holds the packages that decide. They get events and the time as arguments, and
// return the actions to perform. They do no I/O, read no clock, start no goroutine, hold no lock
// and write no log, so that a seed replays a whole job with its faults in virtual time.
//
//	job/        the specification of a job: from flags, to and from JSON, validated
//	source/     the location of a user's program, as a command names it
//	task/       shards, tasks, leases: which worker has which records
//	leases/     leases of one worker's processes, and which of their records are safe
//	ledger/     which training records are in a model
//	pod/        which pods run, why one ended, and whether it is replaced
//	lifecycle/  the stages of a job in its master, and its end
//	verdict/    whether a failure of a program's processes counts, and ends the job
//	rendezvous/ members of the world, their ranks, and the source of their state
//	supervise/  the processes of a user's program on one worker, through worlds and failures
//	custody/    which processes hold the model, in which model generation, and rollback after a loss
//	evaluation/ which version to measure when, and the sums of the measurements
//	journal/    what has happened to a job: typed entries, totals, conditions
//	timing/     how long the processes of a job wait for each other, and the laws between these
//	            times
//	identity/   the sender of a message, and the calls that each role may make
//	param/      names and shapes of parameters; which server holds which range
//
// A state machine belongs here if the rest of the program can perform the actions that it returns.
// Packages of this folder import each other and the standard library, nothing else of this module.
package elastic
