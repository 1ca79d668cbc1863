package master

import (
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// A restored master learns of the end of a program, also if nobody is left who can tell which
// records are in the model.
func TestProgramEndsUnderTheNextMaster(t *testing.T) {
	for name, end := range map[string]func(r *reigned, b *peer){
		"the last one tells its records": func(r *reigned, b *peer) {
			b.says(func(r *wire.HeartbeatRequest) { r.Finished = 1 })
			b.says(func(r *wire.HeartbeatRequest) { r.Ledger = had(1, 4, 2, 4) })
		},
		"the last one is lost first": func(r *reigned, b *peer) {
			b.says(func(r *wire.HeartbeatRequest) { r.Finished = 1 })
			b.silent(true)
			b.close()
			r.kill(worker(1))
		},
		"the last one arrives": func(r *reigned, b *peer) {
			b.arrive(&wire.Arrival{Generation: 1, Process: 7, Round: -1, Finished: true, Crew: &wire.Crew{}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := reign(t, runJob(0))
				a, b := r.stranger(0), r.stranger(1)
				for _, p := range []*peer{a, b} {
					p.arrive(&wire.Arrival{Round: -1, Process: 7, Crew: &wire.Crew{Processes: 1}})
					go p.live(r.MasterClient)
				}
				a.enters("1 [0 1] from []")
				b.enters("1 [0 1] from []")
				trainAll(r.world)
				a.says(finished)
				r.ends(Leave, ErrLeft)
				a.close()
				r.pods.end(worker(0), pod.Exit{Code: 137})
				r.follow()
				b = r.stranger(1)
				b.beat.Generation = 1
				b.arrive(&wire.Arrival{Works: true, Generation: 1, Process: 7, Crew: &wire.Crew{Processes: 1}})
				go b.live(r.MasterClient)
				end(r, b)
				time.Sleep(time.Minute)
				r.finish()
				if s := r.status; s.State != string(job.Succeeded) || s.ModelGeneration != 1 || s.RecordsDone != 8 {
					t.Errorf("status %v, want success with 8 records in generation 1", s)
				}
			})
		})
	}
}

// The record of the previous master is older than the end of the training, and the processes have
// ended before the next master could ask which records they have. All are in the model if a master
// had answered them that no records were left.
func TestProgramEndsUnderAnOlderRecord(t *testing.T) {
	for name, c := range map[string]struct {
		exhausted bool
		done      int64
	}{"no records were left": {true, 8}, "the program ended before": {false, 0}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := reign(t, runJob(0))
				a, b := r.stranger(0), r.stranger(1)
				for _, p := range []*peer{a, b} {
					p.arrive(&wire.Arrival{Round: -1, Process: 7, Crew: &wire.Crew{Processes: 1}})
					go p.live(r.MasterClient)
				}
				a.enters("1 [0 1] from []")
				b.enters("1 [0 1] from []")
				trainAll(r.world)
				older := r.memory.record
				if rec, err := readRecord(older); err != nil || rec.Program.Dataset == nil || rec.Done == 8 {
					t.Fatalf("the record %+v, %v has the data set, and not its end", rec, err)
				}
				r.ends(Leave, ErrLeft)
				a.close()
				b.close()
				r.memory.record = older
				r.follow()
				for i := range 2 {
					p := r.stranger(i)
					p.beat.Generation = 1
					go p.live(r.MasterClient)
					p.says(func(r *wire.HeartbeatRequest) { r.Finished, r.Exhausted = 1, c.exhausted })
				}
				r.finish()
				if s := r.status; s.State != string(job.Succeeded) || s.RecordsDone != c.done {
					t.Errorf("status %v, want success with %d records", s, c.done)
				}
			})
		})
	}
}
