package master

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// trainAll credits all records of a data set of two tasks.
func trainAll(w *world) {
	w.Helper()
	d := &wire.Dataset{Size: 8, Epochs: 1, Task: 4}
	for _, worker := range []int{0, 1} {
		lease, err := w.asks(worker, d)
		if err != nil {
			w.Fatal(err)
		}
		w.done(worker, lease)
	}
}

// rewound checks that the training returned to a checkpoint with two records.
func (w *world) rewound() {
	w.Helper()
	if s := w.look(); s.RecordsDone != 2 || s.ModelGeneration != 2 || s.Rollbacks != 1 {
		w.Errorf("%d of %d records, generation %d, %d rewinds (%s), want 2 records, generation 2 and 1 rewind",
			s.RecordsDone, s.RecordsTotal, s.ModelGeneration, s.Rollbacks, s.RollbackReason)
	}
}

// A process that was restarted has read its checkpoint, and is to take the state of another worker,
// which is lost before it has passed that on: the training returns to the checkpoint, and so do
// the records.
func TestProgramReturnsToACheckpoint(t *testing.T) {
	for _, when := range []string{"before the world", "in it"} {
		t.Run(when, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, a, b := startProgram(t, 0)
				trainAll(w)
				a.arrive(&wire.Arrival{Generation: 1, Round: -1, Crew: &wire.Crew{}, BrokeOff: true})
				trained := &wire.Arrival{Generation: 1, Beginning: 1, Round: 1900, Version: 1900,
					Ledger: had(1, 4, 2, 4), Crew: &wire.Crew{Processes: 1}}
				b.arrive(trained)
				time.Sleep(time.Second)
				a.enters("2 [1 0] from [0]")
				b.enters("2 [1 0] from [0]")
				read := func(generation int64) {
					a.arrive(&wire.Arrival{Generation: generation, Round: 1000, Version: 1000,
						Ledger: had(1, 2), Crew: &wire.Crew{Processes: 1}})
				}
				read(2)
				generation := int64(2)
				if when == "in it" {
					trained.Generation = 2
					b.arrive(trained)
					time.Sleep(time.Second)
					a.enters("3 [1 0] from [0]")
					generation = 3
				}
				b.close()
				w.kill(worker(1))
				if when == "in it" {
					read(generation)
				}
				time.Sleep(20 * time.Second)
				a.enters(fmt.Sprintf("%d [0] from [0]", generation+1))
				w.rewound()
			})
		})
	}
}

// A newcomer that has read a checkpoint is in a world whose other members are lost before it has
// taken their state.
func TestProgramReturnsToANewcomersCheckpoint(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, a, b := startProgram(t, 0)
		trainAll(w)
		if _, err := w.Scale(t.Context(), &wire.ScaleRequest{Workers: 3}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		c := w.stranger(2)
		c.arrive(&wire.Arrival{Round: 1000, Version: 1000, Ledger: had(1, 2), Crew: &wire.Crew{Processes: 1}})
		go c.live(w.MasterClient)
		for _, p := range []*peer{a, b} {
			p.arrive(&wire.Arrival{Generation: 1, Beginning: 1, Round: 1900, Version: 1900,
				Ledger: had(1, 4, 2, 4), Crew: &wire.Crew{Processes: 1}})
		}
		time.Sleep(time.Second)
		c.enters("2 [0 1 2] from [0 1]")
		for i, p := range []*peer{a, b} {
			p.close()
			w.kill(worker(i))
		}
		c.arrive(&wire.Arrival{Generation: 2, Round: 1000, Version: 1000, Ledger: had(1, 2),
			Crew: &wire.Crew{Processes: 1}})
		time.Sleep(20 * time.Second)
		c.enters("3 [2] from [0]")
		w.rewound()
	})
}
