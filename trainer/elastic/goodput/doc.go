// Package goodput accounts for the time of a job's workers: the useful part, which the field calls
// goodput, and the lost time by its cause.
//
//	            ┌ queue, pending, image, start     there is no worker yet
//	            │ forming                          it waits for the others of its world
//	wanted ─────┤ data, servers, communication,
//	time        │ slowest rank, checkpoint         it works, and has measured what it waited for
//	            │ stuck                            no rank gives a sign of life
//	            │ rollback                         it has trained, and the result was lost
//	            │ master away, failed              nobody gives it work; it is not replaced
//	            └ training                         the rest
//
// # How one drives it
//
//	var a goodput.Account
//	for every second, and after changes {
//		a.Observe(goodput.View{Asked: 4, Workers: workers, Progress: records}, now)
//	}
//	a.Stop(now)                         // the job ends or is suspended
//	saved := a.Snapshot()               // for the next master
//	a = goodput.Restore(saved)
//	fmt.Println(a.Wanted(), a.Lost(goodput.Queue), a.Training())
//
// The caller gives the time. An [Account] does no I/O and holds no lock. All times are whole
// milliseconds.
//
// # How time is attributed
//
// The time between two observations belongs to the state that each worker had at the first of them.
// The state is judged from what the master knows of it ([Judge]). A worker that works reports how
// long it has waited, and for what. These parts are taken from its working time since its report
// before. So time counts as training until a report tells more.
//
// A wait for other workers is divided. The least wait for one step among all workers is that of the
// slowest, which waits for no one: as much of each wait is communication, and the rest a wait for
// the slowest rank.
//
// When the model returns to a checkpoint, the training since then is moved to the cause rollback.
// How long that was follows from the progress: marks say how much training there was at which
// progress, and between two marks it counts as even.
//
// A program that is stuck is recognized after a while without a sign of life. The time since that
// sign is then moved from training to the cause stuck.
//
// While the master is away, nobody observes. The next master attributes that time when it hears a
// worker again. A worker that has made steps meanwhile has trained, except for its waits: those for
// records and for other workers are of the cause master away, as only a master gives out records.
// Without a step, or if the worker is never heard again, all of that time is. A worker that was
// waiting for quota, a node or an image, or that started, continues to.
//
// Laws:
//
//  1. Wanted is the sum, over all time between the first observation and the last, of the number of
//     workers that were asked for. Time after Stop does not count until the next observation, and
//     neither does a step back of the clock.
//  2. The lost time of all causes and Training add up to Wanted, to the millisecond. None is
//     negative.
//  3. Wanted and the lost time of a cause never decrease. Training decreases only by what a cause
//     gains: by late reports, by a rollback, and when a program is found stuck.
//  4. Restore of a Snapshot continues the same account, over any number of masters. If no time has
//     passed, it answers all later calls as the saved one would; only how waits for other workers
//     are divided is measured again.
//  5. An Account has a bounded size: one entry for each worker that is asked for, and [MostMarks].
//  6. A worker is slow if its own computing for one step takes more than [SlowTimes] times the
//     median of the other workers, and [SlowLeast] more than it, over at least [SlowSteps] steps of
//     about the last ten seconds.
package goodput
