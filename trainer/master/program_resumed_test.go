package master

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/audit"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// trainMost credits two of the three tasks of a data set.
func trainMost(w *world) {
	w.Helper()
	for worker := range 2 {
		lease, err := w.asks(worker, &wire.Dataset{Size: 12, Epochs: 1, Task: 4})
		if err != nil {
			w.Fatal(err)
		}
		w.done(worker, lease)
	}
}

// reignMost returns a master of a program that has trained on 8 of its 12 records. It has left.
func reignMost(t *testing.T) (r *reigned, a, b *peer) {
	t.Helper()
	r = reign(t, runJob(0))
	a, b = r.peer(0), r.peer(1)
	for _, p := range []*peer{a, b} {
		p.enters("1 [0 1] from []")
	}
	trainMost(r.world)
	time.Sleep(time.Second)
	r.ends(Leave, ErrLeft)
	return r, a, b
}

// losesAll trains a program on 8 of its 12 records, and loses all its workers. It returns the next
// worker, which has not arrived yet, and what happens from then on.
func losesAll(t *testing.T) (w *world, next *peer, happened func() []Event) {
	t.Helper()
	var events []Event
	w = start(t, func(c *Config) {
		runJob(0)(c)
		c.OnEvent = func(e Event) { events = append(events, e) }
	})
	a, b := w.peer(0), w.peer(1)
	for _, p := range []*peer{a, b} {
		p.enters("1 [0 1] from []")
	}
	trainMost(w)
	for i, p := range []*peer{a, b} {
		p.close()
		w.kill(worker(i))
	}
	time.Sleep(time.Second)
	next = w.stranger(2)
	go next.live(w.MasterClient)
	return w, next, func() []Event {
		synctest.Wait()
		return slices.DeleteFunc(slices.Clone(events), func(e Event) bool {
			switch e.(type) {
			case TrainingRestarted, RolledBack, ProgramResumed:
				return false
			}
			return true
		})
	}
}

// nextWorld returns the next world that the master sends.
func (p *peer) nextWorld() *wire.World {
	p.w.Helper()
	for word := p.word(); word != nil; word = p.word() {
		if w := word.GetWorld(); w != nil {
			return w
		}
	}
	p.w.Fatalf("worker %d hears of no world", p.index)
	return nil
}

// origin returns a change of heartbeats: a world began with this state.
func origin(o *wire.Origin) func(*wire.HeartbeatRequest) {
	return func(r *wire.HeartbeatRequest) { r.Generation, r.Origin = o.Generation, o }
}

// After the loss of all workers, a program continues from what its processes have read. Whether
// they have read it before they come to a world or in it, the status and the event report it, and
// not that the training started over.
func TestProgramSaysWhatItResumedFrom(t *testing.T) {
	for name, c := range map[string]struct {
		arrival *wire.Arrival
		origin  *wire.Origin
		// the master does not know it before it has heard the origin
		waits bool
		event Event
		says  string
	}{
		"read before the world": {
			arrival: &wire.Arrival{Round: 1000, Version: 1000, Ledger: had(1, 2)},
			event: ProgramResumed{ModelGeneration: 2, Reason: "every worker was lost", Step: 1000,
				Records: 2, Repeated: 6},
			says: "resumed from the checkpoint at step 1,000, with 2 records; 6 records are " +
				"repeated: every worker was lost",
		},
		"read in the world": {
			arrival: &wire.Arrival{Round: -1}, waits: true,
			origin: &wire.Origin{Generation: 2, Version: 20200, Ledger: had(1, 4, 2, 1)},
			event: ProgramResumed{ModelGeneration: 2, Reason: "every worker was lost", Step: 20200,
				Records: 5, Repeated: 3},
			says: "resumed from the checkpoint at step 20,200, with 5 records; 3 records are " +
				"repeated: every worker was lost",
		},
		"all of it was saved": {
			arrival: &wire.Arrival{Round: -1}, waits: true,
			origin: &wire.Origin{Generation: 2, Version: 7, Ledger: had(1, 4, 2, 4)},
			event:  ProgramResumed{ModelGeneration: 2, Reason: "every worker was lost", Step: 7, Records: 8},
			says:   "resumed from the checkpoint at step 7, with 8 records: every worker was lost",
		},
		"its checkpoint has no records": {
			arrival: &wire.Arrival{Round: -1}, waits: true,
			origin: &wire.Origin{Generation: 2, Version: 7},
			event:  ProgramResumed{ModelGeneration: 2, Reason: "every worker was lost", Step: 7, Repeated: 8},
			says:   "resumed from the checkpoint at step 7; 8 records are repeated: every worker was lost",
		},
		"nothing was read": {
			arrival: &wire.Arrival{Round: -1}, waits: true,
			origin: &wire.Origin{Generation: 2},
			event:  TrainingRestarted{ModelGeneration: 2, Reason: "every worker was lost", Records: 8},
			says:   "the training started over: every worker was lost; 8 records were trained on till then",
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, p, happened := losesAll(t)
				c.arrival.Process, c.arrival.Crew = 7, &wire.Crew{Processes: 1}
				p.arrive(c.arrival)
				time.Sleep(20 * time.Second)
				if c.waits {
					p.enters("2 [2] from []")
					if s, all := w.look(), happened(); s.RollbackReason != "every worker was lost; the "+
						"program starts again, from what it has saved" || len(all) > 0 || s.Rollbacks != 1 {
						t.Errorf("before a process says what it begins with: %d times %q, %v", s.Rollbacks,
							s.RollbackReason, all)
					}
					// of a world before the loss
					p.says(origin(&wire.Origin{Generation: 1, Version: 1900}))
					p.says(origin(c.origin))
				}
				for range 2 { // it is reported once
					if s, all := w.look(), happened(); s.RollbackReason != c.says || s.Rollbacks != 1 ||
						len(all) != 1 || all[0] != c.event {
						t.Errorf("%d times %q, %+v", s.Rollbacks, s.RollbackReason, all)
					}
					if c.waits {
						p.says(origin(&wire.Origin{Generation: 2, Version: 1}))
					}
				}
			})
		})
	}
}

// If a worker that has the state survives, nothing was lost, and nothing is reported of
// checkpoints.
func TestProgramSurvivorSaysNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var events []Event
		w := start(t, func(c *Config) { runJob(0)(c); c.OnEvent = func(e Event) { events = append(events, e) } })
		a, b := w.peer(0), w.peer(1)
		for _, p := range []*peer{a, b} {
			p.enters("1 [0 1] from []")
		}
		trainMost(w)
		b.close()
		w.kill(worker(1))
		a.arrive(&wire.Arrival{Generation: 1, Beginning: 1, Round: 9, Version: 9,
			Ledger: had(1, 4, 2, 4), Crew: &wire.Crew{Processes: 1}})
		time.Sleep(20 * time.Second)
		a.enters("2 [0] from [0]")
		a.says(origin(&wire.Origin{Generation: 2, Version: 9}))
		if s := w.look(); s.RollbackReason != "" || s.Rollbacks != 0 {
			t.Errorf("%d times %q", s.Rollbacks, s.RollbackReason)
		}
		for _, e := range events {
			switch e.(type) {
			case TrainingRestarted, RolledBack, ProgramResumed:
				t.Errorf("%+v", e)
			}
		}
	})
}

// Processes that start again in their workers, as those that use NCCL do at each change of the
// world, were not lost with these.
func TestProgramWithoutStateSaysNoWorkerWasLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, a, b := startProgram(t, 0)
		trainMost(w)
		for _, p := range []*peer{a, b} {
			p.arrive(&wire.Arrival{Generation: 1, Round: -1, Crew: &wire.Crew{Processes: 1}})
		}
		time.Sleep(time.Second)
		a.enters("2 [0 1] from []")
		a.says(origin(&wire.Origin{Generation: 2, Version: 5, Ledger: had(1, 4)}))
		if s := w.look(); s.RollbackReason != "resumed from the checkpoint at step 5, with 4 records; 4 "+
			"records are repeated: no process has kept its state" {
			t.Errorf("%q", s.RollbackReason)
		}
	})
}

// The audit of a program that was resumed has each record once: whether its processes have read
// their checkpoint before they come to a world or in it, before they declare their records or
// after, and also if they have read none.
func TestResumedProgramIsProved(t *testing.T) {
	for name, c := range map[string]struct {
		arrival *wire.Arrival
		origin  *wire.Origin
		early   bool // the origin comes before the declaration
		lost    bool // and the master is lost in between
		ends    journal.Kind
	}{
		"read before the world": {arrival: &wire.Arrival{Round: 5, Version: 5, Ledger: had(1, 4, 2, 4)}},
		"read in the world": {arrival: &wire.Arrival{Round: -1},
			origin: &wire.Origin{Generation: 1, Version: 5, Ledger: had(1, 4, 2, 4)}, ends: journal.TrainingResumed},
		"read before the declaration": {arrival: &wire.Arrival{Round: -1}, early: true,
			origin: &wire.Origin{Generation: 1, Version: 5, Ledger: had(1, 4, 2, 4)}, ends: journal.TrainingResumed},
		"read before the world, the master is lost": {lost: true,
			arrival: &wire.Arrival{Round: 5, Version: 5, Ledger: had(1, 4, 2, 4)}},
		"read before the declaration, the master is lost": {arrival: &wire.Arrival{Round: -1}, early: true, lost: true,
			origin: &wire.Origin{Generation: 1, Version: 5, Ledger: had(1, 4, 2, 4)}, ends: journal.TrainingResumed},
		"less was saved": {arrival: &wire.Arrival{Round: -1},
			origin: &wire.Origin{Generation: 1, Version: 5, Ledger: had(1, 4)}, ends: journal.TrainingRolledBack},
		"nothing was read": {arrival: &wire.Arrival{Round: -1}, origin: &wire.Origin{Generation: 1},
			ends: journal.TrainingStartedOver},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r, a, b := reignMost(t)
				a.close()
				b.close()
				past, err := ReadJournal(r.memory.read())
				if err != nil || past.Book.Open.Records != 8 {
					t.Fatalf("%d records: %v", past.Book.Open.Records, err)
				}

				resumed := reign(t, func(c *Config) {
					runJob(0)(c)
					c.Journal = past
				})
				p := resumed.stranger(0)
				go p.live(resumed.MasterClient)
				c.arrival.Process, c.arrival.Crew = 7, &wire.Crew{Processes: 1}
				p.arrive(c.arrival)
				time.Sleep(20 * time.Second)
				p.nextWorld()
				report := func() {
					if c.origin != nil {
						p.says(origin(c.origin))
					}
				}
				if c.early {
					report()
				}
				if c.lost {
					resumed.ends(Leave, ErrLeft)
					p.close()
					resumed.follow()
					p = resumed.stranger(0) // the next master hears no origin
					p.beat.Generation = 1
					go p.live(resumed.MasterClient)
					p.arrive(&wire.Arrival{Works: true, Generation: 1, Process: 7, Crew: c.arrival.Crew})
					time.Sleep(20 * time.Second)
				}
				leases := 0
				for ; ; leases++ {
					lease, err := resumed.asks(0, &wire.Dataset{Size: 12, Epochs: 1, Task: 4})
					if err != nil {
						t.Fatal(err)
					}
					if report != nil && !c.early {
						report()
					}
					report = nil
					if lease.Kind != wire.TaskKind_TRAINING {
						break
					}
					resumed.done(0, lease)
				}
				if want := map[bool]int{false: 3, true: 1}[c.arrival.Round > 0]; leases != want {
					t.Errorf("%d tasks are leased, want %d", leases, want)
				}
				time.Sleep(time.Second)
				resumed.ends(Leave, ErrLeft)
				p.close()
				now, err := ReadJournal(resumed.memory.read())
				if err != nil {
					t.Fatal(err)
				}
				if got := audit.Check(audit.Evidence{State: "Running", Program: true,
					Journal: now}); got.Verdict != audit.Proved ||
					got.Applied != 12 {
					t.Errorf("%+v", got)
				}
				if c.ends != "" && now.Totals.Kinds[c.ends] != 1 {
					t.Errorf("no %s: %v", c.ends, now.Totals.Kinds)
				}
			})
		})
	}
}

// A master that was lost with all workers does not know how many records its predecessor had
// credited last. The next master still says what the program resumed from, if the one before had
// not heard it.
func TestNextMasterSaysWhatTheProgramResumedFrom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, _, _ := reignMost(t)
		for i := range 2 {
			r.kill(worker(i))
		}
		r.follow()
		time.Sleep(2 * time.Second)
		c := r.peer(2)
		time.Sleep(20 * time.Second)
		if s := r.look(); !strings.HasPrefix(s.RollbackReason, "every worker was lost; the program starts again") {
			t.Fatalf("%q", s.RollbackReason)
		}
		generation := c.nextWorld().Generation
		r.ends(Leave, ErrLeft)
		r.follow()
		r.beat(&wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: 2, Generation: generation,
			Origin: &wire.Origin{Generation: generation, Version: 5, Ledger: had(1, 2)}})
		if s := r.look(); !strings.HasPrefix(s.RollbackReason,
			"resumed from the checkpoint at step 5, with 2 records") ||
			!strings.HasSuffix(s.RollbackReason, "records are repeated: every worker was lost") {
			t.Errorf("%q", s.RollbackReason)
		}
	})
}
