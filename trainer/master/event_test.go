package master

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// TestEvents checks that each event of a job is reported once, in order.
func TestEvents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var told []string
		w := start(t, func(c *Config) {
			c.OnEvent = func(e Event) {
				switch e := e.(type) {
				case Leased:
					told = append(told, fmt.Sprintf("lease %d of %d", e.Lease.ID, e.Lease.Worker))
				case LeaseReturned:
					told = append(told, fmt.Sprintf("lease %d taken back from %d", e.Lease.ID, e.Lease.Worker))
				case PodEnded:
					told = append(told, fmt.Sprintf("%v ended, counted %v", e.ID, e.Counted))
				case EpochFinished:
					told = append(told, fmt.Sprintf("epoch %d of %d", e.Epoch, e.Records))
				case TrainingFinished, Ended:
					told = append(told, fmt.Sprintf("%T%+v", e, e))
				}
			}
		})
		w.join()
		w.task(0)
		w.pods.end(worker(0), pod.Exit{Code: 1})
		synctest.Wait()
		w.train(1)
		w.leave()
		want := []string{
			"lease 1 of 0", "worker-0 ended, counted true", "lease 1 taken back from 0", "lease 2 of 1", "lease 3 of 1",
			"epoch 1 of 8", "master.TrainingFinished{Version:0}", "master.Ended{State:Succeeded Err:<nil>}",
		}
		if i := slices.Index(told, want[len(want)-1]); i < 0 || !slices.Equal(told[:i+1], want) {
			t.Errorf("reported %q, want %q", told, want)
		}
	})
}

// An evaluation is given up if a server has lost the snapshot, although the server still runs.
func TestSnapshotLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var events []Event
		w := start(t, func(c *Config) {
			evaluated(c)
			c.OnEvent = func(e Event) { events = append(events, e) }
		})
		w.join()
		w.beats(50, 50)
		task := w.task(0)
		w.beat(&wire.HeartbeatRequest{Role: wire.Role_PS, Index: 1, Version: 51})
		_, err := w.ReportTask(t.Context(), &wire.ReportTaskRequest{Worker: 0, Lease: task.Lease,
			Version: 50, Metrics: []*wire.Metric{accuracy(1, 4)}})
		wantCode(t, err, codes.FailedPrecondition)
		if next := w.task(0); next.Kind != wire.TaskKind_TRAINING {
			t.Errorf("%v after the withdrawal", next)
		}
		if !slices.Contains(events, Event(EvaluationWithdrawn{Version: 50, Server: 1})) {
			t.Errorf("events %v", events)
		}
	})
}
