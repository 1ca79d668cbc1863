package master

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

func TestEveryRecordOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) {
			c.Job.NumEpochs, c.Job.Shuffle = 3, true
			c.Training = append(c.Training, c.Training[0])
			c.Training[1].Name, c.Training[1].Count = "shard-1", 7
		})
		w.join()
		var mu sync.Mutex
		seen := make(map[string]int)
		var workers sync.WaitGroup
		for i := range 2 {
			workers.Go(func() {
				for {
					task := w.task(i)
					if task.Kind == wire.TaskKind_DONE {
						return
					}
					mu.Lock()
					for r := task.Start; r < task.End; r++ {
						seen[fmt.Sprint(task.Epoch, task.Shard, r)]++
					}
					mu.Unlock()
					if _, err := w.ReportTask(t.Context(), &wire.ReportTaskRequest{Worker: int32(i),
						Lease: task.Lease}); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		workers.Wait()
		w.leave()
		if w.err != nil || w.status.State != "Succeeded" || w.status.RecordsDone != 45 || w.status.RecordsTotal != 45 {
			t.Errorf("error %v, status %v", w.err, w.status)
		}
		if len(seen) != 45 {
			t.Errorf("%d records of 45", len(seen))
		}
		for record, n := range seen {
			if n != 1 {
				t.Errorf("record %s: %d times", record, n)
			}
		}
	})
}

func TestStaleReports(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, nil)
		w.join()
		task := w.task(0)
		w.done(0, task)
		for name, r := range map[string]*wire.ReportTaskRequest{
			"repeated":  {Worker: 0, Lease: task.Lease},
			"another's": {Worker: 1, Lease: w.task(0).Lease},
			"unknown":   {Worker: 0, Lease: 99},
		} {
			_, err := w.ReportTask(t.Context(), r)
			t.Log(name)
			wantCode(t, err, codes.FailedPrecondition)
		}
	})
}

// A worker that asks again because the reply was lost gets the same lease. One that holds that
// lease gets the next.
func TestLostReply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, nil)
		w.join()
		first := w.task(0)
		if again := w.task(0); again.Lease != first.Lease {
			t.Errorf("lease %d after a lost reply, want %d again", again.Lease, first.Lease)
		}
		second := w.task(0, first.Lease)
		if second.Kind != wire.TaskKind_TRAINING || second.Lease == first.Lease {
			t.Errorf("%v for a worker that holds lease %d", second, first.Lease)
		}
		w.done(0, first)
		w.done(0, second)
		if last := w.task(0); last.Kind != wire.TaskKind_DONE {
			t.Errorf("%v at the end", last)
		}
	})
}

func TestGetTaskWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, nil)
		w.join()
		first := w.task(0)
		w.task(0, first.Lease)
		begin := time.Now()
		if task := w.task(1); task.Kind != wire.TaskKind_WAIT || elapsed(begin) != longPoll {
			t.Errorf("%v after %v", task, elapsed(begin))
		}
		// The call returns as soon as there is a task.
		begin = time.Now()
		time.AfterFunc(time.Second, func() { w.pods.end(worker(0), pod.Exit{Code: 137}) })
		if task := w.task(1); task.Lease != 3 || task.Start != first.Start || elapsed(begin) != time.Second {
			t.Errorf("%v after %v", task, elapsed(begin))
		}
	})
}

// A call that was canceled takes no lease.
func TestGetTaskGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, nil)
		w.join()
		first := w.task(0)
		second := w.task(0, first.Lease)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := w.GetTask(ctx, &wire.GetTaskRequest{Worker: 1})
		wantCode(t, err, codes.DeadlineExceeded)
		synctest.Wait()
		if _, err := w.ReportTask(t.Context(), &wire.ReportTaskRequest{Worker: 0, Lease: second.Lease,
			Error: "bad"}); err != nil {
			t.Fatal(err)
		}
		if task := w.task(0, first.Lease); task.Start != second.Start {
			t.Errorf("%v, want what failed: %v", task, second)
		}
	})
}

// Only those records of a failed lease are trained on again that are not in the model.
func TestFailedLeaseKeepsWhatIsDone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, nil)
		w.join()
		first := w.task(0)
		report := &wire.ReportTaskRequest{Worker: 0, Lease: first.Lease, Error: "bad",
			Done: first.End - first.Start + 1}
		_, err := w.ReportTask(t.Context(), report)
		wantCode(t, err, codes.InvalidArgument)
		report.Done = 2
		if _, err := w.ReportTask(t.Context(), report); err != nil {
			t.Fatal(err)
		}
		w.done(1, w.task(1))
		if task := w.task(1); task.Start != first.Start || task.Done != 2 {
			t.Errorf("%v, want the rest of %v", task, first)
		}
	})
}

// The records of a lost worker's leases that every server has are credited. The others are leased
// again.
func TestLostWorkerProgress(t *testing.T) {
	for _, c := range []struct {
		name    string
		servers [2][]int64
		// server 1 does not answer
		away bool
		// progress of lease 1 in a heartbeat
		beat int64
		// records of lease 1's task that are done when it is leased again; -1: it is not leased
		// again
		first    int64
		second   int64
		wait     time.Duration
		requeued int64
	}{
		{name: "the least", servers: [2][]int64{{3, 2}, {2, 2}}, first: 2, second: 2, requeued: 2},
		{name: "one has none", servers: [2][]int64{{3}, {}}, requeued: 2},
		{name: "heartbeat says more", servers: [2][]int64{{}, {}}, beat: 2, first: 2, requeued: 2},
		{name: "a server is away", servers: [2][]int64{{3, 2}, {3, 2}}, beat: 2, away: true, first: 2,
			wait: progressLimit, requeued: 2},
		{name: "all of the first", servers: [2][]int64{{4, 1}, {4, 1}}, first: -1, second: 1, requeued: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := start(t, func(c *Config) { c.Job.NumPS = 2 })
				w.join()
				for i, p := range c.servers {
					w.servers[i].progress = p
				}
				first := w.task(0)
				second := w.task(0, first.Lease)
				w.beat(&wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: 0,
					Leases: []*wire.LeaseProgress{{Lease: 1, Done: c.beat}}})
				if c.away {
					defer w.servers[1].leave()()
				}
				begin := time.Now()
				w.kill(worker(0))
				if next := w.pods.last(); next.ID != worker(2) || next.Slot != 0 {
					t.Errorf("worker-0 is replaced by %v of slot %d", next.ID, next.Slot)
				}
				var held []int64
				for _, want := range []struct {
					task *wire.Task
					done int64
				}{{first, c.first}, {second, c.second}} {
					if want.done < 0 {
						continue
					}
					got := w.task(2, held...)
					if got.Start != want.task.Start || got.Done != want.done {
						t.Errorf("given again: %v, want [%d,%d) from %d", got, want.task.Start,
							want.task.End, want.done)
					}
					held = append(held, got.Lease)
				}
				if elapsed(begin) != c.wait {
					t.Errorf("given again after %v, want %v", elapsed(begin), c.wait)
				}
				status, err := w.Status(t.Context(), &wire.StatusRequest{})
				if err != nil || status.Requeued != c.requeued || status.Relaunched != 1 {
					t.Errorf("status %v, %v", status, err)
				}
			})
		})
	}
}

func TestStrangersLeave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, nil)
		w.join()
		task := w.task(0)
		w.kill(worker(0))
		for _, i := range []int32{0, 17} {
			_, err := w.Join(t.Context(), &wire.JoinRequest{Role: wire.Role_WORKER, Index: i})
			wantCode(t, err, codes.NotFound)
			_, err = w.GetTask(t.Context(), &wire.GetTaskRequest{Worker: i})
			wantCode(t, err, codes.NotFound)
			if !w.beat(&wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: i}).Unknown {
				t.Errorf("worker %d is not reported to leave", i)
			}
		}
		_, err := w.ReportTask(t.Context(), &wire.ReportTaskRequest{Worker: 0, Lease: task.Lease})
		wantCode(t, err, codes.FailedPrecondition)
		if w.beat(&wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: 2}).Unknown {
			t.Error("the replacement is asked to leave")
		}
	})
}

// A task that fails too often ends the job with an error that names the task and the reason.
func TestTaskFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, nil)
		w.join()
		for {
			reply, err := w.GetTask(t.Context(), new(wire.GetTaskRequest))
			// the master may have ended already
			if err != nil || reply.Task.Kind == wire.TaskKind_DONE {
				break
			}
			task := reply.Task
			report := &wire.ReportTaskRequest{Worker: 0, Lease: task.Lease}
			if task.Start == 4 {
				report.Error = "record 5: no label"
			}
			if _, err := w.ReportTask(t.Context(), report); err != nil {
				t.Fatal(err)
			}
		}
		<-w.ended
		if w.status.State != "Failed" {
			t.Errorf("state %s", w.status.State)
		}
		for _, part := range []string{"[4, 8) of shard-0", "record 5: no label", "4 of 8 records"} {
			if w.err == nil || !strings.Contains(w.err.Error(), part) || !strings.Contains(w.status.Reason, part) {
				t.Errorf("error %q does not say %q", w.err, part)
			}
		}
	})
}

// The crash of a worker counts against the worker and its task.
func TestCrashes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) { c.Job.RelaunchOnWorkerFailure = 1; c.Job.MaxTaskRetries = 10 })
		w.join()
		// 0 and 1 are replaced by 2 and 3; these are not replaced
		for _, i := range []int{0, 1, 2, 3} {
			for !w.pods.isRunning(worker(i)) {
				time.Sleep(time.Second)
			}
			w.task(i)
			w.pods.end(worker(i), pod.Exit{Code: 2, Reason: "panic: no model"})
			synctest.Wait()
		}
		<-w.ended
		if w.err == nil || !strings.Contains(w.err.Error(), "no worker is left") ||
			!strings.Contains(w.err.Error(), "panic: no model") ||
			!strings.Contains(w.err.Error(), "shard-0") {
			t.Errorf("error %q", w.err)
		}
	})
}

// A worker that waits for storage is no straggler as long as its effort rises.
func TestWorkerWaitsForStorage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) { c.Job.TaskTimeout.Duration = 10 * time.Second })
		w.join()
		task := w.task(0)
		beat := func(effort int64) bool {
			return w.beat(&wire.HeartbeatRequest{Role: wire.Role_WORKER,
				Leases: []*wire.LeaseProgress{{Lease: task.Lease, Done: 1, Effort: effort}}}).Unknown
		}
		effort := int64(1)
		for range 30 {
			time.Sleep(2 * time.Second)
			if effort++; beat(effort) {
				t.Fatal("a worker that waits for storage is replaced")
			}
		}
		// the timer may fire after a heartbeat of the same instant
		for range 6 {
			time.Sleep(2 * time.Second)
			if beat(effort) {
				return
			}
		}
		t.Error("a worker that does nothing is not replaced")
	})
}

// The status says which storage workers wait for, as long as they do, and what is wrong where the
// master runs.
func TestProblemsInTheStatus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var here atomic.Pointer[[]string]
		here.Store(new([]string))
		w := start(t, func(c *Config) { c.Problems = func() []string { return *here.Load() } })
		w.join()
		task := w.task(0)
		beat := func(worker int, waits ...string) {
			r := &wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: int32(worker)}
			for _, why := range waits {
				r.Leases = append(r.Leases, &wire.LeaseProgress{Lease: task.Lease, Done: 1, Waits: why})
			}
			w.beat(r)
		}
		says := func(want ...string) {
			t.Helper()
			if got := w.look().Problems; !slices.Equal(got, want) {
				t.Errorf("problems %q, want %q", got, want)
			}
		}
		says()
		beat(0, "no space left on /out", "no space left on /out", "")
		says("no space left on /out: waited for by worker-0")
		here.Store(&[]string{"no space left on /state"})
		beat(1, "no space left on /out", "read /data/a: input/output error")
		says("no space left on /state", "no space left on /out: waited for by worker-0, worker-1",
			"read /data/a: input/output error: waited for by worker-1")
		here.Store(new([]string))
		beat(0, "")
		beat(1)
		says()
	})
}

// A task that is handed back because of storage is not counted, and is leased to another worker
// next. A job whose data stays unreadable ends with an error that names the file.
func TestStorageThatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) { c.Job.MaxTaskRetries = 2 })
		w.join()
		returned := func(worker int) *wire.Task {
			task := w.task(worker)
			if _, err := w.ReportTask(t.Context(), &wire.ReportTaskRequest{Worker: int32(worker),
				Lease: task.Lease, Storage: true,
				Error: "read /data/shard-0: stale file handle", Done: task.Done + 1}); err != nil {
				t.Fatal(err)
			}
			return task
		}
		for i := range 3 { // each lease makes progress
			if task := returned(i % 2); task.Start != 0 || task.Done != int64(i) {
				t.Fatalf("lease %v", task)
			}
		}
		task := w.task(1)
		if task.Start != 0 || task.Done != 3 {
			t.Fatalf("lease %v", task)
		}
		if s := w.look(); s.Requeued != 3 || s.State != "Running" {
			t.Errorf("status %v", s)
		}
		if _, err := w.ReportTask(t.Context(), &wire.ReportTaskRequest{Worker: 1, Lease: task.Lease,
			Storage: true, Error: "read /data/shard-0: stale file handle"}); err != nil {
			t.Fatal(err)
		}
		<-w.ended
		if w.err == nil || !strings.Contains(w.err.Error(), "records [0, 4) of shard-0") ||
			!strings.Contains(w.err.Error(), "given back 2 times, at last by worker 1: read /data/shard-0: stale") {
			t.Error(w.err)
		}
	})
}
