package master

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/test/speak"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// A member that was asked to leave may end while there is no master, after the earlier master has
// created its successor. The next master reports its end, and the others do not wait for it.
func TestMemberThatLeavesEndsUnheard(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var events []Event
		r := reign(t, ringJob(func(c *Config) {
			c.Job.NumWorkers = 1
			c.OnEvent = func(e Event) { events = append(events, e) }
		}))
		first := r.peer(0)
		first.hears("world 1.1 [0] from []")
		r.done(0, r.task(0))
		first.says(func(b *wire.HeartbeatRequest) { b.Leave = wire.Leave_ASKED })
		time.Sleep(5 * time.Second)
		if ids := r.pods.running(); !slices.Contains(ids, worker(1)) {
			t.Fatalf("%v run, and none has followed the worker that leaves", ids)
		}
		r.ends(Leave, ErrLeft)
		r.pods.end(worker(0), pod.Exit{Code: 137})
		events = nil
		r.follow()
		back := time.Now()
		next := r.peer(1)
		for next.word() == nil && time.Since(back) < time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		if waited := time.Since(back); waited > time.Second {
			t.Errorf("the next worker waited for a world for %v", waited)
		}
		if !slices.ContainsFunc(events, func(e Event) bool {
			ended, ok := e.(PodEnded)
			return ok && ended.ID == worker(0)
		}) {
			t.Errorf("%v: nobody says that worker 0 has ended", events)
		}
	})
}

// A generation that the earlier master could not store has begun all the same: the next generation
// gets another number.
func TestNoModelGenerationBeginsTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := reign(t, ringJob(nil))
		r.peer(0)
		time.Sleep(time.Second)
		r.done(0, r.task(0))
		r.memory.fail(errors.New("no API server"))
		r.kill(worker(0))
		r.peer(1)
		time.Sleep(time.Minute)
		unwritten := r.self.ModelGeneration()
		if unwritten != 2 {
			t.Fatalf("model generation %d follows the first one, which is lost", unwritten)
		}
		r.ends(Leave, ErrLeft)
		r.pods.end(worker(1), pod.Exit{Code: 137})
		r.memory.fail(nil)
		r.follow()
		time.Sleep(time.Minute)
		r.peer(2)
		time.Sleep(time.Minute)
		if modelGeneration := r.self.ModelGeneration(); modelGeneration <= unwritten {
			t.Errorf("model generation %d begins after generation %d", modelGeneration, unwritten)
		}
		before := r.self.ModelGeneration()
		r.done(2, r.task(2))
		r.ends(Leave, ErrLeft)
		r.pods.end(worker(2), pod.Exit{Code: 137})
		r.follow()
		r.peer(3)
		time.Sleep(time.Minute)
		if modelGeneration := r.self.ModelGeneration(); modelGeneration != before+1 {
			t.Errorf("generation %d begins after %d, and all was written", modelGeneration, before)
		}
	})
}

// A superseded master sends no world, because the next master would not know it.
func TestSupersededMasterFormsNoWorld(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, superseded := range []bool{false, true} {
			c := config(t)
			ringJob(func(c *Config) { c.Memory = new(memory) })(&c)
			m, err := newMaster(c)
			if err != nil {
				t.Fatal(err)
			}
			m.fleet.table = pod.New(m.fleet.policy())
			m.stage.Plan(time.Now())
			m.recorder.wrote(math.MaxInt64, nil)
			if superseded {
				m.recorder.written, m.recorder.err = 0, ErrSuperseded
			}
			s := &participant{session: 1, spoken: make(chan struct{}, 1)}
			m.ring.participants[0] = s
			m.ring.admit(s, &wire.Arrival{Address: "worker-0:1", Round: -1})
			if quits := m.stage.Left() != nil; quits != superseded || len(s.words) > 0 != !superseded {
				t.Errorf("superseded %v, the master goes: %v, and says %v", superseded, m.stage.Left(), s.words)
			}
		}
	})
}

// The progress of a member in a world of a lost model does not count, even if the generation has
// the same number because no record of it was credited.
func TestWordOfALostModel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := startRing(t, func(c *Config) { c.Job.NumWorkers = 2 })
		p[0].hears("world 1.1 [0 1] from []")
		w.kill(worker(0))
		p[1].back(1, -1)
		time.Sleep(time.Second)
		p[1].hears("world 1.1 [0 1] from []", "recall 1 now", "world 2.2 [1] from []")
		lease := w.task(1)
		for i, want := range []int64{0, 3} {
			generation := int64(i + 1)
			p[1].says(func(r *wire.HeartbeatRequest) { of(lease, 3)(r); r.Generation = generation })
			if s := w.look(); s.RecordsDone != want {
				t.Errorf("%d records are done after a word of generation %d, want %d", s.RecordsDone, generation, want)
			}
		}
	})
}

// A world that could not be written is unknown to the next master. The records that its members
// have trained on are lost and trained on again: none is credited, and earlier leases do not count.
func TestWorldThatCouldNotBeWritten(t *testing.T) {
	for _, trained := range []int64{0, 2} {
		t.Run(fmt.Sprintf("records=%d", trained), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := reign(t, ringJob(nil))
				r.memory.fail(errors.New("no API server"))
				first := r.peer(0)
				r.peer(1)
				time.Sleep(10 * time.Second)
				first.hears("world 1.1 [0 1] from []")
				leases := []*wire.Task{r.task(0), r.task(1)}
				r.ends(Leave, ErrLeft)
				r.memory.fail(nil)
				r.follow()
				works := func(p *peer) {
					p.says(func(b *wire.HeartbeatRequest) {
						l := leases[p.index]
						b.Generation, b.Version = 1, trained
						b.Leases = []*wire.LeaseProgress{
							{Lease: l.Lease, Epoch: l.Epoch, Number: l.Number, Done: trained}}
					})
				}
				first = r.stranger(0)
				late := r.stranger(1)
				first.arrive(&wire.Arrival{Generation: 1, Process: 7, Works: true})
				first.hears("recall 1 now")
				works(first)
				works(late)
				first.arrive(&wire.Arrival{Generation: 1, Round: trained, Version: trained, Process: 7,
					Ledger: had(1, trained, 2, trained)})
				r.kill(worker(1))
				time.Sleep(time.Minute)
				word := first.word().GetWorld()
				if word == nil || len(word.Sources) > 0 || len(word.Members) != 1 {
					t.Fatalf("worker 0 hears %v, want a world that begins from the initial values", word)
				}
				for _, l := range leases {
					if word.Floor <= l.Lease {
						t.Errorf("lease %d of the lost model counts: the floor is %d", l.Lease, word.Floor)
					}
				}
				if s := r.look(); s.RecordsDone != 0 || s.ModelGeneration <= 1 ||
					word.ModelGeneration != s.ModelGeneration || s.Rollbacks != int32(min(trained, 1)) ||
					trained > 0 && !strings.Contains(s.RollbackReason, "4 records") {
					t.Errorf("%d records of each lease are lost, and the job is at %v", trained, s)
				}
			})
		})
	}
}

// A world outlives its streams and its master. Requests to its members are repeated on the next
// streams. The next master learns which records are in the model from the first member that
// reports.
func TestWorldOutlivesItsMaster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		formed := 0
		r := reign(t, ringJob(func(c *Config) {
			c.OnEvent = func(e Event) {
				if _, ok := e.(WorldFormed); ok {
					formed++
				}
			}
		}))
		first, other := r.stranger(0), r.stranger(1)
		first.arrive(&wire.Arrival{Round: -1, Process: 7})
		other.arrive(&wire.Arrival{Round: -1, Process: 8})
		first.hears("world 1.1 [0 1] from []")
		lease := r.task(0)
		r.ends(Leave, ErrLeft)
		r.follow()
		first, other = r.stranger(0), r.stranger(1)
		first.arrive(&wire.Arrival{Generation: 1, Process: 7, Works: true})
		other.arrive(&wire.Arrival{Generation: 1, Process: 8, Works: true})
		works := func(b *wire.HeartbeatRequest) {
			b.Generation = 1
			b.Leases = []*wire.LeaseProgress{{Lease: lease.Lease, Epoch: lease.Epoch, Number: lease.Number, Done: 2}}
		}
		if reply := first.says(works); !reply.Ledger {
			t.Error("the master that has come back does not ask what is in the model")
		}
		if reply := first.says(func(b *wire.HeartbeatRequest) { b.Ledger = had(1, 2) }); reply.Ledger {
			t.Error("it asks again")
		}
		first.says(works)
		// it may be older than a lease of the master before
		late := wire.NewMasterClient(r.speaker(func(ctx context.Context, request any) identity.Header {
			h := r.header(speak.ID(ctx, request))
			h.Master--
			return h
		}))
		if _, err := late.Heartbeat(t.Context(), other.beat); err != nil {
			t.Fatal(err)
		}
		if next, err := r.asks(1, nil); err != nil || next.Kind != wire.TaskKind_WAIT {
			t.Errorf("%v is leased, error %v: this master does not know yet what worker 1 has", next, err)
		}
		other.says(func(b *wire.HeartbeatRequest) { b.Generation = 1 })
		if s := r.look(); s.World != 1 || s.WorldSize != 2 || s.RecordsDone != 2 {
			t.Errorf("status %v", s)
		}
		if next := r.task(1); next.Kind != wire.TaskKind_TRAINING || next.Start == lease.Start {
			t.Errorf("%v is another's", next)
		}
		first.close()
		synctest.Wait()
		r.kill(worker(1))
		first = r.stranger(0)
		first.arrive(&wire.Arrival{Generation: 1, Process: 7, Works: true})
		first.hears("recall 1 now")
		if formed != 1 {
			t.Errorf("%d worlds were formed", formed)
		}
		first.arrive(&wire.Arrival{Generation: 1, Round: 3, Version: 3, Process: 7, Ledger: had(1, 3)})
		first.hears("world 2.2 [0] from [0]")
	})
}
