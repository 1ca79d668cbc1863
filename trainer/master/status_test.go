package master

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// A worker that has failed and is not replaced does not change the number of workers that are
// wanted. The status and the log say what happened.
func TestWorkerGivenUpIsShown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var lines strings.Builder
		w := start(t, func(c *Config) {
			c.Job.RelaunchOnWorkerFailure = 0
			c.Log = slog.New(slog.NewTextHandler(&lines, nil))
		})
		w.join()
		w.pods.end(worker(0), pod.Exit{Code: 1, Reason: "no data"})
		time.Sleep(time.Second)
		s := w.look()
		if s.Workers != 2 {
			t.Errorf("%d workers are asked for, want 2", s.Workers)
		}
		reasons := make(map[int32]string)
		for _, p := range s.Pods {
			if p.Role == wire.Role_WORKER {
				reasons[p.Index] = p.Reason
			}
		}
		if len(reasons) != 2 || reasons[0] != "exit code 1: no data; not replaced" || reasons[1] != "" {
			t.Errorf("the workers' reasons are %q", reasons)
		}
		w.cancel()
		<-w.ended
		want := `msg="Pod has ended, and is not replaced: --relaunch_on_worker_failure allows no more" pod=worker-0`
		if !strings.Contains(lines.String(), want) {
			t.Errorf("no %s in the log:\n%s", want, lines.String())
		}
	})
}

// Records that were trained on under an earlier master do not count in the speed, whenever the next
// master learns of them.
func TestSpeedAfterAMaster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := reign(t, nil)
		r.join()
		first, second := r.task(0), r.task(1)
		r.ends(Leave, ErrLeft)
		for _, l := range []*wire.Task{first, second} {
			r.servers[0].had.Add(ledger.Task{Epoch: 1, Number: int(l.Number)}, 2, 4)
		}
		r.follow()
		announce := func(worker int32, l *wire.Task, done int64) {
			r.beat(&wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: worker,
				Leases: []*wire.LeaseProgress{{Lease: l.Lease, Done: done, Epoch: 1, Number: l.Number}}})
		}
		announce(0, first, 3)
		time.Sleep(time.Second)
		r.rejoin(1)
		announce(1, second, 3)
		time.Sleep(time.Second)
		announce(0, first, 3)
		time.Sleep(time.Second)
		if s := r.look(); s.RecordsDone != 6 || s.RecordsPerSecond != 0 {
			t.Errorf("%d records, %v in a second, want 6 that were done before", s.RecordsDone, s.RecordsPerSecond)
		}
		announce(0, first, 4)
		if s := r.look(); s.RecordsPerSecond != 1 {
			t.Errorf("%v records in a second, want the one that was done since", s.RecordsPerSecond)
		}
	})
}

// The log of a program does not mention initial values, because its processes have their own.
func TestProgramBeginsWithoutValues(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var lines strings.Builder
		w := start(t, func(c *Config) {
			runJob(0)(c)
			c.Log = slog.New(slog.NewTextHandler(&lines, nil))
		})
		a, b := w.peer(0), w.peer(1)
		for _, p := range []*peer{a, b} {
			p.enters("1 [0 1] from []")
		}
		w.cancel()
		<-w.ended
		want := `msg="World 1 formed: 2 workers [worker-0 worker-1], the program starts"`
		if !strings.Contains(lines.String(), want) || strings.Contains(lines.String(), "initial values") {
			t.Errorf("no %s in the log, or initial values:\n%s", want, lines.String())
		}
	})
}
