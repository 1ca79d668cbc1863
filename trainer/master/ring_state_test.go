package master

import (
	"testing"
	"testing/synctest"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Records of a lost worker that are in the last round are credited when the round cannot be lost
// any more. While only one member has it, and the others are about to copy it, it may be lost with
// that member.
func TestRingLostMemberAndRound(t *testing.T) {
	for _, c := range []struct {
		name string
		// the member that has the round is lost before the others have it
		dies   bool
		credit int64
	}{{"copied", false, 3}, {"lost", true, 2}} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, p := startRing(t, func(c *Config) { c.Job.NumWorkers = 3 })
				p[0].hears("world 1.1 [0 1 2] from []")
				lease := w.task(2)
				w.kill(worker(2))
				p[0].hears("recall 1 now")
				p[0].back(1, 6, lease.Lease, 3)
				p[1].back(1, 5, lease.Lease, 2)
				p[1].hears("world 1.1 [0 1 2] from []", "recall 1 now", "world 2.2 [0 1] from [0]")
				if s := w.look(); s.RecordsDone != 0 || s.Requeued != 0 {
					t.Errorf("before the others have it: %v", s)
				}
				if c.dies {
					w.kill(worker(0))
					p[1].hears("recall 2 now")
					p[1].back(2, 5, lease.Lease, 2)
				} else {
					p[1].says(func(r *wire.HeartbeatRequest) { r.Generation = 2 })
				}
				if s := w.look(); s.RecordsDone != c.credit || s.Requeued != 1 {
					t.Errorf("afterwards: %v", s)
				}
				w.wantTask(w.task(1), lease.Start, c.credit)
			})
		})
	}
}

// The ring waits for the only worker that has the model, even if others are about to copy it.
func TestRingSourceStreamBreaks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, ringJob(func(c *Config) { c.Job.NumWorkers = 1 }))
		first := w.stranger(0)
		first.arrive(&wire.Arrival{Round: -1, Process: 7})
		if _, err := w.Scale(t.Context(), &wire.ScaleRequest{Workers: 2}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		next := w.peer(1)
		first.hears("world 1.1 [0] from []", "recall 1")
		first.arrive(&wire.Arrival{Generation: 1, Round: 5, Process: 7})
		next.hears("world 2.2 [0 1] from [0]")
		first.close()
		synctest.Wait()
		again := w.stranger(0)
		again.arrive(&wire.Arrival{Generation: 2, Round: 5, Process: 7, Broken: true, Suspect: -1})
		next.hears("recall 2 now")
		next.back(2, -1)
		next.hears("world 2.3 [0 1] from [0]")
		// It works on without its stream until its pod ends.
		again.close()
		next.hears()
		w.kill(worker(0))
		next.hears("recall 3 now")
	})
}
