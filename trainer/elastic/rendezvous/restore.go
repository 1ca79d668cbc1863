package rendezvous

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Snapshot is the stored state of a rendezvous: the last world and its members. Its size is about
// 40 bytes for each member, plus its address.
type Snapshot struct {
	ID         int64 `json:"id,omitempty"`
	Generation int64 `json:"formation,omitempty"`
	// the highest generation number that may have been given out; less than Generation: it is
	// Generation
	Given int64 `json:"given,omitempty"`
	// of the sources' state
	Position
	Sources []int `json:"sources,omitempty"`
	// by rank
	Members []Saved `json:"members,omitempty"`
	// Recall or Abort: the members have been called back
	Notified Verb   `json:"told,omitempty"`
	Cause    string `json:"cause,omitempty"`
	// number of worlds in a row of these members that broke without a round
	Stuck    int `json:"stuck,omitempty"`
	Expected int `json:"expected,omitempty"`
}

// Saved is a member in a [Snapshot].
type Saved struct {
	Worker  int    `json:"w"`
	Session int64  `json:"s"`
	Address string `json:"a,omitempty"`
	// 1 + the rounds of the state that it brought as a newcomer, until it has another; 0: none
	Brought int64 `json:"b,omitempty"`
	// the beginning of that state
	Since   int64 `json:"c,omitempty"`
	Departs bool  `json:"d,omitempty"`
	// it has left
	Left bool `json:"l,omitempty"`
	// it takes no part in the rounds of the world
	Aside    bool `json:"i,omitempty"`
	Finished bool `json:"f,omitempty"`
	// how often it was suspected in the worlds that broke without a round
	Suspected int `json:"n,omitempty"`
}

// mostCause is the greatest length of Snapshot.Cause, in bytes.
const mostCause = 300

// Snapshot returns the state for [Restore]. The master writes one before it sends the world of a
// [Form], so that no generation number is given out twice, and no member is in a world that the
// next master does not know.
func (r *Rendezvous) Snapshot() Snapshot {
	s := Snapshot{
		ID: r.world.ID, Generation: r.world.Generation, Given: r.generations, Position: r.world.Position,
		Sources:  slices.Clone(r.world.Sources),
		Notified: r.notified, Cause: r.cause[:min(len(r.cause), mostCause)], Stuck: r.stuck, Expected: r.expected,
	}
	for _, m := range r.world.Members {
		it := Saved{Worker: m.Worker, Session: m.Session, Address: m.Address, Left: true,
			Aside: r.aside[m.Worker], Finished: r.finished[m.Worker], Suspected: r.suspicion[m.Worker]}
		if i := slices.IndexFunc(r.members, func(p *process) bool { return p.Is(m) }); i >= 0 {
			it.Left, it.Departs = false, r.members[i].departs
			if brought := r.members[i].brought; brought.Exists() {
				it.Brought, it.Since = brought.Round+1, brought.Beginning
			}
		}
		s.Members = append(s.Members, it)
	}
	return s
}

func (s *Snapshot) validate() error {
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	check(s.ID >= 0 && s.ID <= s.Generation && (s.ID == 0) == (s.Generation == 0),
		"world %d of generation %d", s.ID, s.Generation)
	check(s.Given >= 0, "%d generations were given out", s.Given)
	check((s.Generation == 0) == (len(s.Members) == 0), "%d members of generation %d", len(s.Members), s.Generation)
	check(s.Round >= 0 && s.Beginning >= 0 && s.Stuck >= 0 && s.Expected >= 0,
		"round %d since generation %d, broken %d times, %d workers expected", s.Round, s.Beginning, s.Stuck, s.Expected)
	check(s.Notified == 0 || (s.Notified == Recall || s.Notified == Abort) && s.Generation > 0,
		"%v was notified", s.Notified)
	before := -1
	for _, rank := range s.Sources {
		check(rank > before && rank < len(s.Members), "rank %d as a source, of %d members", rank, len(s.Members))
		before = rank
	}
	workers, left := make(map[int]bool), false
	finished := slices.ContainsFunc(s.Members, func(m Saved) bool { return m.Finished })
	for _, m := range s.Members {
		check(m.Worker >= 0 && m.Session > 0 && !workers[m.Worker],
			"worker %d of session %d, or it is there twice", m.Worker, m.Session)
		check(m.Brought >= 0 && m.Since >= 0 && m.Suspected >= 0,
			"worker %d brought round %d since generation %d, suspected %d times",
			m.Worker, m.Brought-1, m.Since, m.Suspected)
		workers[m.Worker], left = true, left || m.Left && !m.Finished && !(m.Aside && finished)
	}
	check(!left || s.Notified == Abort || s.alone(), "a member left that the others miss, and they were not notified")
	return errors.Join(problems...)
}

// alone reports whether all members have left.
func (s *Snapshot) alone() bool {
	return !slices.ContainsFunc(s.Members, func(m Saved) bool { return !m.Left })
}

// Restore returns the rendezvous of a master that was restarted. The members of the last world
// count as working until they arrive or leave, or Absence passes without an arrival or a call of
// [Rendezvous.Present]. Processes that waited for a world arrive again.
func Restore(p Policy, s Snapshot, now time.Time) (*Rendezvous, error) {
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("restore the rendezvous: snapshot: %w", err)
	}
	r := New(p)
	r.world = World{ID: s.ID, Generation: s.Generation, Position: s.Position, Sources: slices.Clone(s.Sources)}
	r.generations = max(s.Given, s.Generation)
	r.notified, r.cause, r.stuck, r.expected = s.Notified, s.Cause, s.Stuck, s.Expected
	for _, it := range s.Members {
		m := Member{Worker: it.Worker, Session: it.Session, Address: it.Address}
		r.world.Members = append(r.world.Members, m)
		if it.Suspected > 0 {
			r.suspicion[it.Worker] = it.Suspected
		}
		if it.Aside {
			r.aside[it.Worker] = true
		}
		if it.Finished {
			r.finished[it.Worker] = true
		}
		if it.Left {
			continue
		}
		p := &process{Arrival: Arrival{Member: m}, phase: working, given: s.Generation,
			brought: NoState, departs: it.Departs, disconnected: now}
		if it.Brought > 0 {
			p.brought = Position{Beginning: it.Since, Round: it.Brought - 1}
		}
		r.known[m.Worker] = p
		r.members = append(r.members, p)
	}
	return r, nil
}

// Disconnected notes that the stream of a process has ended. The process may still run; then it
// connects again in the same session. A member that works keeps its world and is waited for, for at
// most Absence. A process that is between two rounds has strayed, since no world can be sent to it:
// the others continue without it.
func (r *Rendezvous) Disconnected(worker int, session int64, reason string, now time.Time) []Action {
	p := r.process(Member{Worker: worker, Session: session})
	switch {
	case p == nil || p.phase == left || p.phase == astray:
		return nil
	case p.phase != working:
		r.stray(p, reason)
	case p.disconnected.IsZero():
		p.disconnected, p.cut = now, true
	}
	return r.step(now)
}

// Present notes that a process has a stream again, and works in a generation. It returns the order
// that the members got meanwhile, for this process. A process that is no longer in that world is
// called back from it; it arrives in another session then.
func (r *Rendezvous) Present(m Member, generation int64, now time.Time) []Action {
	verb, reason := Abort, "the others continued without it"
	if p := r.known[m.Worker]; p != nil && p.Session == m.Session && p.phase == working && generation == p.given {
		p.disconnected, p.cut = time.Time{}, false
		if verb, reason = r.notified, r.cause; verb == 0 {
			return r.step(now)
		}
	}
	return append([]Action{{Verb: verb, Generation: generation, Members: []Member{m}, Reason: reason}}, r.step(now)...)
}

// absent removes all members that have been disconnected for Absence, together.
func (r *Rendezvous) absent(now time.Time) {
	var late []*process
	missed := false
	r.members = slices.DeleteFunc(r.members, func(p *process) bool {
		if p.phase != working || p.disconnected.IsZero() || now.Before(p.disconnected.Add(r.policy.Absence)) {
			return false
		}
		late, missed = append(late, p), missed || !r.spent(p)
		return true
	})
	for _, p := range late {
		r.retire(p)
	}
	if missed {
		r.call(Abort, fmt.Sprintf("%s not heard for %v", names(list(late)), r.policy.Absence))
	}
}

// absence returns the first time at which a member has been disconnected for Absence, and false if
// no member is disconnected.
func (r *Rendezvous) absence() (first time.Time, ok bool) {
	for _, p := range r.members {
		if p.phase != working || p.disconnected.IsZero() {
			continue
		}
		if at := p.disconnected.Add(r.policy.Absence); !ok || at.Before(first) {
			first, ok = at, true
		}
	}
	return first, ok
}
