package rendezvous

import (
	"slices"

	"pgregory.net/rapid"
)

// Finish lets a member finish: it has nothing more to do in the world that it works in.
func (m *model) Finish(*rapid.T) {
	m.finish(m.some("may finish", func(p *peer) bool {
		return p.works() && p.generation == p.given && !p.arrived() && m.unfinished(p)
	}))
}

func (m *model) finish(p *peer) {
	m.unchanged(func(r *Rendezvous) []Action { return r.Finish(p.Worker, p.given-1, m.now) })
	m.finished[p.Member] = true
	m.all(func(r *Rendezvous) []Action { return r.Finish(p.Worker, p.given, m.now) })
	m.unchanged(func(r *Rendezvous) []Action { return r.Finish(p.Worker, p.given, m.now) })
}

// unfinished reports whether a peer is a member of the last world that is at work there, or has
// come back from it, and that takes part, or none has finished.
func (m *model) unfinished(p *peer) bool {
	return slices.Contains(m.old, p) && (p.arrived() || !m.finished[p.Member]) &&
		(!m.aside[p.Member] || len(m.finished) == 0)
}

// ignores reports whether a peer that was called back has finished in its world, and is not called
// at once. It may come back, or not.
func (m *model) ignores(p *peer) bool {
	return m.notified == Recall && slices.Contains(m.old, p) && p.generation == p.given && m.finished[p.Member]
}

// divided reports whether a member has finished, and another has come back before it had.
func (m *model) divided() bool {
	return len(m.finished) > 0 && slices.ContainsFunc(m.old, func(p *peer) bool {
		return p.arrived() && !m.finished[p.Member] && !m.aside[p.Member]
	})
}

// over reports whether all members of the last world that take part in its rounds have finished.
func (m *model) over() bool {
	return len(m.finished) > 0 && !slices.ContainsFunc(m.last().Members, func(who Member) bool {
		return !m.finished[who] && !m.aside[who]
	})
}
