package master

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

// noticeGrace is how long a checkpoint may take after a notice by default: half of the grace period
// of a Kubernetes pod.
const noticeGrace = 15 * time.Second

// notice makes the master go as soon as there is a checkpoint of what is in the model now.
func (m *master) notice(n Notice) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over || m.left != nil || m.going == halt || n != Leave && n != Suspend {
		return
	}
	m.begin(n, time.Now())
}

// halt stops the job for a reason, as soon as there is a checkpoint of what is in the model now. If
// the job is about to stop, or to rest, and again is set, it ends at once. A job that waits for its
// data has nothing to save.
func (m *master) halt(why error, again bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.over || m.left != nil {
		return
	}
	at := again && (m.going == halt || m.going == Suspend) || !m.planned
	m.halted = cmp.Or(m.halted, why)
	if at {
		m.end(job.Stopped, m.halted, now)
		return
	}
	m.begin(halt, now)
}

// begin makes the master go, in the way of a notice, as soon as that loses nothing. The caller
// holds the mutex.
func (m *master) begin(n Notice, now time.Time) {
	if m.going == 0 {
		m.goingSince = now
		m.goingBy, m.goingAt = now.Add(cmp.Or(m.Grace, noticeGrace)), m.strategy.version()
		// there is a first version, or will be, that nobody has told of yet
		if m.begun {
			m.goingAt = max(1, m.goingAt)
		}
	}
	m.going = n
	if n != Leave {
		m.table.Hold()
	}
	what := map[Notice]string{Leave: "The master was asked to leave, and the pods go on",
		Suspend: "The job is to be suspended", halt: "The job is to stop"}[n]
	m.Log.Info(what, "checkpoint", m.checkpoints.on(), "within", m.goingBy.Sub(now).Round(time.Second))
	m.advance(now)
	signal(m.poke)
}

// goes makes the master go if that is due: there is a checkpoint of what was in the model when the
// notice came, or there will be none in time.
func (m *master) goes(now time.Time) {
	if m.going == 0 || m.over || m.left != nil {
		return
	}
	c := m.checkpoints
	left := slices.ContainsFunc(m.table.List(), func(p pod.Pod) bool {
		return p.Phase != pod.Wanted && !p.Phase.Ended()
	})
	switch {
	case left && c.on() && m.planned && (m.begun || m.gathering) &&
		(c.covered() < m.goingAt || m.gathering) && now.Before(m.goingBy):
		return
	case left && m.going != Leave && m.program != nil && m.program.awaited(now):
		return
	case c.on() && c.covered() < m.goingAt:
		m.Log.Warn("No checkpoint could be made in time", "version", m.goingAt, "newest", c.covered())
	}
	if m.going == Leave {
		m.quit(ErrLeft)
		return
	}
	if m.going == halt {
		m.end(job.Stopped, m.halted, now)
		return
	}
	m.rests, m.parts = m.planned, true
	m.remember()
	m.sealed = true
	m.over, m.err, m.state, m.ended = true, ErrSuspended, job.Suspended, now
	m.Log.Info("Job Suspended", "checkpoint", c.newest().Number, "records", c.newestKept().records())
	m.enqueue(m.table.End(0, now))
	m.wake()
	signal(m.poke)
}

// quit ends Run, and leaves the pods as they are. The caller holds the mutex.
func (m *master) quit(err error) {
	if m.left != nil {
		return
	}
	m.parts = true
	m.remember()
	m.left, m.sealed = err, true
	m.Log.Info("The master leaves", "reason", err)
	m.wake()
	signal(m.poke)
}

// write writes the records for the next master, and ends this one if another has begun.
func (m *master) write(ctx context.Context) {
	err := m.scribe.run(ctx, func(err error) {
		m.Log.Warn("Writing the state for the next master failed; retrying", "error", err)
	})
	if err != nil {
		m.superseded(err)
	}
}

// superseded ends this master, as another has begun, to which the pods now belong.
func (m *master) superseded(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sealed = true
	m.quit(err)
}

// hint has the master's state written at intervals.
func (m *master) hint(ctx context.Context) {
	for pause(ctx, recordEvery); ctx.Err() == nil; pause(ctx, recordEvery) {
		m.mu.Lock()
		m.record()
		m.mu.Unlock()
	}
}

// specify notes the number of workers in the job's specification.
func (m *master) specify(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.specified = n
}

// adoptPods finds the pods that previous masters have left. It retries until it knows.
func (m *master) adoptPods(ctx context.Context) ([]pod.Event, error) {
	for wait := recordPause; ; wait = min(2*wait, recordMost) {
		observed, err := m.Pods.Adopt(ctx)
		if err == nil {
			return observed, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		m.Log.Warn("Listing the pods failed; retrying", "error", err)
		pause(ctx, wait)
	}
}

// restoreEnd replaces a master that has ended the job: the remaining pods are ended.
func (m *master) restoreEnd(observed []pod.Event, now time.Time) error {
	r := m.former
	table, actions, err := pod.Restore(m.podPolicy(), r.Pods, observed, now)
	if err != nil {
		return err
	}
	m.table, m.over, m.state, m.ended, m.started, m.evaluated = table, true, r.State, now, r.Started, r.Evaluated
	m.history.restore(r.History)
	if r.State != job.Succeeded {
		m.err = fmt.Errorf("%s", cmp.Or(r.Reason, "the previous master has not written why"))
	}
	m.Log.Info("The job has ended, as the previous master has written", "state", r.State)
	m.enqueue(actions)
	m.enqueue(table.End(0, now))
	signal(m.poke)
	return nil
}
