package master

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/lifecycle"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

// inQueue makes the job one in a queue, with 3 workers of which it needs one, and with pods whose
// phases the test reports.
func inQueue(c *Config) {
	c.Job.Queue, c.Job.QueueTimeout = "team-a", job.Duration{Duration: 4 * time.Minute}
	c.Job.NumWorkers, c.Job.MinWorkers = 3, 1
	c.Pods.(*fakePods).silent = true
	c.Memory = new(memory)
}

// queue reports that a pod waits for quota, or runs.
func (w *world) queue(id pod.ID, waits bool) {
	e := pod.Event{ID: id, Incarnation: w.pods.incarnation(id), Phase: pod.Running,
		Core: id.Role == pod.Worker && w.pods.of(id).Core}
	if waits {
		e.Phase, e.Queued = pod.Pending, true
	}
	w.pods.events <- e
	synctest.Wait()
}

// of returns the last creation of a pod.
func (p *fakePods) of(id pod.ID) (last Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.created {
		if c.ID == id {
			last = c
		}
	}
	return last
}

// A job whose server waits for quota first deletes a worker beyond its core, and then gives all
// back. The next master knows how often that was.
func TestQuotaIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, inQueue)
		if core := w.pods.of(worker(0)); !core.Core || w.pods.of(worker(1)).Core {
			t.Fatal("worker-0 alone is of the core")
		}
		w.queue(ps(0), true)
		for i := range 3 {
			w.queue(worker(i), false)
		}
		time.Sleep(59 * time.Second)
		if got := w.pods.ended(); len(got) > 0 {
			t.Fatalf("%v deleted within half of the time", got)
		}
		time.Sleep(2 * time.Second)
		if got := w.pods.ended(); !slices.Equal(got, []pod.ID{worker(2)}) {
			t.Fatalf("%v deleted, expected a worker beyond the core", got)
		}
		<-w.ended
		var yielded *Yielded
		if !errors.As(w.err, &yielded) || yielded.Pause < 4*time.Minute || yielded.Pause > 8*time.Minute ||
			yielded.Reason != "2 of 3 core pods have quota of queue team-a" {
			t.Fatalf("%v, %+v", w.err, yielded)
		}
		if left := w.pods.running(); len(left) > 0 {
			t.Errorf("%v still run", left)
		}
	})
}

// A pod has no quota until the cluster reports that it has: otherwise each creation would end a
// wait.
func TestCreatedPodsHaveNoQuota(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, inQueue)
		w.queue(ps(0), false)
		select {
		case <-w.ended:
		case <-time.After(13 * time.Minute):
			t.Fatal("the workers have waited for three times the time")
		}
		if !errors.Is(w.err, lifecycle.ErrYielded) {
			t.Errorf("%v, expected a return of the quota", w.err)
		}
	})
}

// A job whose core is complete waits for its other workers without a limit, and is trained.
func TestElasticWorkersMayWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, inQueue)
		w.queue(ps(0), false)
		w.queue(worker(0), false)
		w.queue(worker(1), true)
		w.queue(worker(2), true)
		time.Sleep(time.Hour)
		select {
		case <-w.ended:
			t.Fatalf("ended: %v", w.err)
		default:
		}
		if got := w.pods.ended(); len(got) > 0 {
			t.Errorf("%v deleted", got)
		}
	})
}

// A stop, or a suspension, that comes while the job waits is not changed into a pause.
func TestSuspendedWhileItWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		notices := make(chan Notice, 1)
		w := start(t, func(c *Config) { inQueue(c); c.Notices = notices })
		w.queue(ps(0), true)
		notices <- Suspend
		<-w.ended
		if !errors.Is(w.err, ErrSuspended) {
			t.Error(w.err)
		}
	})
}

// The number of attempts is in the record: pauses grow from master to master.
func TestAttemptsAreRemembered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		kept := new(memory)
		w := start(t, func(c *Config) { inQueue(c); c.Memory = kept })
		w.queue(ps(0), true)
		<-w.ended
		if !errors.Is(w.err, lifecycle.ErrYielded) {
			t.Fatal(w.err)
		}
		r := new(record)
		if err := json.Unmarshal(kept.read(), r); err != nil || r.Yields != 1 {
			t.Fatalf("%d attempts in the record, %v", r.Yields, err)
		}
		if a := newAdmission(job.Default(), r); a.Attempts() != 1 {
			t.Errorf("the next master knows of %d attempts", a.Attempts())
		}
	})
}
