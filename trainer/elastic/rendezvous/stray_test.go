package rendezvous

import (
	"slices"

	"pgregory.net/rapid"
)

// Stray ends the stream of a process that is between two rounds. The messages on it are lost; the
// process arrives again.
func (m *model) Stray(t *rapid.T) {
	p := m.some("stands between two rounds", func(p *peer) bool {
		return p.alive && p.met && !m.followed(p) && !p.lost && (p.arrived() || !slices.Contains(m.old, p))
	})
	p.up, p.down, p.called = nil, nil, false
	has := slices.Contains(m.old, p) && p.heard[p.given].Exists()
	m.leave(p)
	p.left, p.lost = !has, has
	m.all(func(r *Rendezvous) []Action { return r.Disconnected(p.Worker, p.Session, "its stream ended", m.now) })
	if strays := slices.ContainsFunc(m.r.strays, func(o *process) bool {
		return o.Member == p.Member
	}); strays != p.lost {
		t.Fatalf("%+v strays: %t, want %t", p, !p.lost, p.lost)
	}
	// a world was formed without it, or it has no state: it comes back as another process
	if !p.lost {
		p.left, p.alive = true, false
		return
	}
	p.rests = true
	// the message about a world that it had not read is lost, too
	p.generation = p.given
	delete(p.heard, p.given)
	p.up = append(p.up, p.said[len(p.said)-1])
}

// regain makes a stray that arrives a member again, in the order of ranks.
func (m *model) regain(p *peer, a Arrival) {
	if !p.lost || a.Generation != p.given {
		return
	}
	p.lost = false
	m.old = append(m.old, p)
	rank := func(p *peer) int { return slices.Index(m.last().Members, p.Member) }
	slices.SortFunc(m.old, func(a, b *peer) int { return rank(a) - rank(b) })
}

// lacking reports whether no member that is back has the state, and a stray may have it.
func (m *model) lacking() bool {
	return !m.newest().Exists() && slices.ContainsFunc(m.peers, func(p *peer) bool { return p.lost })
}

// forgo checks that a world may be formed without the strays, and removes them.
func (m *model) forgo(newest Position) {
	for _, p := range m.peers {
		if p.lost && !newest.Exists() {
			m.t.Fatalf("a world without a state, and %+v may come back with it", p)
		}
		if p.lost {
			p.lost, p.left, p.alive = false, true, false // it comes back as another process
		}
	}
}
