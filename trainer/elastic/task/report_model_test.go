package task

import "pgregory.net/rapid"

// The methods of model in this file report about leases, as workers do.

func (m *model) Touch(t *rapid.T) {
	l := m.lease()
	most := l.Records()
	if l.Kind == Export {
		most = 1000
	}
	done := rapid.Int64Range(0, most).Draw(t, "done")
	if done > m.reported[l.ID] {
		m.reported[l.ID], m.touched[l.Worker] = done, m.now
	}
	m.both(func(q *Queue) error { return q.Touch(l.ID, l.Worker, done, m.now) })
	m.credit(l, done)
	m.leases[l.ID] = l.upTo(done)
}

func (m *model) TouchTooMuch(t *rapid.T) {
	l := m.lease()
	if l.Kind == Export {
		t.Skip("its progress has no measure")
	}
	before := m.q.Stats()
	if err := m.q.Touch(l.ID, l.Worker, l.Records()+1, m.now); err == nil || before != m.q.Stats() {
		t.Fatalf("%v for more than the task; %v, then %v", err, before, m.q.Stats())
	}
}

func (m *model) Done(*rapid.T) {
	l := m.lease()
	m.both(func(q *Queue) error { return q.Done(l.ID, l.Worker, m.now) })
	m.credit(l, l.Records())
	m.touched[l.Worker] = m.now
	delete(m.counted, l.String())
	delete(m.returned, l.String())
	m.over[l.String()] = true
	m.end(l)
}

func (m *model) Fail(*rapid.T) {
	l := m.lease()
	m.both(func(q *Queue) error { return q.Fail(l.ID, l.Worker, "bad record", m.now) })
	m.fault(l, "bad record")
	m.end(l)
}

// Work reports effort, as of a worker that waits for its data.
func (m *model) Work(t *rapid.T) {
	l := m.lease()
	effort := rapid.Int64Range(0, 5).Draw(t, "effort")
	if effort > m.effort[l.ID] {
		m.effort[l.ID], m.touched[l.Worker] = effort, m.now
	}
	before := m.q.Stats()
	m.both(func(q *Queue) error { return q.Work(l.ID, l.Worker, effort, m.now) })
	if after := m.q.Stats(); before != after {
		t.Fatalf("effort changed %v to %v", before, after)
	}
}

// Return gives a lease back, and checks that its task is the next of its kind.
func (m *model) Return(t *rapid.T) {
	l := m.lease()
	m.both(func(q *Queue) error { return q.Return(l.ID, l.Worker, "stale file handle", m.now) })
	m.returned[l.String()]++
	if m.returned[l.String()] >= m.q.policy.MaxAttempts && m.fatal == "" {
		m.fatal = "stale file handle"
	}
	m.end(l)
	if next := m.q.todo(&l); next.again[len(next.again)-1].String() != l.String() {
		t.Fatalf("%v was given back and is not the next: %v", l, next.again)
	}
}
