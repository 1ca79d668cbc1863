package rendezvous

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Rendezvous is the machine. It is not safe for concurrent use: the shell holds a lock round it.
type Rendezvous struct {
	policy   Policy
	expected int
	known    map[int]*process // by worker: its newest
	graves   []*process       // those that are gone, oldest first

	world      World      // the last; its slices are never changed
	formations int64      // the highest that may have been given out
	members    []*process // of the world, by rank, but for those that left it
	guests     []*process // newcomers that wait, in the order of their arrival
	strays     []*process // members of the last world, with the state, that may come back

	told  Verb   // Recall or Abort: the members have been called back from the world
	cause string // if so: why

	stuck     int         // how often the world of these members broke without a round
	suspicion map[int]int // if so: how often each worker was suspected

	wait  wait // what has to pass before what is next
	since time.Time
	did   []Action // by the call that is on
}

// process is what is known of one session of a worker.
type process struct {
	Arrival // its last
	place   whereabouts
	given   int64     // formation of the last world that it was given, or unheard
	brought int64     // round of the state that it had as a newcomer, until it has another; -1: none
	departs bool      // it will leave soon
	away    time.Time // working: since when it has no stream; zero: it has one
	cut     bool      // and it had one since this rendezvous was made or restored
}

const unheard = -1 // so that its first arrival counts, wherever it comes from

// whereabouts is where a process is.
type whereabouts int

const (
	outside whereabouts = iota // in no world, and not arrived yet
	waiting                    // a newcomer that has arrived
	working                    // a member
	back                       // a member that has arrived from its world
	astray                     // one of r.strays
	gone
)

// wait is a time that passes.
type wait int

const (
	nothing  wait = iota
	settling      // others may join
	patience      // suspects may come
)

// New makes a rendezvous to which nobody has come.
func New(p Policy) *Rendezvous {
	p.Min = max(p.Min, 1)
	if p.Max > 0 {
		p.Max = max(p.Max, p.Min)
	}
	p.Settle = cmp.Or(p.Settle, 300*time.Millisecond)
	p.Patience = cmp.Or(p.Patience, 2*time.Second)
	p.Attempts = cmp.Or(p.Attempts, 3)
	p.Absence = cmp.Or(p.Absence, 15*time.Second)
	return &Rendezvous{policy: p, known: make(map[int]*process), suspicion: make(map[int]int)}
}

// Expect tells how many workers there are, or will be soon: joins do not wait for more than them.
func (r *Rendezvous) Expect(workers int, now time.Time) []Action {
	r.expected = workers
	return r.step(now)
}

// Arrive takes an arrival. It is ignored if it is late or told twice: of a session that is gone or followed by
// another, or not from the last world that the process was given.
func (r *Rendezvous) Arrive(a Arrival, now time.Time) []Action {
	p := r.process(a.Member)
	if p == nil || p.place != outside && p.place != working && p.place != astray || p.given != a.Formation && p.given != unheard {
		return nil
	}
	if p.place == astray {
		r.regain(p)
	}
	p.Arrival, p.away, p.cut = a, time.Time{}, false
	if p.place == outside {
		p.place, p.given, p.brought = waiting, a.Formation, a.Round
		r.guests = append(r.guests, p)
		return r.step(now)
	}
	p.place = back
	if p.brought < 0 || p.brought != a.Round {
		p.brought = -1
	} else {
		p.Round = -1 // the world broke before it got the state
	}
	switch {
	case a.Broken && a.Suspect >= 0:
		r.call(Abort, fmt.Sprintf("%v lost its link to %v", p, Member{Worker: a.Suspect}))
	case a.Broken:
		r.call(Abort, fmt.Sprintf("%v lost a link", p))
	case a.Aside:
		r.call(Recall, fmt.Sprintf("%v has come to take part", p))
	case r.told == 0, a.BrokeOff: // the others would wait for it in the middle of a round
		r.call(Abort, fmt.Sprintf("%v came back", p))
	}
	return r.step(now)
}

// Leave tells that a process is gone: its stream has ended, its pod, or its heartbeats. Session 0 is whichever
// the worker has. It is ignored if that is gone already; what it said may still come late and is ignored too.
func (r *Rendezvous) Leave(worker int, session int64, reason string, now time.Time) []Action {
	p := r.known[worker]
	if session != 0 {
		p = r.process(Member{Worker: worker, Session: session})
	}
	if p == nil || p.place == gone {
		return nil
	}
	r.drop(p, fmt.Sprintf("%v left: %s", p, reason))
	return r.step(now)
}

// Depart tells that a worker was asked to leave, and is still there. After the round that is on the others form a world
// without it, and it is released; a member stays as long as nobody else has the state, or too few would be left.
func (r *Rendezvous) Depart(worker int, now time.Time) []Action {
	p := r.known[worker]
	if p == nil || p.place == gone || p.departs {
		return nil
	}
	p.departs = true
	if p.place == waiting || p.place == outside {
		r.release(p)
	}
	return r.step(now)
}

// process is what a member is; nil if another session of the worker has followed it. With the first word of
// a session the one before has left.
func (r *Rendezvous) process(m Member) *process {
	p := r.known[m.Worker]
	switch {
	case p == nil:
	case m.Session == p.Session:
		return p
	case m.Session < p.Session:
		return nil
	case p.place != gone:
		r.drop(p, fmt.Sprintf("%v was started again", p))
	}
	p = &process{Arrival: Arrival{Member: m}, given: unheard}
	r.known[m.Worker] = p
	return p
}

// Last says that with this process the state would be lost: it is the only member left that has it, or is taking
// it. Whoever is not sure that it is gone does well to wait for it.
func (r *Rendezvous) Last(worker int, session int64) bool {
	has := func(p *process) bool { return p.place == working || p.place == back && p.Round >= 0 }
	p := r.known[worker]
	if p == nil || p.Session != session || !has(p) {
		return false
	}
	return !slices.ContainsFunc(r.members, func(o *process) bool { return o != p && has(o) })
}

// Tick does what is due. Called early it does nothing.
func (r *Rendezvous) Tick(now time.Time) []Action { return r.step(now) }

// Deadline is when Tick has something to do next, if nothing happens before.
func (r *Rendezvous) Deadline() (time.Time, bool) {
	at, ok := r.absence()
	if next := r.since.Add(r.length(r.wait)); r.wait != nothing && (!ok || next.Before(at)) {
		return next, true
	}
	return at, ok
}

// World is the last one that was formed; members of it may have left since.
func (r *Rendezvous) World() (World, bool) { return r.world, r.world.Formation > 0 }

// Waiting is how many have arrived and wait for a world, and what for they do, as in "waiting for 2 of at least
// 3 workers" when one has come. It is "" while the world works: who waits then found no room, or is about
// to get in.
func (r *Rendezvous) Waiting() (arrived int, why string) {
	missing := r.missing()
	there := len(r.members) + len(r.guests)
	switch {
	case len(r.members) > 0 && r.told == 0:
	case r.told != 0 && len(missing) == 0 && r.lacking(), len(r.members) == 0 && r.lacking():
		why = fmt.Sprintf("waiting for %s to come back", names(list(r.strays)))
	case len(missing) > 0:
		why = fmt.Sprintf("waiting for %s to come back", names(list(missing)))
	case there < r.policy.Min:
		why = fmt.Sprintf("waiting for %d of at least %d workers", r.policy.Min-there, r.policy.Min)
	default:
		why = fmt.Sprintf("waiting for %d more workers to join", r.wanted()-there)
	}
	return there - len(missing), why
}

// step does whatever can be done, and leaves what has to wait.
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
	case patience:
		return r.policy.Patience
	}
	return 0
}

// nextStep is what is to be done, and what has to pass before; nil: something has to happen first.
func (r *Rendezvous) nextStep() (do func(), w wait) {
	there, missing := len(r.members)+len(r.guests), r.missing()
	settle := nothing
	if there < r.wanted() {
		settle = settling
	}
	switch {
	case len(r.members) == 0:
		if there >= r.policy.Min && !r.lacking() {
			return r.form, settle
		}
	case r.told == 0:
		switch {
		case r.spared():
			return r.recall, nothing
		case r.room() > 0:
			return r.recall, settle
		}
	case len(missing) == 0:
		if there >= r.policy.Min && !r.lacking() {
			return r.meet, nothing
		}
	case there-len(missing) >= r.policy.Min && r.dispensable(missing):
		if severed(missing) {
			return r.leaveOut, nothing
		}
		return r.leaveOut, patience
	}
	return nil, nothing
}

// wanted is how many the world would have if all expected workers were there.
func (r *Rendezvous) wanted() int {
	if r.policy.Max > 0 {
		return min(r.expected, r.policy.Max)
	}
	return r.expected
}

// room is how many of the guests find room beside the members. Those that depart take none: else the last
// one could not pass its state on.
func (r *Rendezvous) room() int {
	if r.policy.Max > 0 {
		return max(0, min(len(r.guests), r.policy.Max-len(r.staying())))
	}
	return len(r.guests)
}

// staying is the members that do not depart.
func (r *Rendezvous) staying() []*process {
	var staying []*process
	for _, p := range r.members {
		if !p.departs {
			staying = append(staying, p)
		}
	}
	return staying
}

// spared says that the world can do without the members that depart, of whom there are some, as soon as the
// others have the state.
func (r *Rendezvous) spared() bool {
	staying := len(r.staying())
	return 0 < staying && staying < len(r.members) && staying+r.room() >= r.policy.Min
}

// missing is the members that are not back from the world.
func (r *Rendezvous) missing() []*process {
	missing := make([]*process, 0, len(r.members))
	for _, p := range r.members {
		if p.place == working {
			missing = append(missing, p)
		}
	}
	return missing
}

// call has the missing members come back, unless they were told so before, or more urgently.
func (r *Rendezvous) call(v Verb, reason string) {
	if v <= r.told {
		return
	}
	r.told, r.cause = v, reason
	if missing := r.missing(); len(missing) > 0 {
		r.did = append(r.did, Action{Verb: v, Formation: r.world.Formation, Members: list(missing), Reason: reason})
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

// remembered is how many processes that are gone are known, lest a late word of theirs be taken for a new one.
const remembered = 1000

// drop takes a process out that is gone.
func (r *Rendezvous) drop(p *process, reason string) {
	member := p.place == working || p.place == back
	is := func(o *process) bool { return o == p }
	r.members, r.guests, r.strays = slices.DeleteFunc(r.members, is), slices.DeleteFunc(r.guests, is), slices.DeleteFunc(r.strays, is)
	r.bury(p)
	if member {
		r.call(Abort, reason)
	}
}

// release lets a process go that is not needed. Unlike one that is dropped it breaks nothing.
func (r *Rendezvous) release(p *process) {
	is := func(o *process) bool { return o == p }
	r.members, r.guests = slices.DeleteFunc(r.members, is), slices.DeleteFunc(r.guests, is)
	r.bury(p)
	r.did = append(r.did, Action{Verb: Release, Member: p.Member})
}

func (r *Rendezvous) bury(p *process) {
	p.place = gone
	r.graves = append(r.graves, p)
	if len(r.graves) > remembered {
		if oldest := r.graves[0]; r.known[oldest.Worker] == oldest {
			delete(r.known, oldest.Worker)
		}
		r.graves = r.graves[1:]
	}
}
