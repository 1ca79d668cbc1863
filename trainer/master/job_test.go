package master

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/elasticdl/elasticdl/trainer/pod"
	"github.com/elasticdl/elasticdl/trainer/task"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// A worker's first Join is answered at once, its next when the servers are there.
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
		if reply := joins(); len(reply.Servers) != 0 || !strings.Contains(string(reply.Job), `"name":"test"`) || elapsed(begin) != 0 {
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
		if reply := joins(); !slices.Equal(addresses(reply), []string{"server-0:2222 1", "server-1:2222 1"}) || elapsed(begin) != time.Second {
			t.Errorf("third join: %v after %v", reply, elapsed(begin))
		}
		servers.Wait()
		_, err := w.Join(t.Context(), &wire.JoinRequest{Role: wire.Role_PS, Index: 1})
		wantCode(t, err, codes.InvalidArgument)
	})
}

// The next epoch opens when every server has applied what it gathered.
func TestBarrier(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) { c.Job.NumPS, c.Job.NumEpochs = 2, 2 })
		w.join()
		back := w.servers[1].leave()
		if task := w.train(0); task.Kind != wire.TaskKind_WAIT {
			t.Fatalf("%v while server 1 has not applied epoch 1", task)
		}
		if w.servers[0].last().Settled != 1 {
			t.Error("server 0 was not told to flush")
		}
		back()
		if task := w.task(0); task.Kind != wire.TaskKind_TRAINING || task.Epoch != 2 {
			t.Errorf("%v after the barrier", task)
		}
		if w.servers[1].last().Settled != 1 {
			t.Error("server 1 was not told to flush")
		}
	})
}

// Servers know how many workers hold training leases. One that is away learns the last number only.
func TestContributors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) { c.Job.NumPS, c.Job.GradsToWait = 2, 2 })
		w.join()
		want := func(n int32) {
			t.Helper()
			if got := w.servers[0].last().Contributors; got != n {
				t.Errorf("%d contributors told, want %d", got, n)
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
		if n := len(w.servers[1].orders) - told; n > 2 { // what was on the way, and the latest
			t.Errorf("%d orders after its absence", n)
		}
		w.kill(worker(1))
		want(0)
	})
}

// beats makes every server say the same.
func (w *world) beats(version, snapshot int64) {
	for i, s := range w.servers {
		s.mu.Lock()
		s.version = version
		s.mu.Unlock()
		w.beat(&wire.HeartbeatRequest{Role: wire.Role_PS, Index: int32(i), Version: version, Snapshot: snapshot})
	}
}

func accuracy(right, all float64) *wire.Metric {
	return &wire.Metric{Name: "accuracy", State: []float64{right, all}}
}

func evaluated(c *Config) {
	c.Job.NumPS, c.Job.EvaluationSteps = 2, 50
	c.Validation = []task.Shard{{Name: "test", Start: 0, Count: 6}}
	c.Job.ValidationData = "test"
}

// A snapshot that all servers have is evaluated before training goes on, then released; at the end the model
// as it stands is evaluated, and exported.
func TestEvaluation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) { evaluated(c); c.Job.Output = "model" })
		w.join()
		w.beat(&wire.HeartbeatRequest{Role: wire.Role_PS, Index: 0, Version: 50, Snapshot: 50})
		training := w.task(0)
		if training.Kind != wire.TaskKind_TRAINING {
			t.Fatalf("%v before every server has the snapshot", training)
		}
		w.beats(51, 50)
		first, second := w.task(1), w.task(0, training.Lease)
		if first.Kind != wire.TaskKind_EVALUATION || first.Version != 50 || second.Kind != wire.TaskKind_EVALUATION || second.End != 6 {
			t.Fatalf("%v and %v with a snapshot of version 50", first, second)
		}
		w.done(1, first, accuracy(1, 4))
		w.done(0, second, accuracy(1, 2))
		for i, s := range w.servers {
			if got := s.last().ReleaseSnapshot; got != 50 {
				t.Errorf("server %d was told to release %d", i, got)
			}
		}
		w.done(0, training)
		w.beats(57, 0)
		for _, part := range []int64{0, 4} {
			last := w.train(0)
			if last.Kind != wire.TaskKind_EVALUATION || last.Version != 0 || last.Start != part {
				t.Fatalf("%v after training", last)
			}
			w.done(0, last, accuracy(2, 4))
		}
		export := w.task(1)
		if export.Kind != wire.TaskKind_EXPORT {
			t.Fatalf("%v after the last evaluation", export)
		}
		w.done(1, export)
		if last := w.task(0); last.Kind != wire.TaskKind_DONE {
			t.Errorf("%v after the export", last)
		}
		w.leave()
		if w.err != nil || len(w.status.Evaluations) != 2 {
			t.Fatalf("error %v, evaluations %v", w.err, w.status.Evaluations)
		}
		for i, want := range []struct {
			version  int64
			accuracy float64
		}{{50, 2.0 / 6}, {57, 0.5}} {
			if got := w.status.Evaluations[i]; got.Version != want.version || got.Metrics["accuracy"] != want.accuracy {
				t.Errorf("evaluation %d: %v, want %v", i, got, want)
			}
		}
	})
}

// A server that says that it holds a snapshot that was released is told again, as often as it says so.
func TestReleaseIsToldUntilItIsObserved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) { evaluated(c); c.Job.NumPS = 1 })
		w.join()
		w.beats(50, 50)
		for range 2 {
			w.done(0, w.task(0), accuracy(1, 4))
		}
		for range 3 {
			before := len(w.servers[0].orders)
			w.beats(51, 50)
			if last := w.servers[0].last(); last.ReleaseSnapshot != 50 || len(w.servers[0].orders) == before {
				t.Errorf("told %v, %d orders after %d", last, len(w.servers[0].orders), before)
			}
		}
		before := len(w.servers[0].orders)
		w.beats(52, 0)
		w.beats(100, 100)
		if n := len(w.servers[0].orders); n != before {
			t.Errorf("%d orders more, for nothing", n-before)
		}
	})
}

// Parts of the last evaluation that are of different models make no result: it begins again with the later one.
func TestLastEvaluationIsOfOneModel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, evaluated)
		w.join()
		w.beats(57, 0)
		first := w.train(0)
		w.done(0, first, accuracy(4, 4))
		second := w.task(0)
		report := func(version int64) error {
			_, err := w.ReportTask(t.Context(), &wire.ReportTaskRequest{Lease: second.Lease, Version: version, Metrics: []*wire.Metric{accuracy(2, 2)}})
			return err
		}
		w.beats(58, 0) // somebody's late gradient
		wantCode(t, report(58), codes.FailedPrecondition)
		for range 2 {
			w.done(0, w.task(0), accuracy(1, 4))
		}
		if last := w.task(0); last.Kind != wire.TaskKind_DONE {
			t.Errorf("%v at the end", last)
		}
		w.leave()
		if e := w.status.Evaluations; len(e) != 1 || e[0].Version != 58 || e[0].Metrics["accuracy"] != 0.25 {
			t.Errorf("evaluations %v", e)
		}
	})
}

// A status has the last results, and how many there were.
func TestStatusIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) { evaluated(c); c.Validation[0].Count, c.Job.NumPS = 1, 1 })
		w.join()
		for i := range int64(KeptEvaluations + 20) {
			w.beats(50*(i+1), 50*(i+1))
			w.done(0, w.task(0), accuracy(1, 1))
			w.beats(50*(i+1), 0)
		}
		s := w.look()
		if n := len(s.Evaluations); n != KeptEvaluations || s.Evaluations[n-1].Version != 50*(KeptEvaluations+20) || s.Evaluated != KeptEvaluations+20 {
			t.Errorf("%d evaluations of %d", n, s.Evaluated)
		}
	})
}

// An evaluation whose snapshot dies with a server is given up; late reports of it are stale.
func TestEvaluationWithdrawn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, evaluated)
		w.join()
		w.beats(50, 50)
		task := w.task(0)
		w.kill(ps(1))
		_, err := w.ReportTask(t.Context(), &wire.ReportTaskRequest{Worker: 0, Lease: task.Lease, Metrics: []*wire.Metric{accuracy(1, 4)}})
		wantCode(t, err, codes.FailedPrecondition)
		if next := w.task(0); next.Kind != wire.TaskKind_TRAINING {
			t.Errorf("%v after the withdrawal", next)
		}
		if again := w.pods.last(); again.ID != ps(1) || again.Launch != 2 || again.Address != "server-1:2222" {
			t.Errorf("server 1 is replaced by %v", again)
		}
		reply, err := w.Join(t.Context(), &wire.JoinRequest{Role: wire.Role_PS, Index: 1, Address: w.servers[1].address})
		if err != nil || reply.Life != 2 {
			t.Errorf("the new server is told of life %d, %v", reply.GetLife(), err)
		}
		if o := w.servers[1].last(); o.ReleaseSnapshot != 0 || o.Life != 2 {
			t.Errorf("the new server was told %v", o)
		}
	})
}

// Metrics that are not the others' fail their task.
func TestEvaluationMetricsDiffer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, evaluated)
		w.join()
		w.beats(50, 50)
		first := w.task(0)
		second := w.task(0, first.Lease)
		w.done(0, first, accuracy(1, 4))
		w.done(0, second, &wire.Metric{Name: "loss", State: []float64{1}})
		if again := w.task(0); again.Start != second.Start || again.Kind != wire.TaskKind_EVALUATION {
			t.Errorf("%v, want the second again", again)
		}
	})
}

// A worker without progress is deleted; what it holds is another's when it is gone.
func TestStraggler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, nil)
		w.join()
		first := w.task(0)
		w.beat(&wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: 0, Leases: []*wire.LeaseProgress{{Lease: first.Lease, Done: 1}}})
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

// One that cannot be deleted is told to leave, and loses its leases after as long again.
func TestStragglerStays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, nil)
		w.join()
		first := w.task(0)
		w.pods.beStubborn()
		time.Sleep(5 * time.Minute)
		if !w.beat(&wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: 0}).Unknown {
			t.Error("it is not told to leave")
		}
		second := w.task(1)
		if again := w.task(1, second.Lease); again.Kind != wire.TaskKind_WAIT {
			t.Errorf("%v while the straggler may be at it", again)
		}
		w.beat(&wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: 1, Leases: []*wire.LeaseProgress{{Lease: second.Lease, Done: 1}}})
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

// A pod that is stopped and holds no lease, such as a server, is replaced for its silence.
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
		for w.pods.last().Launch == 1 {
			time.Sleep(time.Second)
		}
		if elapsed(begin).Truncate(time.Minute) != 17*time.Minute || w.pods.last().ID != ps(0) {
			t.Errorf("%v replaced after %v", w.pods.last().ID, elapsed(begin))
		}
		w.join()
		if w.beat(&wire.HeartbeatRequest{Role: wire.Role_PS, Index: 0}).Unknown {
			t.Error("the new server is told to leave")
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
				if w.err == nil || !strings.Contains(w.err.Error(), "stopped: "+name) || w.status.State != "Stopped" || w.status.EndedUnixMs == 0 {
					t.Errorf("error %v, state %s", w.err, w.status.State)
				}
				if live := w.pods.running(); len(live) > 0 {
					t.Errorf("%v are left", live)
				}
			})
		})
	}
}

// Pods that do not end are not waited for without end.
func TestStopStubborn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, nil)
		w.pods.beStubborn()
		begin := time.Now()
		w.cancel()
		<-w.ended
		if d := elapsed(begin); d < endLimit || d > endLimit+2*time.Second {
			t.Errorf("ended after %v", d)
		}
	})
}

// Servers that cannot be deleted any more hear that they are not needed.
func TestServersLeaveByThemselves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) { c.Pods.(*fakePods).disowned = true })
		w.join()
		beat := &wire.HeartbeatRequest{Role: wire.Role_PS, Index: 0}
		if w.beat(beat).Unknown {
			t.Error("the server is told to go while the job goes on")
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

// Workers of a job that is done leave by themselves; those that do not, and the servers, are deleted.
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
		if w.err != nil || !slices.Equal(w.pods.deleted, []pod.ID{ps(0), worker(1)}) && !slices.Equal(w.pods.deleted, []pod.ID{worker(1), ps(0)}) {
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
			t.Errorf("%d refusals were told, want 5", refused)
		}
		if n := len(w.pods.running()); n != 3 {
			t.Errorf("%d pods, want 3", n)
		}
		if last := w.train(0); last.Kind != wire.TaskKind_DONE {
			t.Error(last)
		}
	})
}

// A server that fails by itself too often ends the job.
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
		if w.err == nil || !strings.Contains(w.err.Error(), "a parameter server is lost") || !strings.Contains(w.err.Error(), "address in use") {
			t.Errorf("error %v", w.err)
		}
		if len(ends) != 2 || ends[0].GivenUp || !ends[0].Charged || !ends[1].GivenUp {
			t.Errorf("told %+v", ends)
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
			w.beat(&wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: 0, Steps: i, Loss: 2, Rejected: i, Leases: []*wire.LeaseProgress{{Lease: first.Lease, Done: i}}})
			time.Sleep(500 * time.Millisecond)
		}
		w.beat(&wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: 1, Steps: 1, Loss: 1})
		w.beats(12, 0)
		s, err := w.Status(t.Context(), &wire.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if s.Name != "test" || s.State != "Running" || s.Epoch != 1 || s.Epochs != 1 || s.RecordsDone != 3 || s.RecordsTotal != 8 ||
			s.Version != 12 || s.Loss != 1.5 || s.Rejected != 3 || s.RecordsPerSecond != 1.5 || s.Strategy != "ParameterServerStrategy" {
			t.Errorf("status %v", s)
		}
		if len(s.Pods) != 3 || s.Pods[0].Role != wire.Role_PS || s.Pods[0].Address != "server-0:2222" || s.Pods[0].State != "Running" {
			t.Errorf("pods %v", s.Pods)
		}
		w.kill(worker(1))
		w.cancel()
		<-w.ended
		last := published[len(published)-1]
		if len(published) < 60 || last.State != "Stopped" || last.Relaunched != 1 || last.Pods[2].Reason != "killed (signal 9)" {
			t.Errorf("%d published, the last is %v", len(published), last)
		}
	})
}

// With nothing to train on, the model is evaluated as it stands.
func TestEvaluationOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) { evaluated(c); c.Training = nil })
		w.join()
		for range 2 {
			task := w.task(0)
			if task.Kind != wire.TaskKind_EVALUATION {
				t.Fatal(task)
			}
			w.done(0, task, accuracy(1, 2))
		}
		w.leave()
		if w.err != nil || len(w.status.Evaluations) != 1 {
			t.Errorf("error %v, status %v", w.err, w.status)
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

// A lost connection to the master is a matter of asking again, and ends nothing.
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
		w.train(0) // again: the epoch was not applied
		w.leave()
		if w.err != nil || w.status.Life != 2 {
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
		m := &master{changed: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := m.wait(ctx, func() (bool, error) { return false, nil })
		wantCode(t, err, codes.Canceled)
		if err := m.wait(ctx, func() (bool, error) { return false, errors.ErrUnsupported }); !errors.Is(err, errors.ErrUnsupported) {
			t.Error(err)
		}
	})
}
