package rendezvous

import (
	"strings"
	"time"

	"pgregory.net/rapid"
)

// Check checks what holds after every step.
func (m *model) Check(t *rapid.T) {
	back, there := 0, len(m.old)+len(m.guests)
	for _, p := range m.old {
		if p.arrived() {
			back++
		}
	}
	arrived, why := m.r.Waiting()
	if arrived != back+len(m.guests) {
		t.Fatalf("%d have arrived, the model has %d and %d", arrived, back, len(m.guests))
	}
	if m.r.Over() != m.over() {
		t.Fatalf("over: %t, finished %v of %+v", m.r.Over(), m.finished, m.last())
	}
	if m.over() {
		return
	}
	changing := len(m.old) > 0 && (m.notified != 0 || m.broken)
	working := len(m.old) > 0 && !changing
	if (why == "") != working {
		t.Fatalf("waiting: %q, working: %t", why, working)
	}
	if changing && back == len(m.old) && there >= m.policy.Min && !m.lacking() && !m.short() {
		t.Fatalf("all are back, and there is no world: %q", why)
	}
	if changing && back < len(m.old) && m.notified == 0 {
		t.Fatalf("nobody was asked to come back: %q", why)
	}
	if changing && back < len(m.old) && m.notified != Abort && m.divided() {
		t.Fatalf("some have finished, and others that came back wait for them: %q", why)
	}
	if working && m.spares() && len(m.finished) == 0 {
		t.Fatalf("the world works, and could do without some that are to leave")
	}
	switch {
	case !m.short():
		m.gathers = time.Time{}
	case m.gathers.IsZero():
		m.gathers = m.now
	}
	joins := working && m.room() > 0 && len(m.finished) == 0 ||
		len(m.old) == 0 && there >= m.policy.Min && !m.lacking() && !m.short()
	switch {
	case !joins:
		m.joinable = time.Time{}
	case m.joinable.IsZero():
		m.joinable = m.now
	}
	at, ok := m.r.Deadline()
	// members that are away are not waited for after this time, and no other wait takes longer
	if gives := m.gives(); !gives.IsZero() {
		if !ok || at.After(gives) {
			t.Fatalf("deadline %v (%t), and some are away until %v", at, ok, gives)
		}
		if at == gives {
			return
		}
	}
	if m.short() {
		if !ok || at != m.gathers.Add(m.policy.Gather) || !strings.HasSuffix(why, "workers") {
			t.Fatalf("deadline %v (%t), it gathers since %v, %q", at, ok, m.gathers, why)
		}
		return
	}
	if joins && (there >= m.wanted() || !ok || at != m.joinable.Add(m.policy.Settle)) {
		t.Fatalf("%d there, %d wanted, since %v, deadline %v (%t)", there, m.wanted(), m.joinable, at, ok)
	}
	if ok && (!at.After(m.now) || !joins && (back == 0 || at.After(m.now.Add(m.policy.Patience)))) {
		t.Fatalf("deadline %v, now %v, %q", at, m.now, why)
	}
}
