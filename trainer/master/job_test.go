package master

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// The first Join of a worker is answered at once, and the next when the servers have joined.
func TestJoin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) { c.Job.NumPS = 2 })
		joins := func() *wire.JoinReply {
			reply, err := w.Join(t.Context(), &wire.JoinRequest{Role: wire.Role_WORKER, Index: 1, Pid: 7})
			if err != nil {
				t.Fatal(err)
			}
			return reply
		}
		begin := time.Now()
		if reply := joins(); len(reply.Servers) != 0 ||
			!strings.Contains(string(reply.Job), `"name":"test"`) || elapsed(begin) != 0 {
			t.Errorf("first join: %v after %v", reply, elapsed(begin))
		}
		if reply := joins(); len(reply.Servers) != 0 || elapsed(begin) != longPoll {
			t.Errorf("second join: %v after %v", reply, elapsed(begin))
		}
		begin = time.Now()
		var servers sync.WaitGroup
		servers.Go(func() {
			time.Sleep(time.Second)
			w.join()
		})
		if reply := joins(); !slices.Equal(addresses(reply),
			[]string{"server-0:2222 1", "server-1:2222 1"}) || elapsed(begin) != time.Second {
			t.Errorf("third join: %v after %v", reply, elapsed(begin))
		}
		servers.Wait()
		_, err := w.Join(t.Context(), &wire.JoinRequest{Role: wire.Role_PS, Index: 1})
		wantCode(t, err, codes.InvalidArgument)
	})
}

// The next epoch opens when every server has applied the gradients that it has accumulated.
func TestBarrier(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) { c.Job.NumPS, c.Job.NumEpochs = 2, 2 })
		w.join()
		back := w.servers[1].leave()
		if task := w.train(0); task.Kind != wire.TaskKind_WAIT {
			t.Fatalf("%v while server 1 has not applied epoch 1", task)
		}
		if w.servers[0].last().Settled != 1 {
			t.Error("server 0 was not reported to flush")
		}
		back()
		if task := w.task(0); task.Kind != wire.TaskKind_TRAINING || task.Epoch != 2 {
			t.Errorf("%v after the barrier", task)
		}
		if w.servers[1].last().Settled != 1 {
			t.Error("server 1 was not reported to flush")
		}
	})
}

// Servers get the number of workers that hold training leases. A server that does not answer for
// some time then gets only the last number.
func TestContributors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) { c.Job.NumPS, c.Job.GradsToWait = 2, 2 })
		w.join()
		want := func(n int32) {
			t.Helper()
			if got := w.servers[0].last().Contributors; got != n {
				t.Errorf("%d contributors reported, want %d", got, n)
			}
		}
		first := w.task(0)
		want(1)
		back := w.servers[1].leave()
		w.task(1)
		want(2)
		w.done(0, first)
		want(1)
		told := len(w.servers[1].orders)
		back()
		if got := w.servers[1].last().Contributors; got != 1 {
			t.Errorf("the server that was away knows of %d contributors, want 1", got)
		}
		// the order that was under way, and the last
		if n := len(w.servers[1].orders) - told; n > 2 {
			t.Errorf("%d orders after its absence", n)
		}
		w.kill(worker(1))
		want(0)
	})
}

// beats sends the same heartbeat from every server.
func (w *world) beats(version, snapshot int64) {
	for i, s := range w.servers {
		s.mu.Lock()
		s.version = version
		s.mu.Unlock()
		w.beat(&wire.HeartbeatRequest{Role: wire.Role_PS, Index: int32(i), Version: version, Snapshot: snapshot})
	}
}

// A straggler is deleted. Its tasks are leased to another worker when it has ended.
func TestStraggler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, nil)
		w.join()
		first := w.task(0)
		w.beat(&wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: 0,
			Leases: []*wire.LeaseProgress{{Lease: first.Lease, Done: 1}}})
		w.servers[0].progress = []int64{3}
		begin := time.Now()
		for !w.pods.isRunning(worker(2)) {
			time.Sleep(time.Second)
		}
		if elapsed(begin).Truncate(time.Minute) != 5*time.Minute {
			t.Errorf("replaced after %v", elapsed(begin))
		}
		synctest.Wait()
		if again := w.task(2); again.Start != first.Start || again.Done != 3 {
			t.Errorf("given again: %v", again)
		}
	})
}

// A straggler that cannot be deleted is asked to leave, and loses its leases after the time limit
// has passed once more.
func TestStragglerStays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, nil)
		w.join()
		first := w.task(0)
		w.pods.beStubborn()
		time.Sleep(5 * time.Minute)
		if !w.beat(&wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: 0}).Unknown {
			t.Error("it is not reported to leave")
		}
		second := w.task(1)
		if again := w.task(1, second.Lease); again.Kind != wire.TaskKind_WAIT {
			t.Errorf("%v while the straggler may be at it", again)
		}
		w.beat(&wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: 1,
			Leases: []*wire.LeaseProgress{{Lease: second.Lease, Done: 1}}})
		time.Sleep(5*time.Minute - time.Second)
		synctest.Wait()
		if again := w.task(1, second.Lease); again.Start != first.Start {
			t.Errorf("%v, want %v again", again, first)
		}
		if !w.beat(&wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: 0}).Unknown {
			t.Error("it is listened to again")
		}
	})
}

// A suspended pod (SIGSTOP) without leases, such as a server, is replaced because it sends no
// heartbeats.
func TestSilence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, nil)
		w.join()
		begin := time.Now()
		w.beats(1, 0)
		for range 3 {
			time.Sleep(4 * time.Minute)
			w.beats(1, 0)
		}
		if len(w.pods.deleted) > 0 {
			t.Fatalf("%v were deleted though they were heard", w.pods.deleted)
		}
		for w.pods.last().Incarnation == 1 {
			time.Sleep(time.Second)
		}
		if elapsed(begin).Truncate(time.Minute) != 17*time.Minute || w.pods.last().ID != ps(0) {
			t.Errorf("%v replaced after %v", w.pods.last().ID, elapsed(begin))
		}
		w.join()
		if w.beat(&wire.HeartbeatRequest{Role: wire.Role_PS, Index: 0}).Unknown {
			t.Error("the new server is asked to leave")
		}
	})
}

func TestStop(t *testing.T) {
	for name, stop := range map[string]func(*world){
		"by request":       func(w *world) { w.Stop(w.Context(), &wire.StopRequest{}) },
		"context canceled": func(w *world) { w.cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := start(t, nil)
				w.join()
				w.task(0)
				stop(w)
				<-w.ended
				if w.err == nil || !strings.Contains(w.err.Error(), "stopped: "+name) ||
					w.status.State != "Stopped" || w.status.EndedUnixMs == 0 {
					t.Errorf("error %v, state %s", w.err, w.status.State)
				}
				if live := w.pods.running(); len(live) > 0 {
					t.Errorf("%v are left", live)
				}
			})
		})
	}
}

// A superseded master ends at once, and deletes no pods.
func TestSuperseded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, nil)
		w.join()
		w.task(0)
		before := len(w.pods.running())
		begin := time.Now()
		w.end(fmt.Errorf("%w: master-b", ErrSuperseded))
		<-w.ended
		if !errors.Is(w.err, ErrSuperseded) || w.status.State != "Running" || elapsed(begin) > time.Second {
			t.Errorf("error %v, state %s, after %v", w.err, w.status.State, elapsed(begin))
		}
		if live := w.pods.running(); len(live) != before || before == 0 {
			t.Errorf("%d pods are left of %d", len(live), before)
		}
	})
}

// At the end of a job, pods that do not end are waited for only for their grace period and a
// little.
func TestStopStubborn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, nil)
		w.pods.beStubborn()
		begin := time.Now()
		w.cancel()
		<-w.ended
		if d := elapsed(begin); d < timing.Grace+timing.EndSlack || d > timing.Grace+timing.EndSlack+2*time.Second {
			t.Errorf("ended after %v", d)
		}
	})
}

// When the master cannot delete pods any more, servers are notified that they are not needed.
func TestServersLeaveByThemselves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) { c.Pods.(*fakePods).disowned = true })
		w.join()
		beat := &wire.HeartbeatRequest{Role: wire.Role_PS, Index: 0}
		if w.beat(beat).Unknown {
			t.Error("the server is asked to go while the job continues")
		}
		if _, err := w.Stop(w.Context(), &wire.StopRequest{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(leaveGrace)
		if !w.beat(beat).Unknown {
			t.Error("the server is to stay when the job is over")
		}
		for _, id := range w.pods.running() {
			w.pods.end(id, pod.Exit{})
		}
		<-w.ended
	})
}

// When a job is done its workers end on their own. Workers that do not, and the servers, are
// deleted.
func TestLeave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, nil)
		w.join()
		if last := w.train(0); last.Kind != wire.TaskKind_DONE {
			t.Fatal(last)
		}
		begin := time.Now()
		w.pods.end(worker(0), pod.Exit{})
		<-w.ended
		if elapsed(begin).Round(time.Second) != leaveGrace {
			t.Errorf("ended after %v", elapsed(begin))
		}
		if w.err != nil || !slices.Equal(w.pods.deleted, []pod.ID{ps(0), worker(1)}) &&
			!slices.Equal(w.pods.deleted, []pod.ID{worker(1), ps(0)}) {
			t.Errorf("error %v, deleted %v", w.err, w.pods.deleted)
		}
	})
}

func TestCreationRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		refused := 0
		w := start(t, func(c *Config) {
			c.Pods.(*fakePods).refuse = 5
			c.OnEvent = func(e Event) {
				if e, ok := e.(PodRefused); ok && e.Reason != "" {
					refused++
				}
			}
		})
		w.join()
		if refused != 5 {
			t.Errorf("%d refusals were reported, want 5", refused)
		}
		if n := len(w.pods.running()); n != 3 {
			t.Errorf("%d pods, want 3", n)
		}
		if last := w.train(0); last.Kind != wire.TaskKind_DONE {
			t.Error(last)
		}
	})
}

// A server that crashes too often ends the job.
func TestServerCrashes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var ends []PodEnded
		w := start(t, func(c *Config) {
			c.OnEvent = func(e Event) {
				if e, ok := e.(PodEnded); ok && e.ID == ps(0) {
					ends = append(ends, e)
				}
			}
		})
		w.join()
		w.task(0)
		for range 2 {
			for !w.pods.isRunning(ps(0)) {
				time.Sleep(time.Second)
			}
			w.pods.end(ps(0), pod.Exit{Code: 1, Reason: "address in use"})
			synctest.Wait()
		}
		<-w.ended
		if w.err == nil || !strings.Contains(w.err.Error(), "a parameter server is lost") ||
			!strings.Contains(w.err.Error(), "address in use") {
			t.Errorf("error %v", w.err)
		}
		if len(ends) != 2 || ends[0].GivenUp || !ends[0].Counted || !ends[1].GivenUp {
			t.Errorf("reported %+v", ends)
		}
	})
}

func TestStatus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var published []*wire.JobStatus
		w := start(t, func(c *Config) { c.OnStatus = func(s *wire.JobStatus) { published = append(published, s) } })
		w.join()
		first := w.task(0)
		for i := range int64(4) {
			w.beat(&wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: 0, Steps: i, Loss: 2,
				Rejected: i, Leases: []*wire.LeaseProgress{{Lease: first.Lease, Done: i}}})
			time.Sleep(500 * time.Millisecond)
		}
		w.beat(&wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: 1, Steps: 1, Loss: 1})
		w.beats(12, 0)
		s, err := w.Status(t.Context(), &wire.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if s.Name != "test" || s.State != "Running" || s.Epoch != 1 || s.Epochs != 1 ||
			s.RecordsDone != 3 || s.RecordsTotal != 8 ||
			s.Version != 12 || s.Loss != 1.5 || s.Rejected != 3 || s.RecordsPerSecond != 1.5 ||
			s.Strategy != "ParameterServerStrategy" {
			t.Errorf("status %v", s)
		}
		if len(s.Pods) != 3 || s.Pods[0].Role != wire.Role_PS || s.Pods[0].Address != "server-0:2222" ||
			s.Pods[0].State != "Running" {
			t.Errorf("pods %v", s.Pods)
		}
		w.kill(worker(1))
		w.cancel()
		<-w.ended
		last := published[len(published)-1]
		if len(published) < 60 || last.State != "Stopped" || last.Relaunched != 1 ||
			last.Pods[2].Reason != "killed (signal 9)" {
			t.Errorf("%d published, the last is %v", len(published), last)
		}
	})
}

func TestRunRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) { c.Training[0].Count = 0 })
		<-w.ended
		if w.err == nil || !strings.Contains(w.err.Error(), "no records") {
			t.Errorf("error %v", w.err)
		}
	})
}

// The loss of a server while it applies the end of an epoch does not end the job: the epoch is
// trained on again.
func TestServerLeavesDuringBarrier(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, nil)
		w.join()
		back := w.servers[0].leave()
		w.train(0)
		w.kill(ps(0))
		back()
		if _, err := w.Status(t.Context(), &wire.StatusRequest{}); err != nil {
			t.Fatal(err)
		}
		w.join()
		// once more, because the epoch was not applied
		w.train(0)
		w.leave()
		if w.err != nil || w.status.ModelGeneration != 2 {
			t.Error(w.err, w.status)
		}
	})
}

func TestLeast(t *testing.T) {
	leases := []int64{7, 8}
	for _, c := range []struct {
		answers [][]int64
		want    map[int64]int64
	}{
		{answers: [][]int64{{5, 3}}, want: map[int64]int64{7: 5, 8: 3}},
		{answers: [][]int64{{5, 3}, {2, 4}}, want: map[int64]int64{7: 2, 8: 3}},
		{answers: [][]int64{{5, 3}, nil}, want: map[int64]int64{7: 0, 8: 0}},
		{answers: [][]int64{nil, {5, 3}}, want: map[int64]int64{7: 0, 8: 0}},
	} {
		if got := least(leases, c.answers); !maps.Equal(got, c.want) {
			t.Errorf("%v: %v", c.answers, got)
		}
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, mu := newWaiters(), make(turn, 1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := w.wait(ctx, mu, func() (bool, error) { return false, nil })
		wantCode(t, err, codes.Canceled)
		if err := w.wait(ctx, mu, func() (bool, error) {
			return false, errors.ErrUnsupported
		}); !errors.Is(err, errors.ErrUnsupported) {
			t.Error(err)
		}
	})
}
