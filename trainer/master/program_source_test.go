package master

import (
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// The source of a world is lost before it has passed its state on. The end of the task of a worker
// that was lost before is in its state alone, so that task is trained on again: also if the master
// has set its queue back to that state, and although a newcomer is in the world.
func TestLostSource(t *testing.T) {
	for name, reported := range map[string]bool{"progress was reported before": true, "none was": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := start(t, func(c *Config) { runJob(0)(c); c.Job.NumWorkers = 3 })
				newest, older, lost := w.peer(0), w.peer(1), w.peer(2)
				for _, p := range []*peer{newest, older, lost} {
					p.enters("1 [0 1 2] from []")
				}
				data := &wire.Dataset{Size: 12, Epochs: 1, Task: 4}
				for i := range 3 {
					l, err := w.asks(i, data)
					if err != nil || l.Start != int64(4*i) {
						t.Fatal(l, err)
					}
					if reported && i == 0 {
						newest.says(func(r *wire.HeartbeatRequest) {
							r.Generation, r.Met, r.Keeps, r.Rounds = 1, 1, true, 1
							r.Leases = []*wire.LeaseProgress{{Lease: l.Lease, Done: 1, Epoch: 1, Number: 0}}
						})
					}
				}
				one := &wire.Crew{Processes: 1}
				lost.close()
				w.kill(worker(2))
				newest.arrive(&wire.Arrival{Generation: 1, Beginning: 1, Round: 2, Version: 2,
					Ledger: had(1, 2, 2, 2, 3, 4), Crew: one})
				newcomer := w.stranger(3)
				newcomer.arrive(&wire.Arrival{Round: -1, Crew: one})
				go newcomer.live(w.MasterClient)
				older.arrive(&wire.Arrival{Generation: 1, Beginning: 1, Round: 1, Version: 1,
					Ledger: had(1, 1, 2, 1, 3, 2), Crew: one})
				time.Sleep(time.Second)
				newcomer.enters("2 [0 1 3] from [0]")
				newcomer.says(func(r *wire.HeartbeatRequest) { r.Generation, r.Keeps = 2, true })
				time.Sleep(200 * time.Millisecond)

				newest.close()
				w.kill(worker(0))
				older.arrive(&wire.Arrival{Generation: 2, Beginning: 1, Round: 1, Version: 1,
					Ledger: had(1, 1, 2, 1, 3, 2), Crew: one})
				newcomer.arrive(&wire.Arrival{Generation: 2, Round: -1, Crew: one})
				time.Sleep(20 * time.Second)
				older.enters("2 [0 1 3] from [0]")
				older.enters("3 [1 3] from [0]")
				older.says(func(r *wire.HeartbeatRequest) { r.Generation, r.Met, r.Keeps, r.Rounds = 3, 3, true, 3 })
				var held []int64
				again := false
				for range 6 {
					reply, err := w.GetTask(w.Context(), &wire.GetTaskRequest{Worker: 3, Now: true,
						Dataset: data, Held: held})
					if err != nil {
						t.Fatal(err)
					}
					if l := reply.Task; l.Kind == wire.TaskKind_TRAINING {
						held = append(held, l.Lease)
						again = again || l.Start == 8
						t.Logf("granted [%d, %d), done %d", l.Start, l.End, l.Done)
					}
				}
				if !again {
					t.Errorf("records 10 and 11 are in no model, and nobody is to train on them; %d "+
						"are done by the master's count, 4 are in the model", w.look().RecordsDone)
				}
			})
		})
	}
}
