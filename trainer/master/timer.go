package master

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/status"
)

// loop handles the pods' events and the timer until every pod has ended, or the master leaves them.
func (m *master) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	done := ctx.Done()
	for m.rearm(timer) {
		select {
		case <-done:
			done = nil
			if cause := context.Cause(ctx); errors.Is(cause, ErrSuperseded) {
				m.superseded(cause)
			} else {
				m.halt(fmt.Errorf("stopped: %w", cause), true)
			}
		case e := <-m.Pods.Events():
			m.observe(e)
		case n := <-m.Notices:
			m.notice(n)
		case n := <-m.Config.Scale:
			m.specify(n)
			if _, err := m.scale(n); err != nil {
				m.Log.Warn("Not scaled", "error", status.Convert(err).Message())
			}
		case <-timer.C:
			m.tick()
		case <-m.poke:
		}
	}
}

// rearm sets the timer to the next deadline. It returns false if there is nothing left to wait for.
func (m *master) rearm(timer *time.Timer) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.stage.Done(m.table.Ended(), now) {
		return false
	}
	m.clock(now)
	m.armed = m.deadline(now)
	if m.armed.IsZero() {
		timer.Stop()
		return true
	}
	if m.armed.Before(now) {
		m.armed = now
	}
	timer.Reset(m.armed.Sub(now))
	return true
}

// clock returns now without the time in which this master itself did not run: it was suspended, or
// had no processor. Silence and delays are measured by this clock, so that others are not blamed
// for that time.
func (m *master) clock(now time.Time) time.Time {
	if late := now.Sub(m.armed); !m.armed.IsZero() && late > punctual {
		m.downtime += late
		m.armed = now
	}
	return now.Add(-m.downtime)
}

// punctual is the largest delay of the timer that does not count as time in which the master did
// not run. It is larger than the time between two looks at the time in one tick: otherwise
// something due at the second look would not be due at the first, again and again.
const punctual = 50 * time.Millisecond

// pulse is the number times that within the shortest relevant silence the timer fires, so that the
// master notices when it did not run.
const pulse = 4

// deadline returns the time at which something is due if nothing happens before; zero: never.
func (m *master) deadline(now time.Time) time.Time {
	var first time.Time
	sooner := func(at time.Time, ok bool) {
		if ok && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	sooner(m.table.Deadline())
	if sooner(m.stage.Deadline()); m.stage.Over() {
		return first
	}
	present := func(at time.Time, ok bool) { sooner(at.Add(m.downtime), ok) }
	present(m.announceBy, m.unannounced != nil && !m.stage.Recovering() && m.clock(now).Before(m.announceBy))
	present(m.queue.Deadline())
	present(m.checkpoints.deadline(m.clock(now)))
	if m.ring != nil {
		present(m.ring.deadline())
	}
	for id, c := range m.pods {
		if limit := m.strategy.silence(id.Role); limit > 0 && !c.heard.IsZero() {
			present(c.heard.Add(limit), true)
			sooner(now.Add(limit/pulse), true)
		}
	}
	return first
}

// tick does what is due.
func (m *master) tick() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.enqueue(m.table.Tick(now))
	if !m.stage.Over() {
		if m.ring != nil {
			m.ring.tick()
		}
		if m.unannounced != nil && !m.clock(now).Before(m.announceBy) {
			m.wake()
		}
		m.checkpoints.tick(m.clock(now))
		m.replaceStragglers(now)
		m.replaceSilent(now)
	}
	m.advance(now)
}
