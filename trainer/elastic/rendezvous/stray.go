package rendezvous

import (
	"fmt"
	"slices"
)

// stray removes a process that is between two rounds and has lost its stream. The others continue
// without it, with one exception: a member of the last world that has the state is waited for until
// [Rendezvous.Leave] removes it, if no process that is present has the state. If it is back before
// the next world is formed, it is a member again.
func (r *Rendezvous) stray(p *process, reason string) {
	has := p.phase == arrived && p.Exists()
	r.drop(p, fmt.Sprintf("%v left: %s", p, reason))
	if has {
		r.reinstate(p)
		p.phase = astray
		r.strays = append(r.strays, p)
	}
}

// Knows reports whether the process of that session is known and has not left, whether or not it is
// a member.
func (r *Rendezvous) Knows(worker int, session int64) bool {
	p := r.known[worker]
	return p != nil && p.Session == session && p.phase != left
}

// reinstate undoes the retirement of a process that was called just before.
func (r *Rendezvous) reinstate(p *process) { r.departed = r.departed[:len(r.departed)-1] }

// regain makes a stray a member again, at its former place in the order of ranks.
func (r *Rendezvous) regain(p *process) {
	r.strays = slices.DeleteFunc(r.strays, func(o *process) bool { return o == p })
	rank := func(p *process) int {
		return slices.IndexFunc(r.world.Members, p.Is)
	}
	at := 0
	for at < len(r.members) && rank(r.members[at]) < rank(p) {
		at++
	}
	r.members = slices.Insert(r.members, at, p)
	p.phase = working
}

// forgo retires the strays, as a world is formed without them.
func (r *Rendezvous) forgo() {
	for _, p := range r.strays {
		r.retire(p)
	}
	r.strays = nil
}

// lacking reports whether no process that is present has the state, and a stray may have it.
func (r *Rendezvous) lacking() bool { return len(r.strays) > 0 && !r.newest().Exists() }
