package rendezvous

import (
	"slices"

	"pgregory.net/rapid"
)

// Stray ends a process's stream. What it has said and is not heard is lost with that, and so is what it is told; it comes back.
func (m *model) Stray(t *rapid.T) {
	p := m.some("has a stream", func(p *peer) bool { return p.alive && p.met && !m.followed(p) && !p.lost })
	p.up, p.down, p.called = nil, nil, false
	has := slices.Contains(m.old, p) && (!p.arrived() || p.heard[p.given] >= 0)
	m.leave(p)
	p.left, p.lost = !has, has
	m.all(func(r *Rendezvous) []Action { return r.Stray(p.Worker, p.Session, "its stream ended", m.now) })
	if m.r.Strays(p.Worker, p.Session) != p.lost {
		t.Fatalf("%+v strays: %t, want %t", p, !p.lost, p.lost)
	}
	if !p.lost { // the world has gone on at once, or it has nothing: it comes as another
		p.left, p.alive = true, false
		return
	}
	p.rests = true
	p.formation = p.given // the word of a world that it had not read is lost, too
	delete(p.heard, p.given)
	p.up = append(p.up, Arrival{Member: p.Member, Formation: p.given, Round: p.round, Suspect: -1})
}

// regain has a stray that is heard be a member again, in its place.
func (m *model) regain(p *peer, a Arrival) {
	if !p.lost || a.Formation != p.given {
		return
	}
	p.lost = false
	m.old = append(m.old, p)
	rank := func(p *peer) int { return slices.Index(m.last().Members, p.Member) }
	slices.SortFunc(m.old, func(a, b *peer) int { return rank(a) - rank(b) })
}

// lacking says that nobody who is back has the state, and a stray may have it.
func (m *model) lacking() bool {
	return m.newest() < 0 && slices.ContainsFunc(m.peers, func(p *peer) bool { return p.lost })
}

// forgo checks that a world may be formed without the strays, which are gone for it.
func (m *model) forgo(newest int64) {
	for _, p := range m.peers {
		if p.lost && newest < 0 {
			m.t.Fatalf("a world without a state, and %+v may come back with it", p)
		}
		if p.lost {
			p.lost, p.left, p.alive = false, true, false // it comes as another
		}
	}
}
