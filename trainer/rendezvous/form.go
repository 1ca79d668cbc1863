package rendezvous

import (
	"fmt"
	"slices"
)

// newest is the round of the newest state of the members that are back; -1: none has it.
func (r *Rendezvous) newest() int64 {
	newest := int64(-1)
	for _, p := range r.members {
		if p.place == back {
			newest = max(newest, p.Round)
		}
	}
	return newest
}

// dispensable says that the ring can do without the missing members if they stay away. One that nobody suspects
// cannot be spared: it is in the middle of a step, and the end of its stream or heartbeats tells if it is
// dead. A suspect may be cut off from the others only, so that its stream tells nothing; all they can do is wait
// a while. Nor can one be spared if with it the state were lost.
func (r *Rendezvous) dispensable(missing []*process) bool {
	suspects := make(map[int]bool)
	for _, p := range r.members {
		if p.place == back && p.Broken {
			suspects[p.Suspect] = true
		}
	}
	for _, p := range missing {
		if !suspects[p.Worker] {
			return false
		}
	}
	return r.newest() >= 0 || len(r.world.Sources) == 0
}

// severed says that the streams of the missing members have ended, too: they are as good as gone.
func severed(missing []*process) bool {
	return !slices.ContainsFunc(missing, func(p *process) bool { return !p.cut })
}

// leaveOut does without the missing members. When they come they are newcomers.
func (r *Rendezvous) leaveOut() {
	missing := r.missing()
	r.cause = names(list(missing)) + " stayed away"
	kept := r.members[:0]
	for _, p := range r.members {
		if p.place == working {
			p.place = outside
		} else {
			kept = append(kept, p)
		}
	}
	r.members = kept
}

// part releases the members that depart, all members being back, if somebody who stays has the newest state, or
// nobody has one.
func (r *Rendezvous) part() {
	newest, has := r.newest(), false
	for _, p := range r.staying() {
		has = has || p.Round == newest
	}
	switch {
	case newest >= 0 && !has, !r.spared():
		return
	}
	for _, p := range r.departing() {
		r.release(p)
		r.cause = fmt.Sprintf("%v left", p)
	}
}

// meet forms a world of the members, all of which are back, unless somebody has to go first.
func (r *Rendezvous) meet() {
	r.part()
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

// outcast counts how often the same members came back without a round, and is whom they suspected most when
// that is too often; of several, the newest. It is never the only one that has the state. A world that broke when nothing was to be done has
// worked: its members could come to a round.
func (r *Rendezvous) outcast() *process {
	if r.changed() {
		return nil
	}
	if idle := func(p *process) bool { return p.Broken && p.Idle }; r.newest() > r.world.Round || slices.ContainsFunc(r.members, idle) {
		r.reset()
		return nil
	}
	holders, broken := 0, false
	for _, p := range r.members {
		if p.Round >= 0 {
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
		if (p.Round < 0 || holders > 1) && (most == nil || r.suspicion[p.Worker] >= r.suspicion[most.Worker]) {
			most = p
		}
	}
	return most
}

// changed says that the next world has other members than the last.
func (r *Rendezvous) changed() bool { return len(r.members) < len(r.world.Members) || r.room() > 0 }

func (r *Rendezvous) reset() {
	r.stuck = 0
	clear(r.suspicion)
}

// form makes the world of the members and as many guests as find room.
func (r *Rendezvous) form() {
	r.formations++
	w := World{ID: r.world.ID, Formation: r.formations}
	if newest := r.newest(); newest >= 0 {
		w.Round = newest
		for rank, p := range r.members {
			if p.Round == newest {
				w.Sources = append(w.Sources, rank)
			}
		}
	} else if r.world.Formation > 0 {
		r.did = append(r.did, Action{Verb: Anew, Reason: "nobody who has the state is left"})
	}
	if r.changed() {
		w.ID++
		r.reset()
	}
	room := r.room()
	r.members = append(r.members, r.guests[:room]...)
	r.guests = append([]*process(nil), r.guests[room:]...)
	for _, p := range r.members {
		p.place, p.given = working, w.Formation
	}
	w.Members = list(r.members)
	r.forgo()
	r.did = append(r.did, Action{Verb: Form, World: w, Reason: r.cause})
	r.world, r.told, r.cause = w, 0, ""
}

// list is the processes as members.
func list(processes []*process) []Member {
	members := make([]Member, len(processes))
	for i, p := range processes {
		members[i] = p.Member
	}
	return members
}
