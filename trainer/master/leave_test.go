package master

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

func leaves(how wire.Leave, worker int) *wire.HeartbeatRequest {
	return &wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: int32(worker), Leave: how}
}

// A worker that is asked to leave gets a successor at once. The successor continues with its task
// when the worker has handed back the lease, before the pod has ended.
func TestLeasesAreHandedBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, nil)
		w.join()
		lease := w.task(0)
		if reply := w.beat(leaves(wire.Leave_ASKED, 0)); reply.Unknown {
			t.Fatal("it may stay as long as it needs")
		}
		if !w.pods.isRunning(worker(2)) {
			t.Error("it has no successor")
		}
		if got := w.task(0, lease.Lease); got.Kind != wire.TaskKind_WAIT {
			t.Errorf("it gets %v", got)
		}
		ready := leaves(wire.Leave_READY, 0)
		of(lease, 2)(ready)
		if reply := w.beat(ready); !reply.Unknown {
			t.Error("it is still needed")
		}
		w.wantTask(w.task(2), lease.Start, 2)
		if reply := w.beat(leaves(wire.Leave_ASKED, 0)); !reply.Unknown { // a late heartbeat
			t.Error("it is needed again")
		}
		w.pods.end(worker(0), pod.Exit{Code: 143})
		s := w.look()
		if p := s.Pods[1]; p.State != "Deleted" || p.Reason != "deleted: asked to leave" ||
			s.Relaunched != 1 || s.Requeued != 1 {
			t.Errorf("%v", s)
		}
	})
}

// A worker whose pod is leaving, as the cluster reports, gets no new leases. Leases that it does
// not hand back are taken back when it ends.
func TestLeasesOfAPodThatIsLeaving(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, nil)
		w.join()
		lease := w.task(0)
		w.pods.events <- pod.Event{ID: worker(0), Incarnation: 1, Phase: pod.Leaving, Exit: pod.Exit{Preempted: true}}
		synctest.Wait()
		if got := w.task(0, lease.Lease); got.Kind != wire.TaskKind_WAIT || !w.pods.isRunning(worker(2)) {
			t.Errorf("it gets %v", got)
		}
		if p := w.look().Pods[1]; p.State != "Leaving" || p.Reason != "preempted" {
			t.Errorf("%v", p)
		}
		if other := w.task(2); other.Start == lease.Start {
			t.Errorf("another gets %v before the pod has ended", other)
		}
		w.kill(worker(0))
		w.wantTask(w.task(1), lease.Start, 0)
	})
}

// When the job is over, a worker that is asked to leave may end at once.
func TestLeaveAfterTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, nil)
		w.join()
		w.train(0)
		w.task(1) // returns DONE: the job is over
		if reply := w.beat(leaves(wire.Leave_ASKED, 1)); !reply.Unknown {
			t.Error("it has to stay")
		}
		w.leave()
	})
}

// The others complete their round with the worker that leaves, and then form a world without it.
// The records of its lease that are in the state are credited.
func TestRingPartsFromWhoLeaves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := startRing(t, func(c *Config) { c.Job.NumWorkers = 3 })
		p[0].hears("world 1.1 [0 1 2] from []")
		lease := w.task(2)
		if reply := p[2].says(func(r *wire.HeartbeatRequest) { r.Leave = wire.Leave_ASKED }); reply.Unknown {
			t.Fatal("it has a round to end")
		}
		p[0].hears("recall 1")
		for _, x := range p {
			x.back(1, 3, lease.Lease, 2)
		}
		p[0].hears("world 2.2 [0 1] from [0 1]")
		if reply := p[2].says(func(*wire.HeartbeatRequest) {}); !reply.Unknown {
			t.Error("it is still needed")
		}
		w.wantTask(w.task(0), lease.Start, 2)
		p[2].close() // this changes nothing for the others
		if more := p[0].word(); more != nil {
			t.Errorf("worker 0 hears %q", say(more))
		}
	})
}

// A worker that is asked to leave while it writes a checkpoint stays until the checkpoint is
// complete or has failed. The others continue without it, with the rest of its lease.
func TestLeaverWritesItsCheckpoint(t *testing.T) {
	for phase, number := range map[wire.CutPhase]int64{wire.CutPhase_WRITTEN: 1, wire.CutPhase_FAILED: 0} {
		t.Run(phase.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, p := startRing(t, func(c *Config) {
					c.Job.NumWorkers, c.Job.CheckpointDir, c.Job.CheckpointSteps = 3, t.TempDir(), 1
				})
				lease := w.task(0)
				writes := func(phase wire.CutPhase) func(*wire.HeartbeatRequest) {
					return func(r *wire.HeartbeatRequest) {
						r.Version, r.Generation = 7, 1
						r.Cut = &wire.CutReport{
							Number: 1, Phase: phase, Version: 7, Ledger: had(1, 2), Optimizer: "SGD",
							Layout: []*wire.Variable{{Name: "w", Shape: []int64{4}, Trainable: true}},
							File:   "shard", End: 4, Bytes: 16, Crc: "01234567",
						}
					}
				}
				p[0].says(writes(wire.CutPhase_NONE))
				p[0].says(writes(wire.CutPhase_COPIED))
				asked := func(r *wire.HeartbeatRequest) { r.Leave = wire.Leave_ASKED }
				p[0].says(asked)
				for _, x := range p {
					x.back(1, 7, lease.Lease, 2)
				}
				p[1].hears("world 1.1 [0 1 2] from []", "recall 1", "world 2.2 [1 2] from [0 1]")
				w.wantTask(w.task(1), lease.Start, 2)
				if p[0].says(asked).Unknown {
					t.Fatal("its checkpoint is lost with it")
				}
				p[0].says(writes(phase))
				if !p[0].says(asked).Unknown {
					t.Error("it is still needed")
				}
				if c := w.look().Checkpoint; c.Number != number {
					t.Errorf("%v", c)
				}
			})
		})
	}
}

// If all workers were asked to leave, one of them still makes the checkpoint.
func TestLeaverMakesACheckpoint(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, p := startRing(t, func(c *Config) {
			c.Job.NumWorkers, c.Job.CheckpointDir, c.Job.CheckpointSteps = 1, t.TempDir(), 1
		})
		p[0].w.task(0)
		p[0].says(func(r *wire.HeartbeatRequest) { r.Leave = wire.Leave_ASKED })
		p[0].says(func(r *wire.HeartbeatRequest) { r.Version, r.Generation = 7, 1 })
		p[0].hears("world 1.1 [0] from []", "cut 1")
	})
}

// The only worker that has the model stays until its successor has it.
func TestLastOfARingStays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := startRing(t, func(c *Config) { c.Job.NumWorkers = 1 })
		p[0].hears("world 1.1 [0] from []")
		lease := w.task(0)
		asked := func(r *wire.HeartbeatRequest) { r.Leave = wire.Leave_ASKED }
		if p[0].says(asked).Unknown {
			t.Fatal("the model is lost with it")
		}
		if more := p[0].word(); more != nil {
			t.Fatalf("it hears %q, and nobody has come", say(more))
		}
		next := w.peer(1)
		next.arrive(&wire.Arrival{Round: -1, Suspect: -1})
		time.Sleep(time.Second)
		p[0].hears("recall 1")
		p[0].back(1, 5, lease.Lease, 2)
		p[0].hears("world 2.2 [0 1] from [0]", "recall 2")
		if p[0].says(asked).Unknown {
			t.Fatal("nobody else has the model yet")
		}
		p[0].back(2, 5, lease.Lease, 2)
		next.hears("world 2.2 [0 1] from [0]", "recall 2")
		next.back(2, 5, lease.Lease, 2)
		next.hears("world 3.3 [1] from [0]")
		if !p[0].says(asked).Unknown {
			t.Error("it is still needed")
		}
		w.wantTask(w.task(1), lease.Start, 2)
	})
}

// A worker whose stream breaks while it leaves is not admitted to the ring again.
func TestRingWhoLeavesIsNoGuest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := startRing(t, func(c *Config) { c.Job.NumWorkers = 3 })
		p[0].hears("world 1.1 [0 1 2] from []")
		p[2].says(func(r *wire.HeartbeatRequest) { r.Leave = wire.Leave_ASKED })
		p[0].hears("recall 1")
		p[2].close()
		p[0].hears("recall 1 now")
		w.peer(2)
		for _, x := range p[:2] {
			x.back(1, 3)
		}
		p[0].hears("world 2.2 [0 1] from [0 1]")
		if reply := w.beat(leaves(wire.Leave_ASKED, 2)); !reply.Unknown {
			t.Error("it is needed for nothing")
		}
	})
}

// A worker that has not arrived at the ring yet leaves at once.
func TestWhoIsNotInTheRingLeavesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := startRing(t, func(c *Config) { c.Job.NumWorkers = 2 })
		w.pods.end(worker(1), pod.Exit{Code: 137})
		synctest.Wait()
		if reply := w.beat(leaves(wire.Leave_ASKED, 2)); !reply.Unknown {
			t.Error("it is needed for nothing")
		}
	})
}

func TestScaledFromAChannel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		scale, log := make(chan int), new(bytes.Buffer)
		w := start(t, func(c *Config) {
			c.Scale, c.Job.MaxWorkers = scale, 3
			c.Log = slog.New(slog.NewTextHandler(log, nil))
		})
		for _, n := range []int{3, 4, 0} {
			scale <- n
			if s := w.look(); s.Workers != 3 {
				t.Errorf("%d workers after %d", s.Workers, n)
			}
		}
		if !w.pods.isRunning(worker(2)) || w.pods.isRunning(worker(3)) {
			t.Errorf("there are %v", w.pods.running())
		}
		w.cancel()
		<-w.ended
		for _, want := range []string{"4 workers are more than 3 (--max_workers)",
			"0 workers are fewer than 1 (--min_workers)"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log has no %q:\n%s", want, log)
			}
		}
	})
}

// When all workers are preempted the job waits, reports that, and continues with the first that
// runs again.
func TestJobWaitsForWorkers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := new(bytes.Buffer)
		w := start(t, func(c *Config) {
			c.OnStatus = func(*wire.JobStatus) {}
			c.Log = slog.New(slog.NewTextHandler(log, nil))
		})
		w.join()
		lease := w.task(0)
		w.pods.mu.Lock()
		w.pods.silent = true
		w.pods.mu.Unlock()
		for i := range 2 {
			w.pods.end(worker(i), pod.Exit{Preempted: true})
		}
		synctest.Wait()
		for i := range 2 {
			w.pods.events <- pod.Event{ID: worker(2 + i), Incarnation: 1, Phase: pod.Pending,
				Waiting: "Unschedulable: no room"}
		}
		s := w.look()
		if s.Waiting != "no worker runs: 2 to start (Unschedulable: no room)" || s.State != "Running" {
			t.Errorf("%v", s)
		}
		if p := s.Pods[3]; p.State != "Pending" || p.Reason != "Unschedulable: no room" {
			t.Errorf("%v", p)
		}
		time.Sleep(time.Hour)
		w.pods.events <- pod.Event{ID: worker(3), Incarnation: 1, Phase: pod.Running}
		if s := w.look(); s.Waiting != "" {
			t.Errorf("%v", s)
		}
		w.wantTask(w.task(3), lease.Start, 0)
		time.Sleep(time.Minute)
		w.cancel()
		<-w.ended
		for _, line := range []string{
			`msg="The job waits" reason="no worker runs: 2 to start (Unschedulable: no room)"`,
			`msg="The job continues"`} {
			if n := strings.Count(log.String(), line); n != 1 {
				t.Errorf("%d lines with %s", n, line)
			}
		}
	})
}

func TestWaitsFor(t *testing.T) {
	server := func(p pod.Phase, why string) pod.Pod { return pod.Pod{ID: ps(0), Phase: p, Waiting: why} }
	works := func(p pod.Phase, why string) pod.Pod { return pod.Pod{ID: worker(0), Phase: p, Waiting: why} }
	for _, tt := range []struct {
		pods []pod.Pod
		want string
	}{
		{nil, ""},
		{[]pod.Pod{server(pod.Running, ""), works(pod.Running, ""), works(pod.Pending, "no room")}, ""},
		{[]pod.Pod{server(pod.Pending, "no room"), works(pod.Running, "")}, "ps-0 does not run (no room)"},
		{[]pod.Pod{works(pod.Leaving, ""), works(pod.Pending, "")}, ""},
		{[]pod.Pod{works(pod.Failed, ""), works(pod.Pending, ""), works(pod.Wanted, "cannot be "+
			"created: quota")}, "no worker runs: 2 to start (cannot be created: quota)"},
	} {
		if got := waitsFor(tt.pods); got != tt.want {
			t.Errorf("%s: %q, want %q", fmt.Sprint(tt.pods), got, tt.want)
		}
	}
}
