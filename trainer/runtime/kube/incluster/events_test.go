package incluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/elasticdl/elasticdl/test/kubetest"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/observe"
)

// testEvents returns a writer of events, the fake cluster to which it writes, and its log.
func testEvents() (*eventWriter, *fake.Clientset, *strings.Builder) {
	set, log := fake.NewClientset(), new(strings.Builder)
	w := newEventWriter(set.CoreV1().Events("default"), observe.Component, "default", "test", "the-job", "master-a",
		"node-1", slog.New(logline.New(log, slog.LevelInfo)))
	return w, set, log
}

// written returns the events of a cluster, in the order of their names, which is that of their
// creation.
func written(t *testing.T, set *fake.Clientset) []core.Event {
	t.Helper()
	list, err := set.CoreV1().Events("default").List(context.Background(), meta.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(list.Items, func(a, b core.Event) int { return strings.Compare(a.Name, b.Name) })
	return list.Items
}

var (
	startedOver = master.TrainingRestarted{ModelGeneration: 2,
		Reason: "ps-0 was lost with its part of the model: node lost", Records: 512}
	crashed = master.PodEnded{ID: worker0, Incarnation: 1, Reason: "exit code 1: no such file", Counted: true}
)

// TestEventWords checks which events of a master become events of its Job, and with which texts.
func TestEventWords(t *testing.T) {
	for _, tt := range []struct {
		e               master.Event
		kind, why, says string
	}{
		{startedOver, "Warning", "TrainingStartedOver",
			"the training started over from the initial values: ps-0 was lost with its part of the " +
				"model: node lost; 512 records were trained on till then"},
		{master.RolledBack{ModelGeneration: 2, Reason: "ps-0 was lost", Checkpoint: 12, Version: 340, Records: 512,
			Kept: 384}, "Warning", "TrainingRolledBack",
			"the training returned to checkpoint 12 at version 340, with 384 of 512 records: ps-0 was lost"},
		{master.ProgramResumed{ModelGeneration: 2, Reason: "every worker was lost", Step: 20200, Records: 803200,
			Repeated: 224}, "Warning", "TrainingRolledBack",
			"resumed from the checkpoint at step 20,200, with 803,200 records; 224 records are " +
				"repeated: every worker was lost"},
		{master.ProgramResumed{ModelGeneration: 2, Reason: "every worker was lost", Step: 9, Repeated: 7,
			AtLeast: true}, "Warning", "TrainingRolledBack",
			"resumed from the checkpoint at step 9; at least 7 records are repeated: every worker was lost"},
		{master.CheckpointDamaged{Number: 12,
			Reason: "shard-0-of-2.safetensors: its checksum is wrong"}, "Warning", "CheckpointDamaged",
			"checkpoint 12 cannot be used: shard-0-of-2.safetensors: its checksum is wrong"},
		{master.CheckpointFailed{Number: 13, Reason: "no space left on device"}, "Warning",
			"CheckpointFailed", "checkpoint 13 was given up, and is tried again: no space left on device"},
		{crashed, "Warning", "PodFailed", "elasticdl-test-worker-0: exit code 1: no such file"},
		{master.PodEnded{ID: worker0, Reason: "exit code 1", Counted: true, GivenUp: true}, "Warning",
			"PodFailed", "elasticdl-test-worker-0: exit code 1; it is not replaced: " +
				"--relaunch_on_worker_failure allows no more"},
		{master.PodEnded{ID: ps0, Reason: "rejected by its node: OutOfcpu", Rejected: true}, "Warning",
			"PodRejected", "elasticdl-test-ps-0: rejected by its node: OutOfcpu"},
		{master.PodReplaced{ID: worker0, Reason: "silent for 5s"}, "Warning", "PodReplaced",
			"elasticdl-test-worker-0: replaced: silent for 5s"},
		{master.PodRefused{ID: worker0, Reason: "exceeded quota"}, "Warning", "FailedCreate",
			"elasticdl-test-worker-0: exceeded quota"},
		{master.Ended{State: job.Succeeded}, "Normal", "TrainingSucceeded",
			"every record of every epoch was trained on"},
		{master.Ended{State: job.Failed, Err: errors.New("no\ndata")}, "Warning", "TrainingFailed",
			"no data"},
		{master.Ended{State: job.Stopped, Err: errDeleted}, "Warning", "TrainingStopped",
			errDeleted.Error()},
		{master.Ended{State: job.Failed, Err: errors.New(strings.Repeat("é", 1000))}, "Warning",
			"TrainingFailed", strings.Repeat("é", 510) + "…"},
		{e: master.Leased{}},
		{e: master.LeaseReturned{}},
		{e: master.PodUnwanted{ID: worker0, Reason: "scaled down"}},
		{e: master.PodEnded{ID: worker0, Reason: "preempted"}},
		{e: master.EpochFinished{Epoch: 1, Records: 512}},
		{e: master.TrainingFinished{Version: 1}},
		{e: master.WorldFormed{}},
		{e: master.CheckpointWritten{Number: 1}},
		{e: master.Evaluated{Version: 1}},
		{e: master.EvaluationWithdrawn{Version: 1}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, set, log := testEvents()
			w.start()
			w.hear(master.EntryOf(tt.e))
			w.end()
			all := written(t, set)
			if tt.why == "" {
				if len(all) > 0 {
					t.Errorf("%T makes %s: %s", tt.e, all[0].Reason, all[0].Message)
				}
				return
			}
			if len(all) != 1 || log.Len() > 0 {
				t.Fatalf("%T: %d events, log %s", tt.e, len(all), log)
			}
			e := all[0]
			if e.Type != tt.kind || e.Reason != tt.why || e.Message != tt.says {
				t.Errorf("%s %s: %s", e.Type, e.Reason, e.Message)
			}
			if o := e.InvolvedObject; o.APIVersion != "batch/v1" || o.Kind != "Job" ||
				o.Name != "elasticdl-test-master" || o.Namespace != "default" || o.UID != "the-job" {
				t.Errorf("about %+v", o)
			}
			if e.Namespace != "default" || e.Source.Component != "elasticdl-master" ||
				e.Source.Host != "node-1" || e.ReportingController != "elasticdl-master" ||
				e.ReportingInstance != "master-a" {
				t.Errorf("of %s, from %+v, %s %s", e.Namespace, e.Source, e.ReportingController, e.ReportingInstance)
			}
			if now := time.Now(); e.Count != 1 || !e.FirstTimestamp.Time.Equal(now) ||
				!e.LastTimestamp.Time.Equal(now) || len(e.Message) > 1024 {
				t.Errorf("%d times, from %v to %v, %d bytes", e.Count, e.FirstTimestamp,
					e.LastTimestamp, len(e.Message))
			}
		})
	}
}

// TestEventsAreFew checks that events about many pods are combined and counted, and do not hide
// events about the job.
func TestEventsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, set, _ := testEvents()
		w.start()
		const pods = 1000
		began := time.Now()
		for i := range pods {
			w.hear(master.EntryOf(master.PodRefused{ID: pod.ID{Role: pod.Worker, Index: i}, Reason: "exceeded quota"}))
			time.Sleep(time.Hour / pods)
		}
		w.hear(master.EntryOf(startedOver))
		synctest.Wait()
		all := written(t, set)
		if last := all[len(all)-1]; last.Reason != "TrainingStartedOver" {
			t.Errorf("the last event is %s", last.Reason)
		}
		w.end()
		all = slices.DeleteFunc(written(t, set), func(e core.Event) bool { return e.Reason != "FailedCreate" })
		count := int32(0)
		for _, e := range all {
			if count += e.Count; e.Count > 1 &&
				!strings.HasPrefix(e.Message, "(combined from similar events): elasticdl-test-worker-") ||
				strings.Count(e.Message, "combined") > 1 || e.LastTimestamp.Before(&e.FirstTimestamp) {
				t.Errorf("%d times, from %v to %v: %s", e.Count, e.FirstTimestamp, e.LastTimestamp, e.Message)
			}
		}
		if most := eventBurst + int(time.Since(began)/eventEvery) + 1; count != pods ||
			len(all) > most || len(all) <= eventBurst {
			t.Errorf("%d events that count %d, expected at most %d that count %d", len(all), count, most, pods)
		}
		if last := all[len(all)-1]; !strings.HasSuffix(last.Message, "worker-999: exceeded quota") ||
			!last.LastTimestamp.After(last.FirstTimestamp.Time) {
			t.Errorf("the last: %s, from %v to %v", last.Message, last.FirstTimestamp, last.LastTimestamp)
		}
	})
}

// TestSameEvent checks that a repeated event is counted, and is not called combined.
func TestSameEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, set, _ := testEvents()
		w.hear(master.EntryOf(crashed))
		w.hear(master.EntryOf(crashed))
		w.start()
		w.end()
		if all := written(t, set); len(all) != 1 || all[0].Count != 2 ||
			all[0].Message != "elasticdl-test-worker-0: exit code 1: no such file" {
			t.Errorf("%v", all)
		}
	})
}

// TestEventsWait checks that a master does not wait for an API server that does not answer, and
// that no event is lost or written twice.
func TestEventsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, set, log := testEvents()
		var back atomic.Bool
		tries := 0
		set.PrependReactor("create", "events", func(a kubetesting.Action) (bool, runtime.Object, error) {
			// the event is created, and the answer is lost
			if tries++; tries == 1 {
				set.Tracker().Add(a.(kubetesting.CreateAction).GetObject())
			}
			return !back.Load(), nil, kubetest.Refused
		})
		w.start()
		w.hear(master.EntryOf(startedOver))
		synctest.Wait()
		for range 10_000 {
			w.hear(master.EntryOf(crashed))
		}
		w.hear(master.EntryOf(master.TrainingRestarted{ModelGeneration: 3, Reason: "again"}))
		time.Sleep(time.Minute)
		back.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		var got []string
		for _, e := range written(t, set) {
			got = append(got, fmt.Sprint(e.Reason, " ", e.Count))
		}
		want := []string{"TrainingStartedOver 1", "PodFailed 10000", "TrainingStartedOver 1"}
		if !slices.Equal(got, want) {
			t.Errorf("%q, expected %q", got, want)
		}
		w.end()
		if strings.Contains(log.String(), "not written") {
			t.Errorf("log:\n%s", log)
		}
	})
}

// TestEventsAtTheEnd checks that waiting events are written before the process of the master ends,
// for at most eventLimit.
func TestEventsAtTheEnd(t *testing.T) {
	for _, answers := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w, set, log := testEvents()
			w.start()
			for range 2 * eventBurst {
				w.hear(master.EntryOf(crashed))
				synctest.Wait()
			}
			if !answers {
				set.PrependReactor("create", "events", func(kubetesting.Action) (bool, runtime.Object, error) {
					return true, nil, kubetest.Refused
				})
			}
			before := len(written(t, set))
			w.hear(master.EntryOf(master.Ended{State: job.Failed, Err: errors.New("no data")}))
			began := time.Now()
			w.end()
			took, all := time.Since(began), written(t, set)
			count := int32(0)
			for _, e := range all {
				count += e.Count
			}
			switch {
			case answers && (count != 2*eventBurst+1 || took > 0 || log.Len() > 0):
				t.Errorf("%d events reported after %v, log %s", count, took, log)
			case !answers && (len(all) != before || took != eventLimit ||
				!strings.Contains(log.String(), "not written in time") ||
				!strings.Contains(log.String(), "TrainingFailed")):
				t.Errorf("%d events, before %d, after %v, log %s", len(all), before, took, log)
			}
			// a late call to the master may cause an event after the end
			w.hear(master.EntryOf(startedOver))
		})
	}
}

// TestEventsDenied checks that a master that may not write events logs that once.
func TestEventsDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, set, log := testEvents()
		kubetest.Fail(set, "create", "events", 99, kubetest.Forbidden("create", "events"))
		w.start()
		for _, e := range []master.Event{startedOver, crashed, master.Ended{State: job.Succeeded}} {
			w.hear(master.EntryOf(e))
			time.Sleep(time.Minute)
		}
		w.end()
		if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "cannot create resource") {
			t.Errorf("log:\n%s", log)
		}
		if n := len(set.Actions()); n != 3 {
			t.Errorf("%d requests for 3 events", n)
		}
	})
}

// written returns the events that were written, as in "Warning PodFailed".
func (c *nodes) written() []string {
	c.apiServer.mu.Lock()
	defer c.apiServer.mu.Unlock()
	var all []string
	for _, e := range c.events {
		all = append(all, e.Type+" "+e.Reason)
	}
	return all
}

// TestMasterTellsEvents checks that a master writes an event when the training starts over, and one
// before it ends, when the job was stopped.
func TestMasterTellsEvents(t *testing.T) {
	c := newNodes(t, func(j *job.Job) { j.NumEpochs = 1000 })
	ctx, cancel := context.WithCancel(t.Context())
	end := c.begin(ctx, "master-a")
	c.await("it trains", func() bool { return c.statusLocked().RecordsDone > 0 })
	c.change("elasticdl-test-ps-0", preempted)
	c.await("an event", func() bool { return len(c.events) > 0 })
	c.root(func(o *batch.Job) { o.DeletionTimestamp = new(meta.Now()) })
	cancel()
	if err := <-end; !errors.Is(err, errDeleted) {
		t.Error(err)
	}
	if told := c.written(); !slices.Equal(told, []string{"Warning TrainingStartedOver", "Warning TrainingStopped"}) {
		t.Errorf("reported %q", told)
	}
	if s := c.status(); s.ModelGeneration < 2 || s.RollbackReason == "" {
		t.Errorf("model generation %d, %q", s.ModelGeneration, s.RollbackReason)
	}
}

// TestMasterMayTellNoEvents checks that a job succeeds although its master may not write events.
func TestMasterMayTellNoEvents(t *testing.T) {
	for _, denied := range []bool{false, true} {
		c := newNodes(t, nil)
		if denied {
			c.refuse = func(method, path string) error {
				if method == http.MethodPost && strings.HasSuffix(path, "/events") {
					return kubetest.Forbidden("create", "events")
				}
				return nil
			}
		}
		if err := <-c.begin(t.Context(), "master-a"); err != nil {
			t.Error(err)
		}
		if s := c.status(); s.State != "Succeeded" {
			t.Errorf("denied %t: %s", denied, s.State)
		}
		if told := c.written(); slices.Equal(told, []string{"Normal TrainingSucceeded"}) == denied ||
			denied && len(told) > 0 {
			t.Errorf("denied %t: reported %q", denied, told)
		}
	}
}

// TestMasterTellsWhyItFails checks that a job that cannot begin gives the reason in an event, too.
func TestMasterTellsWhyItFails(t *testing.T) {
	told := func(c *nodes) string {
		c.apiServer.mu.Lock()
		defer c.apiServer.mu.Unlock()
		var text strings.Builder
		for _, e := range c.events {
			text.WriteString(e.Reason + ": " + e.Message)
		}
		return text.String()
	}
	c := newNodes(t, func(j *job.Job) { j.ValidationData = "/none" })
	if err := <-c.begin(t.Context(), "master-a"); err == nil {
		t.Error("it has not failed")
	}
	if text := told(c); !strings.HasPrefix(text, "TrainingFailed: --validation_data: ") {
		t.Errorf("no data: %q", text)
	}
}
