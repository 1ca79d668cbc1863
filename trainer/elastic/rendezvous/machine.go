package rendezvous

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Rendezvous is the state of a rendezvous. It is not safe for concurrent use: the master calls it
// under a lock.
type Rendezvous struct {
	policy   Policy
	expected int
	// by worker: its newest process
	known map[int]*process
	// processes that have left, the oldest first
	departed []*process

	// the last world; its slices are never changed
	world World
	// the highest generation number that may have been given out
	generations int64
	// members of the last world that have not left it, by rank
	members []*process
	// newcomers that wait for a world, in the order of their arrival
	guests []*process
	// members of the last world that have the state, have lost their streams between two rounds,
	// and may come back
	strays []*process

	// Recall or Abort: the members have been called back from the world; 0: they have not
	notified Verb
	// why they were called back
	cause string

	// members of the world, by worker, that take no part in its rounds
	aside map[int]bool
	// members of the world, by worker, that have finished; those that have left since, too
	finished map[int]bool

	// number of worlds in a row of these members that broke without a round
	stuck int
	// by worker: how often it was suspected in those worlds
	suspicion map[int]int

	// the wait before the next step
	wait  wait
	since time.Time
	// actions collected during the current call
	did []Action
}

// process is one session of a worker.
type process struct {
	// its last arrival
	Arrival
	phase phase
	// generation of the last world that it was given; unheard: it has not arrived yet
	given int64
	// position of the state that it brought as a newcomer, until it has taken another
	brought Position
	// it was asked to leave
	departs bool
	// of a working member: since when it has no stream; zero: it has one
	disconnected time.Time
	// its stream has ended since this rendezvous was made or restored
	cut bool
}

// process.given before the first arrival, which counts from whichever generation it comes
const unheard = -1

// phase is the phase of a process in the rendezvous.
type phase int

const (
	outside phase = iota // it is in no world, and has not arrived
	waiting              // it is a newcomer that has arrived
	// it is a member that has not arrived from its world
	working
	// it is a member that has arrived from its world
	arrived
	astray // it is one of Rendezvous.strays
	left   // it is in no world, and is not waited for
)

// wait is a reason to wait before the next step.
type wait int

const (
	nothing wait = iota
	// for other newcomers, at most Policy.Settle
	settling
	// for expected workers, at most Policy.Gather
	gathering
	patience // for suspects, at most Policy.Patience
)

// New returns a rendezvous at which no process has arrived.
func New(p Policy) *Rendezvous {
	p.Min = max(p.Min, 1)
	if p.Max > 0 {
		p.Max = max(p.Max, p.Min)
	}
	p.Settle = cmp.Or(p.Settle, 300*time.Millisecond)
	p.Patience = cmp.Or(p.Patience, 2*time.Second)
	p.Attempts = cmp.Or(p.Attempts, 3)
	p.Absence = cmp.Or(p.Absence, 15*time.Second)
	return &Rendezvous{policy: p, known: make(map[int]*process), suspicion: make(map[int]int),
		aside: make(map[int]bool), finished: make(map[int]bool)}
}

// Expect sets the number of workers that there are or will be soon. Joins do not wait for more than
// that.
func (r *Rendezvous) Expect(workers int, now time.Time) []Action {
	r.expected = workers
	return r.step(now)
}

// Arrive handles an arrival. It ignores one that is late or a repetition: of a session that has
// left or was followed by another, or not from the last world that the process was given.
func (r *Rendezvous) Arrive(a Arrival, now time.Time) []Action {
	p := r.process(a.Member)
	if p == nil || p.phase != outside && p.phase != working && p.phase != astray ||
		p.given != a.Generation && p.given != unheard {
		return nil
	}
	if p.phase == astray {
		r.regain(p)
	}
	p.Arrival, p.disconnected, p.cut = a, time.Time{}, false
	if p.phase == outside {
		p.phase, p.given, p.brought = waiting, a.Generation, a.Position
		r.guests = append(r.guests, p)
		// it was asked when it was a member, which the others have left out
		if p.departs {
			r.release(p)
		}
		return r.step(now)
	}
	p.phase = arrived
	if !p.brought.Exists() || p.brought != a.Position {
		p.brought = NoState
	} else {
		// the world broke before it had taken the state
		p.Position = NoState
	}
	switch {
	case a.Broken && a.Suspect >= 0:
		r.call(Abort, fmt.Sprintf("%v lost its link to %v", p, Member{Worker: a.Suspect}))
	case a.Broken:
		r.call(Abort, fmt.Sprintf("%v lost a link", p))
	case r.aside[p.Worker]:
		if len(r.finished) == 0 {
			r.call(Recall, fmt.Sprintf("%v has come to take part", p))
		}
	case r.notified == 0:
		r.call(Abort, fmt.Sprintf("%v came back", p))
	case a.BrokeOff:
		// it was recalled, and the others would wait for it in the middle of a round
		r.call(Abort, r.cause)
	case r.divided():
		r.call(Abort, fmt.Sprintf("%v came back, and others have finished", p))
	}
	return r.step(now)
}

// Leave removes a process that has left: its pod or its heartbeats have ended, or its stream has
// and it cannot come back. Session 0 stands for the newest session of the worker. Leave does
// nothing if the process has left already. Arrivals of the process that come late are ignored.
func (r *Rendezvous) Leave(worker int, session int64, reason string, now time.Time) []Action {
	p := r.known[worker]
	if session != 0 {
		p = r.process(Member{Worker: worker, Session: session})
	}
	if p == nil || p.phase == left {
		return nil
	}
	r.drop(p, fmt.Sprintf("%v left: %s", p, reason))
	return r.step(now)
}

// Finish notes that a worker has nothing more to do in a generation, and the job is over as soon as
// all members have. It does nothing if the worker is not, or not any more, at work in that
// generation.
func (r *Rendezvous) Finish(worker int, generation int64, now time.Time) []Action {
	p := r.known[worker]
	if p == nil || p.phase != working || p.given != generation {
		return nil
	}
	r.finished[worker] = true
	for _, p := range r.departing() {
		if r.spent(p) {
			r.release(p)
		}
	}
	if r.divided() {
		r.call(Abort, fmt.Sprintf("%v has finished, and others came back", p))
	}
	return r.step(now)
}

// divided reports whether a member that takes part has come back before it had finished, and
// another has finished. That one need not follow a Recall, so that the two would wait for each
// other.
func (r *Rendezvous) divided() bool {
	return len(r.finished) > 0 && slices.ContainsFunc(r.members, func(p *process) bool {
		return p.phase == arrived && !r.finished[p.Worker] && !r.aside[p.Worker]
	})
}

// Finished reports whether a member of the last world has finished in it.
func (r *Rendezvous) Finished(worker int) bool { return r.finished[worker] }

// Over reports whether all members of the last world that take part in its rounds have finished,
// whether or not they have left since.
func (r *Rendezvous) Over() bool {
	unfinished := func(m Member) bool { return !r.finished[m.Worker] && !r.aside[m.Worker] }
	return len(r.finished) > 0 && !slices.ContainsFunc(r.world.Members, unfinished)
}

// Depart notes that a worker was asked to leave and has not ended yet. After the current round the
// others form a world without it, and it is released. A member stays as long as no other has the
// state, or too few would be left without it. One that nobody misses is released at once.
func (r *Rendezvous) Depart(worker int, now time.Time) []Action {
	p := r.known[worker]
	if p == nil || p.phase == left || p.departs {
		return nil
	}
	p.departs = true
	if p.phase == waiting || p.phase == outside || r.spent(p) {
		r.release(p)
	}
	return r.step(now)
}

// spent reports whether a process is a member that nobody misses: it has finished and has not come
// back, or takes no part in a world that another has finished, and that stays.
func (r *Rendezvous) spent(p *process) bool {
	stays := len(r.finished) > 0 && r.notified != Abort
	return p.phase == working && r.finished[p.Worker] || (p.phase == working || p.phase == arrived) &&
		r.aside[p.Worker] && stays
}

// process returns the process of a member, nil if a later session of the worker is known. The first
// call with a session makes its process, and removes that of the session before.
func (r *Rendezvous) process(m Member) *process {
	p := r.known[m.Worker]
	switch {
	case p == nil:
	case m.Session == p.Session:
		return p
	case m.Session < p.Session:
		return nil
	case p.phase != left:
		r.drop(p, fmt.Sprintf("%v was started again", p))
	}
	p = &process{Arrival: Arrival{Member: m}, given: unheard}
	r.known[m.Worker] = p
	return p
}

// Last reports whether the state would be lost with this process: it is the only remaining member
// that has the state or is taking it. A caller that is not sure that the process has ended should
// wait for it.
func (r *Rendezvous) Last(worker int, session int64) bool {
	has := func(p *process) bool {
		return p.phase == working && !r.finished[p.Worker] || p.phase == arrived && p.Exists()
	}
	p := r.known[worker]
	if p == nil || p.Session != session || !has(p) {
		return false
	}
	return !slices.ContainsFunc(r.members, func(o *process) bool { return o != p && has(o) })
}

// Tick takes the steps that are due. Before [Rendezvous.Deadline] it does nothing.
func (r *Rendezvous) Tick(now time.Time) []Action { return r.step(now) }

// Deadline returns when Tick is to be called next if nothing else happens, and false if it need not
// be called.
func (r *Rendezvous) Deadline() (time.Time, bool) {
	at, ok := r.absence()
	if next := r.since.Add(r.length(r.wait)); r.wait != nothing && (!ok || next.Before(at)) {
		return next, true
	}
	return at, ok
}

// World returns the last world that was formed, and false if there was none. Members of it may have
// left since.
func (r *Rendezvous) World() (World, bool) { return r.world, r.world.Generation > 0 }

// Remaining returns the members of the last world that have not left it, by rank; none if all have
// finished.
func (r *Rendezvous) Remaining() []Member {
	if r.Over() {
		return nil
	}
	return list(r.members)
}

// Waiting returns how many processes have arrived and wait for a world, and what they wait for, as
// in "waiting for 2 of at least 3 workers" when one has arrived. The text is "" while the world
// works: newcomers that wait then have no room, or join soon.
func (r *Rendezvous) Waiting() (arrived int, why string) {
	missing := r.missing()
	there := len(r.members) + len(r.guests)
	switch {
	case len(r.members) > 0 && r.notified == 0, r.Over():
	case r.notified != 0 && len(missing) == 0 && r.lacking(), len(r.members) == 0 && r.lacking():
		why = fmt.Sprintf("waiting for %s to come back", names(list(r.strays)))
	case len(missing) > 0 && len(r.finished) > 0 && r.notified == Recall:
		why = fmt.Sprintf("waiting for %s to finish", names(list(slices.DeleteFunc(missing, r.spent))))
	case len(missing) > 0:
		why = fmt.Sprintf("waiting for %s to come back", names(list(missing)))
	case there < r.policy.Min:
		why = fmt.Sprintf("waiting for %d of at least %d workers", r.policy.Min-there, r.policy.Min)
	case r.Gathers():
		why = fmt.Sprintf("waiting for %d of %d workers", r.goal()-r.gathered(), r.goal())
	default:
		why = fmt.Sprintf("waiting for %d more workers to join", r.wanted()-there)
	}
	return there - len(missing), why
}

// step takes all steps that need no more waiting, and returns the actions of the current call.
func (r *Rendezvous) step(now time.Time) []Action {
	r.absent(now)
	for {
		do, w := r.nextStep()
		if w != r.wait {
			r.wait, r.since = w, now
		}
		if do == nil || now.Before(r.since.Add(r.length(w))) {
			did := r.did
			r.did = nil
			return did
		}
		r.wait = nothing
		do()
	}
}

func (r *Rendezvous) length(w wait) time.Duration {
	switch w {
	case settling:
		return r.policy.Settle
	case gathering:
		return r.policy.Gather
	case patience:
		return r.policy.Patience
	}
	return 0
}

// nextStep returns the next step and the wait before it, nil if no step can follow before another
// call.
func (r *Rendezvous) nextStep() (do func(), w wait) {
	there, missing := len(r.members)+len(r.guests), r.missing()
	settle := nothing
	if there < r.wanted() {
		settle = settling
	}
	gather := nothing
	if r.Gathers() {
		settle, gather = gathering, gathering
	}
	switch {
	case r.Over():
	case len(r.members) == 0:
		if there >= r.policy.Min && !r.lacking() {
			return r.form, settle
		}
	case r.notified == 0:
		switch {
		case len(r.finished) > 0: // the others are at their end, too
		case r.spared():
			return r.recall, nothing
		case r.room() > 0:
			return r.recall, settle
		}
	case len(missing) == 0 && r.parts():
		return r.part, nothing
	case len(missing) == 0:
		if there >= r.policy.Min && !r.lacking() {
			return r.meet, gather
		}
	case there-len(missing) >= r.policy.Min && r.dispensable(missing) && !r.lacking():
		if severed(missing) {
			return r.leaveOut, nothing
		}
		return r.leaveOut, patience
	}
	return nil, nothing
}

// wanted returns how many members the world has when all expected workers are there.
func (r *Rendezvous) wanted() int {
	if r.policy.Max > 0 {
		return min(r.expected, r.policy.Max)
	}
	return r.expected
}

// Gathers reports whether the next world waits for workers, until [Rendezvous.Deadline] at the
// latest: nobody is at work, nobody has a state, and fewer processes are there than the last world
// had, or than are expected if there was none.
func (r *Rendezvous) Gathers() bool {
	idle := len(r.members) == 0 || r.notified != 0 && len(r.missing()) == 0
	return r.policy.Gather > 0 && idle && !r.Over() && !r.newest().Exists() && !r.lacking() &&
		r.gathered() >= r.policy.Min && r.gathered() < r.goal()
}

// gathered returns how many processes the next world has if nobody else comes.
func (r *Rendezvous) gathered() int { return len(r.members) + r.room() }

// goal returns how many processes a world without a state waits for: as many as the last world had,
// if they are still expected.
func (r *Rendezvous) goal() int {
	if r.world.Generation == 0 {
		return r.wanted()
	}
	return min(r.wanted(), len(r.world.Members))
}

// room returns how many of the guests fit into the world in addition to the members. Members that
// depart take none: otherwise the last member could not pass on its state.
func (r *Rendezvous) room() int {
	if r.policy.Max > 0 {
		return max(0, min(len(r.guests), r.policy.Max-len(r.staying())))
	}
	return len(r.guests)
}

// staying returns the members that do not depart.
func (r *Rendezvous) staying() []*process {
	var staying []*process
	for _, p := range r.members {
		if !p.departs {
			staying = append(staying, p)
		}
	}
	return staying
}

// spared reports whether there are members that depart, and enough others to form a world without
// them once the others have the state.
func (r *Rendezvous) spared() bool {
	staying := len(r.staying())
	return 0 < staying && staying < len(r.members) && staying+r.room() >= r.policy.Min
}

// missing returns the members that are not back from the world.
func (r *Rendezvous) missing() []*process {
	missing := make([]*process, 0, len(r.members))
	for _, p := range r.members {
		if p.phase == working {
			missing = append(missing, p)
		}
	}
	return missing
}

// call adds the action that calls the missing members back, unless they were called by this verb or
// a more urgent one already.
func (r *Rendezvous) call(v Verb, reason string) {
	if v <= r.notified {
		return
	}
	r.notified, r.cause = v, reason
	if missing := r.missing(); len(missing) > 0 {
		r.did = append(r.did, Action{Verb: v, Generation: r.world.Generation, Members: list(missing), Reason: reason})
	}
}

func (r *Rendezvous) recall() {
	var reasons []string
	if guests := list(r.guests[:r.room()]); len(guests) > 0 {
		reasons = append(reasons, names(guests)+" to join")
	}
	if departing := list(r.departing()); len(departing) > 0 {
		reasons = append(reasons, names(departing)+" to leave")
	}
	r.call(Recall, strings.Join(reasons, ", "))
}

func (r *Rendezvous) departing() []*process {
	var departing []*process
	for _, p := range r.members {
		if p.departs {
			departing = append(departing, p)
		}
	}
	return departing
}

// remembered is the number of processes that have left and are remembered, so that their late
// arrivals are recognized.
const remembered = 1000

// drop removes a process that has left, and calls the other members back at once if it was a member
// that they miss.
func (r *Rendezvous) drop(p *process, reason string) {
	missed := (p.phase == working || p.phase == arrived) && !r.spent(p)
	is := func(o *process) bool { return o == p }
	r.members, r.guests, r.strays = slices.DeleteFunc(r.members, is), slices.DeleteFunc(r.guests, is),
		slices.DeleteFunc(r.strays, is)
	r.retire(p)
	if missed {
		r.call(Abort, reason)
	}
}

// release removes a process that is not needed, and adds the action Release. Unlike drop it calls
// no member back.
func (r *Rendezvous) release(p *process) {
	is := func(o *process) bool { return o == p }
	r.members, r.guests = slices.DeleteFunc(r.members, is), slices.DeleteFunc(r.guests, is)
	r.retire(p)
	r.did = append(r.did, Action{Verb: Release, Member: p.Member})
}

func (r *Rendezvous) retire(p *process) {
	p.phase = left
	r.departed = append(r.departed, p)
	if len(r.departed) > remembered {
		if oldest := r.departed[0]; r.known[oldest.Worker] == oldest {
			delete(r.known, oldest.Worker)
		}
		r.departed = r.departed[1:]
	}
}
