package master

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// The workers of a job form its ring without delay when all have arrived, and train to the end.
func TestRing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, ringJob(nil))
		begin := time.Now()
		// also the second Join does not wait, because there are no servers
		for range 2 {
			if reply, err := w.Join(t.Context(),
				&wire.JoinRequest{Role: wire.Role_WORKER}); err != nil || len(reply.Servers) > 0 {
				t.Fatal(reply, err)
			}
		}
		a := w.peer(0)
		a.hears()
		b := w.peer(1)
		a.hears("world 1.1 [0 1] from []")
		b.hears("world 1.1 [0 1] from []")
		if elapsed(begin) != 0 {
			t.Errorf("formed after %v", elapsed(begin))
		}
		if s := w.look(); s.World != 1 || s.WorldSize != 2 || s.Workers != 2 ||
			s.Strategy != "AllreduceStrategy" || s.Pods[1].Address != "worker-1:1" {
			t.Errorf("status %v", s)
		}
		a.says(func(r *wire.HeartbeatRequest) { r.Version = 4 })
		b.says(func(r *wire.HeartbeatRequest) { r.Version = 3 })
		if last := w.train(0); last.Kind != wire.TaskKind_DONE {
			t.Fatal(last)
		}
		w.finish(a, b)
		if w.status.Version != 4 || w.status.State != "Succeeded" {
			t.Errorf("status %v", w.status)
		}
		// workers that leave at the end do not cause a recall
		a.hears()
	})
}

// A caller that is not a pod of the job is refused at the rendezvous, and a job with servers has no
// rendezvous.
func TestRingStrangers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, ringJob(nil))
		p := w.stranger(7)
		p.arrive(&wire.Arrival{Round: -1})
		wantCode(t, p.ended(), codes.NotFound)
		p = w.stranger(0)
		if err := p.send(&wire.Arrival{Worker: 0}); err != nil {
			t.Fatal(err)
		}
		wantCode(t, p.ended(), codes.InvalidArgument)
		p = w.peer(0)
		if err := p.send(&wire.Arrival{Worker: 1, Address: "worker-1:1"}); err != nil {
			t.Fatal(err)
		}
		wantCode(t, p.ended(), codes.InvalidArgument)
	})
	t.Run("servers", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			p := start(t, nil).stranger(0)
			// it may be refused before it sends this
			p.send(&wire.Arrival{Round: -1, Address: "worker-0:1"})
			wantCode(t, p.ended(), codes.FailedPrecondition)
		})
	})
}

// Members do not stop when a newcomer arrives: they come back together after a round, and continue
// from their state.
func TestRingGrows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := startRing(t, nil)
		p[0].hears("world 1.1 [0 1] from []")
		p[1].hears("world 1.1 [0 1] from []")
		first := w.task(0)
		if reply, err := w.Scale(t.Context(), &wire.ScaleRequest{Workers: 3}); err != nil || reply.Before != 2 {
			t.Fatal(reply, err)
		}
		synctest.Wait()
		c := w.peer(2)
		c.hears()
		p[0].hears("recall 1")
		p[1].hears("recall 1")
		p[0].back(1, 5)
		p[1].back(1, 5)
		for _, x := range append(p, c) {
			world := x.word()
			if say(world) != "world 2.2 [0 1 2] from [0 1]" || world.GetWorld().Floor != first.Lease {
				t.Fatal(world)
			}
			x.hears()
		}
		if s := w.look(); s.World != 2 || s.WorldSize != 3 || s.Version != 5 || s.Workers != 3 {
			t.Errorf("status %v", s)
		}
	})
}

// The records of a lost member's leases that are in the state are known when the others have formed
// a world. Exactly these are credited then.
func TestRingLostMember(t *testing.T) {
	for _, c := range []struct {
		name string
		// ends worker 0, which holds both leases; nil: its pod is killed
		kill func(*world, *peer)
		// ledger of worker 1, as had takes it
		ledger []int64
		// progress of the first lease that worker 0 has reported
		heard int64
		// records of the first task that are done when it is leased again; 4: it is not leased
		// again
		first    int64
		requeued int64
	}{
		{name: "nothing", requeued: 2},
		{name: "a part", ledger: []int64{1, 2}, first: 2, requeued: 2},
		{name: "what was heard is in it", ledger: []int64{1, 4}, heard: 2, first: 4, requeued: 1},
		{name: "another's", ledger: []int64{1, 2, 77, 4}, first: 2, requeued: 2},
		{name: "stopped", ledger: []int64{1, 2}, first: 2, requeued: 2, kill: func(w *world, p *peer) {
			w.pods.beStubborn()
			p.silent(true)
			time.Sleep(6 * time.Second)
		}},
		{name: "its stream breaks before", ledger: []int64{1, 2}, first: 2, requeued: 2, kill: func(w *world, p *peer) {
			p.close()
			synctest.Wait()
			w.kill(worker(0))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, p := startRing(t, nil)
				first := w.task(0)
				w.task(0, first.Lease)
				p[0].says(of(first, c.heard))
				p[1].hears("world 1.1 [0 1] from []")
				if c.kill == nil {
					p[0].close()
					w.kill(worker(0))
				} else {
					c.kill(w, p[0])
				}
				p[1].hears("recall 1 now")
				if again := w.task(1); again.Kind != wire.TaskKind_WAIT { // after five seconds
					t.Fatalf("%v before the ring has met", again)
				}
				p[1].back(1, 3, c.ledger...)
				p[1].hears("world 2.2 [1] from [0]")
				if c.first < 4 {
					first = w.task(1)
					w.wantTask(first, 0, c.first)
				}
				w.wantTask(w.task(1, first.Lease), 4, 0)
				if s := w.look(); s.Requeued != c.requeued || s.RecordsDone != c.first {
					t.Errorf("status %v", s)
				}
			})
		})
	}
}

// The leases of a worker that is not in the ring are taken back at once.
func TestRingLostGuest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := startRing(t, func(c *Config) { c.Job.NumWorkers, c.Job.MaxWorkers = 3, 2 })
		p[1].hears("world 1.1 [0 1] from []")
		first := w.task(2)
		w.kill(worker(2))
		p[1].hears()
		w.wantTask(w.task(1), first.Start, 0)
	})
}

// A worker that loses its stream keeps its leases, and arrives as another member.
func TestRingStreamBreaks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := startRing(t, nil)
		first := w.task(0)
		p[1].hears("world 1.1 [0 1] from []")
		p[0].close()
		p[1].hears("recall 1 now")
		again := w.peer(0)
		p[1].back(1, 2, first.Lease, 2)
		p[1].hears("world 2.2 [1 0] from [0]")
		again.hears("world 2.2 [1 0] from [0]")
		w.done(0, first)
		// A worker that opens another stream before the master knows that the first is broken takes
		// over its membership.
		third := w.peer(0)
		wantCode(t, again.ended(), codes.OK)
		p[1].hears("recall 2 now")
		p[1].back(2, 3)
		third.hears("world 3.3 [1 0] from [0]")
		again.arrive(&wire.Arrival{Generation: 2, Round: 9})
		wantCode(t, again.ended(), codes.Aborted)
		third.hears()
	})
}

// The only process that has the model stays a member when it loses its stream, and the training
// continues from its state.
func TestRingLastStreamBreaks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := startRing(t, func(c *Config) { c.Job.NumWorkers = 1 })
		// a stream without the number of its process
		p[0].close()
		again := w.stranger(0)
		again.arrive(&wire.Arrival{Round: -1, Process: 7})
		go again.live(w.MasterClient)
		again.hears("world 2.2 [0] from []")
		again.close()
		synctest.Wait()
		third := w.stranger(0)
		third.arrive(&wire.Arrival{Generation: 2, Round: 5, Process: 7, Broken: true, Suspect: -1})
		third.hears("world 2.3 [0] from [0]")
		// The message about the third world may be lost as well.
		third.close()
		synctest.Wait()
		fourth := w.stranger(0)
		fourth.arrive(&wire.Arrival{Generation: 2, Round: 5, Process: 7})
		fourth.hears("world 2.4 [0] from [0]")
		// A process that does not come back is lost when its pod ends.
		fourth.close()
		synctest.Wait()
		w.kill(worker(0))
		next := w.peer(1)
		next.hears("world 3.5 [1] from []")
	})
}

// A cluster may restart a worker in its pod, by --restart_policy. The new process does not have the
// model, and some records of its leases are in the state of the others. So it is replaced, and
// these records are credited.
func TestRingWorkerStartedAgainInPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := startRing(t, func(c *Config) { c.Job.NumWorkers = 2 })
		p[1].close()
		p[0].hears("world 1.1 [0 1] from []", "recall 1 now")
		p[0].back(1, 1)
		p[0].hears("world 2.2 [0] from [0]")
		first := w.stranger(1)
		first.arrive(&wire.Arrival{Round: -1, Process: 7})
		time.Sleep(time.Second)
		p[0].hears("recall 2")
		p[0].back(2, 2)
		first.hears("world 3.3 [0 1] from [0]")
		lease := w.task(1)
		first.close()
		synctest.Wait()
		again := w.stranger(1)
		again.arrive(&wire.Arrival{Round: -1, Process: 8})
		wantCode(t, again.ended(), codes.NotFound)
		if w.pods.isRunning(worker(1)) {
			t.Error("it is not replaced")
		}
		p[0].hears("world 3.3 [0 1] from [0]", "recall 3 now")
		p[0].back(3, 4, lease.Lease, 2)
		p[0].hears("world 4.4 [0] from [0]")
		w.wantTask(w.task(0), lease.Start, 2)
	})
}

// The ring waits for a worker whose stream breaks if no other has the model. When the worker is
// back it is a member again.
func TestRingStray(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, ringJob(func(c *Config) { c.Job.MinWorkers = 2 }))
		first, other := w.stranger(0), w.peer(1)
		first.arrive(&wire.Arrival{Round: -1, Process: 7})
		go first.live(w.MasterClient)
		first.hears("world 1.1 [1 0] from []")
		w.kill(worker(1))
		other.close()
		first.hears("recall 1 now")
		first.arrive(&wire.Arrival{Generation: 1, Round: 5, Process: 7})
		first.close()
		synctest.Wait()
		next := w.peer(2)
		next.hears()
		time.Sleep(10 * time.Second) // meanwhile its heartbeats arrive
		next.hears()
		again := w.stranger(0)
		again.arrive(&wire.Arrival{Generation: 1, Round: 5, Process: 7})
		again.hears("world 2.2 [0 2] from [0]")
		next.hears("world 2.2 [0 2] from [0]")
	})
}

// A repeated arrival is not taken for one from the last world, because its ledger is old.
func TestRingArrivesTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := startRing(t, func(c *Config) { c.Job.NumWorkers = 3 })
		lease := w.task(0)
		w.kill(worker(0))
		p[1].arrive(&wire.Arrival{Round: -1})
		p[1].back(1, 3, lease.Lease, 2)
		p[1].back(1, 3, lease.Lease, 2)
		p[1].arrive(&wire.Arrival{Round: -1})
		p[2].back(1, 3, lease.Lease, 2)
		p[1].hears("world 1.1 [0 1 2] from []", "recall 1 now", "world 2.2 [1 2] from [0 1]")
		p[1].back(1, 3)
		p[1].hears()
		w.wantTask(w.task(1), 0, 2)
		if s := w.look(); s.Version != 3 {
			t.Errorf("version %d", s.Version)
		}
	})
}

// The ring does not wait for a member that is lost while a world is being formed, or before it has
// received its world.
func TestRingDeathWhileForming(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := startRing(t, func(c *Config) { c.Job.NumWorkers = 4 })
		p[3].hears("world 1.1 [0 1 2 3] from []")
		w.kill(worker(0))
		p[3].back(1, 7)
		p[2].back(1, 6)
		w.kill(worker(2))
		p[1].back(1, 7)
		// the recall was sent before its arrival
		p[3].hears("recall 1 now", "world 2.2 [1 3] from [0 1]")
		w.kill(worker(1))
		p[3].hears("recall 2 now")
		p[3].back(2, 7)
		p[3].hears("world 3.3 [3] from [0]")
	})
}

// The lease of the export is taken back from a lost worker as others are, also if the ring cannot
// be formed again.
func TestRingLostExport(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := startRing(t, func(c *Config) { c.Job.Output, c.Job.MinWorkers = "model", 2 })
		if export := w.train(0); export.Kind != wire.TaskKind_EXPORT {
			t.Fatal(export)
		}
		w.kill(worker(0))
		p[1].hears("world 1.1 [0 1] from []", "recall 1 now")
		export := w.task(1)
		if export.Kind != wire.TaskKind_EXPORT {
			t.Fatal(export)
		}
		w.done(1, export)
		w.finish(p[1])
	})
}

// A worker that sends no heartbeats is replaced after --heartbeat_timeout. Time in which the master
// did not run does not count.
func TestRingSilence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := startRing(t, nil)
		p[0].hears("world 1.1 [0 1] from []")
		time.Sleep(10*time.Second + 200*time.Millisecond)
		if len(w.pods.ended()) > 0 {
			t.Fatalf("%v were deleted though they were heard", w.pods.ended())
		}
		// The master is suspended, as are the workers on the same machine.
		away := 3 * time.Minute
		w.pods.stop(away)
		for _, x := range p {
			x.silent(true)
		}
		time.Sleep(away + 2*time.Second)
		for _, x := range p {
			x.silent(false)
		}
		time.Sleep(10 * time.Second)
		if len(w.pods.ended()) > 0 {
			t.Fatalf("%v were deleted though it was the master who did not listen", w.pods.ended())
		}
		p[0].hears()
		p[1].silent(true)
		begin := time.Now()
		for p[0].word() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		if d := elapsed(begin); d < 4400*time.Millisecond || d > 5100*time.Millisecond {
			t.Errorf("the others heard of it after %v", d)
		}
		if !w.pods.isRunning(worker(2)) || w.pods.isRunning(worker(1)) {
			t.Errorf("running: %v", w.pods.running())
		}
	})
}

// A worker that hangs and delays the ring is found within twice the time limit: another member is
// excluded, the others come back, and the hanging worker does not.
func TestRingStraggler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := startRing(t, func(c *Config) {
			c.Job.NumWorkers, c.Training[0].Count, c.Job.TaskTimeout.Duration = 3, 12, 30*time.Second
		})
		p[1].hears("world 1.1 [0 1 2] from []")
		for i := range 3 {
			w.task(i)
		}
		time.Sleep(30*time.Second - 100*time.Millisecond)
		if len(w.pods.ended()) > 0 {
			t.Fatalf("%v deleted", w.pods.ended())
		}
		time.Sleep(time.Second)
		p[1].hears("recall 1 now")
		p[1].back(1, 4, 1, 2)
		time.Sleep(55 * time.Second)
		if d := w.pods.ended(); len(d) != 1 || d[0] != worker(0) {
			t.Fatalf("%v deleted", d)
		}
		time.Sleep(5 * time.Second)
		if d := w.pods.ended(); len(d) != 2 || d[1] != worker(2) {
			t.Fatalf("%v deleted", d)
		}
		p[1].hears("world 2.2 [1] from [0]")
		if s := w.look(); s.RecordsDone != 2 || s.Requeued != 2 {
			t.Errorf("status %v", s)
		}
	})
}
