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
		case <-m.clock.poke:
		}
	}
}

// rearm sets the timer to the next deadline. It returns false if there is nothing left to wait for.
func (m *master) rearm(timer *time.Timer) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.stage.Done(m.fleet.table.Ended(), now) {
		return false
	}
	m.clock.at(now)
	at := m.deadline(now)
	after := m.clock.arm(at, now)
	if at.IsZero() {
		timer.Stop()
		return true
	}
	timer.Reset(after)
	return true
}

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
	sooner(m.fleet.table.Deadline())
	if sooner(m.stage.Deadline()); m.stage.Over() {
		return first
	}
	if m.admits() {
		sooner(m.admission.Deadline())
	}
	sooner(m.account.deadline())
	present := func(at time.Time, ok bool) { sooner(m.clock.wall(at), ok) }
	announced := &m.handover.announcements
	present(announced.by, !m.stage.Recovering() && announced.withheld(m.clock.at(now)))
	present(m.work.queue.Deadline())
	present(m.checkpoints.deadline(m.clock.at(now)))
	if m.ring != nil {
		present(m.ring.deadline())
	}
	for id, c := range m.contacts.all {
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
	m.enqueue(m.fleet.table.Tick(now))
	if !m.stage.Over() {
		if m.ring != nil {
			m.ring.tick()
		}
		if announced := &m.handover.announcements; announced.pending() && !announced.withheld(m.clock.at(now)) {
			m.waiters.wake()
		}
		m.checkpoints.tick(m.clock.at(now))
		m.replaceStragglers(now)
		m.replaceSilent(now)
	}
	m.advance(now)
}
