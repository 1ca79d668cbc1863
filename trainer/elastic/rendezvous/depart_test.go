package rendezvous

import (
	"slices"

	"pgregory.net/rapid"
)

// release checks that a peer may be released, and removes it: another member has its state, or it
// has none.
func (m *model) release(p *peer) {
	member := slices.Contains(m.old, p)
	switch {
	case !p.asked || p.freed:
		m.t.Fatalf("%+v is released", p)
	case m.finished[p.Member], member && !m.unfinished(p):
	case member && !p.arrived():
		m.t.Fatalf("%+v is released in the middle of a round", p)
	case member && m.newest().Exists() && !slices.ContainsFunc(m.old, func(o *peer) bool {
		return !o.asked && o.arrived() && o.heard[o.given] == m.newest()
	}):
		m.t.Fatalf("%+v is released, and nobody else has the state", p)
	}
	p.freed, p.alive = true, false
	m.leave(p)
}

// staying returns the members of old that were not asked to leave.
func (m *model) staying() []*peer {
	return slices.DeleteFunc(slices.Clone(m.old), func(p *peer) bool { return p.asked })
}

// spares reports whether some members were asked to leave, and the others can form a world without
// them.
func (m *model) spares() bool {
	staying := len(m.staying())
	return 0 < staying && staying < len(m.old) && staying+m.room() >= m.policy.Min
}

// room returns for how many guests the next world has room.
func (m *model) room() int {
	if m.policy.Max == 0 {
		return len(m.guests)
	}
	return max(0, min(len(m.guests), m.policy.Max-len(m.staying())))
}

// Ask asks a process to leave that the rendezvous knows: it cannot release a process that has never
// arrived.
func (m *model) Ask(t *rapid.T) {
	p := m.some("stays", func(p *peer) bool { return p.alive && p.met && !p.asked && !m.followed(p) })
	p.asked = true
	m.all(func(r *Rendezvous) []Action { return r.Depart(p.Worker, m.now) })
	m.unchanged(func(r *Rendezvous) []Action { return r.Depart(p.Worker, m.now) })
}
