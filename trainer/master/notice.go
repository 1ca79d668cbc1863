package master

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/pod"
)

// noticeGrace is how long a checkpoint may take after a notice by default: half of the grace period of a Kubernetes pod.
const noticeGrace = 15 * time.Second

// notice makes the master go as soon as there is a checkpoint of what is in the model now.
func (m *master) notice(n Notice) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over || m.left != nil || n != Leave && n != Suspend {
		return
	}
	now := time.Now()
	if m.going == 0 {
		m.goingBy, m.goingAt = now.Add(cmp.Or(m.Grace, noticeGrace)), m.strategy.version()
		if m.begun { // there is a first version, or will be, that nobody has told of yet
			m.goingAt = max(1, m.goingAt)
		}
	}
	m.going = n
	m.Log.Info("The master was asked to leave", "pods", map[Notice]string{Leave: "go on", Suspend: "are ended"}[n], "checkpoint", m.checkpoints.on())
	m.advance(now)
	signal(m.poke)
}

// goes makes the master go if that is due: there is a checkpoint of what was in the model when the notice came, or there will be none in
// time.
func (m *master) goes(now time.Time) {
	c := m.checkpoints
	switch {
	case m.going == 0 || m.over || m.left != nil:
		return
	case c.on() && m.planned && (m.begun || m.gathering) && (c.covered() < m.goingAt || m.gathering) && now.Before(m.goingBy):
		return
	case c.on() && c.covered() < m.goingAt:
		m.Log.Warn("No checkpoint could be made in time", "version", m.goingAt, "newest", c.covered())
	}
	if m.going == Leave {
		m.quit(ErrLeft)
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
	if r.State != job.Succeeded {
		m.err = fmt.Errorf("%s", cmp.Or(r.Reason, "the previous master has not written why"))
	}
	m.Log.Info("The job has ended, as the previous master has written", "state", r.State)
	m.enqueue(actions)
	m.enqueue(table.End(0, now))
	signal(m.poke)
	return nil
}
