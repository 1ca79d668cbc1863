package rendezvous

import (
	"cmp"
	"fmt"
	"slices"
)

// newest returns the newest position of the states of the members that are back, [NoState] if none
// of them has a state.
func (r *Rendezvous) newest() Position {
	newest := NoState
	for _, p := range r.members {
		if p.phase == arrived && p.Position.Compare(newest) > 0 {
			newest = p.Position
		}
	}
	return newest
}

// dispensable reports whether a world can be formed without the missing members if they stay away:
// each of them is a suspect, and the state is not lost with them. A missing member that is no
// suspect is waited for: it is in the middle of a step, and if it is dead, the end of its stream or
// of its heartbeats shows that. A suspect may have lost only its links to the others, which its
// stream does not show.
func (r *Rendezvous) dispensable(missing []*process) bool {
	suspects := make(map[int]bool)
	for _, p := range r.members {
		if p.phase == arrived && p.Broken {
			suspects[p.Suspect] = true
		}
	}
	for _, p := range missing {
		if !suspects[p.Worker] {
			return false
		}
	}
	return r.newest().Exists() || len(r.world.Sources) == 0
}

// severed reports whether the streams of all missing members have ended.
func severed(missing []*process) bool {
	return !slices.ContainsFunc(missing, func(p *process) bool { return !p.cut })
}

// leaveOut removes the missing members. If they arrive later they are newcomers.
func (r *Rendezvous) leaveOut() {
	missing := r.missing()
	r.cause = names(list(missing)) + " stayed away"
	kept := r.members[:0]
	for _, p := range r.members {
		if p.phase == working {
			p.phase = outside
		} else {
			kept = append(kept, p)
		}
	}
	r.members = kept
}

// parts reports whether the members that depart are not needed: the others suffice for a world, and
// one of them has the newest state, or no member has a state. All members must be back.
func (r *Rendezvous) parts() bool {
	newest := r.newest()
	has := slices.ContainsFunc(r.staying(), func(p *process) bool { return p.Position == newest })
	return (!newest.Exists() || has) && r.spared() && !r.lacking()
}

// part releases the members that depart.
func (r *Rendezvous) part() {
	for _, p := range r.departing() {
		r.release(p)
		r.cause = fmt.Sprintf("%v left", p)
	}
}

// meet forms a world of the members, or evicts one of them if outcast returns one. All members must
// be back.
func (r *Rendezvous) meet() {
	p := r.outcast()
	if p == nil {
		r.form()
		return
	}
	reason := fmt.Sprintf("suspected %d times in %d worlds without a round", r.suspicion[p.Worker], r.stuck)
	r.did = append(r.did, Action{Verb: Evict, Member: p.Member, Reason: reason})
	r.drop(p, reason)
	r.cause = fmt.Sprintf("%v was evicted", p)
}

// outcast counts how often the same members came back without a round. When that is Attempts times,
// it returns the member that was suspected most often, of several the one with the highest rank,
// but never the only member that has the state; otherwise nil. A world that broke when there was no
// work to do does not count as one without a round.
func (r *Rendezvous) outcast() *process {
	if r.changed() {
		return nil
	}
	if idle := func(p *process) bool {
		return p.Broken && p.Idle
	}; r.newest().Compare(r.world.Position) > 0 || slices.ContainsFunc(r.members, idle) {
		r.reset()
		return nil
	}
	holders, broken := 0, false
	for _, p := range r.members {
		if p.Exists() {
			holders++
		}
		if p.Broken {
			broken = true
			r.suspicion[p.Suspect]++
		}
	}
	if !broken {
		return nil
	}
	if r.stuck++; r.stuck < r.policy.Attempts || len(r.members) == 1 {
		return nil
	}
	var most *process
	for _, p := range r.members {
		if (!p.Exists() || holders > 1) && (most == nil || r.suspicion[p.Worker] >= r.suspicion[most.Worker]) {
			most = p
		}
	}
	return most
}

// changed reports whether the next world has other members than the last.
func (r *Rendezvous) changed() bool { return len(r.members) < len(r.world.Members) || r.room() > 0 }

func (r *Rendezvous) reset() {
	r.stuck = 0
	clear(r.suspicion)
}

// seniority is 0 for a member that takes part in the rounds of the next world, as it did in those
// of the last, otherwise 1.
func (r *Rendezvous) seniority(p *process) int {
	if p.Aside || r.aside[p.Worker] {
		return 1
	}
	return 0
}

// form forms a world of the members and of as many guests as there is room for.
func (r *Rendezvous) form() {
	r.generations++
	slices.SortStableFunc(r.members, func(a, b *process) int { return cmp.Compare(r.seniority(a), r.seniority(b)) })
	w := World{ID: r.world.ID, Generation: r.generations}
	if newest := r.newest(); newest.Exists() {
		w.Position = newest
		for rank, p := range r.members {
			switch {
			case p.Position == newest:
				w.Sources = append(w.Sources, rank)
			case p.Position.Exists():
				w.Behind = append(w.Behind, rank)
			}
		}
	} else if r.world.Generation > 0 {
		r.did = append(r.did, Action{Verb: StateLost, Reason: "nobody who has the state is left"})
	}
	if r.changed() {
		w.ID++
		r.reset()
	}
	room := r.room()
	r.members = append(r.members, r.guests[:room]...)
	r.guests = append([]*process(nil), r.guests[room:]...)
	for _, p := range r.members {
		p.phase, p.given = working, w.Generation
	}
	w.Members = list(r.members)
	clear(r.finished)
	clear(r.aside)
	for _, p := range r.members {
		if p.Aside {
			r.aside[p.Worker] = true
		}
	}
	r.forgo()
	r.did = append(r.did, Action{Verb: Form, World: w, Reason: r.cause})
	r.world, r.notified, r.cause = w, 0, ""
}

// list returns the members of the processes.
func list(processes []*process) []Member {
	members := make([]Member, len(processes))
	for i, p := range processes {
		members[i] = p.Member
	}
	return members
}
