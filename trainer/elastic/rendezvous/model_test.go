package rendezvous

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"
)

// peer is one process, with its stream to and from the master.
type peer struct {
	Member
	alive bool
	// messages to the rendezvous that are not delivered yet
	up []Arrival
	// messages that the rendezvous has received
	said []Arrival
	// messages from the rendezvous that it has not read yet
	down []Action

	// generation of the world that it knows
	generation int64
	state      Position
	// its state is not that of the members
	foreign bool
	// it is between two rounds and waits for a world
	rests bool
	// it was called back and has not arrived yet
	called bool
	// it takes no part in the rounds of its worlds
	stands bool

	// The rendezvous's knowledge of it. generation of the last world that it is in
	given int64
	// by the generation that it came from: the state with which it arrived; NoState: it has none,
	// or only the one that it brought
	heard map[int64]Position
	// the state that it brought as a newcomer
	claim Position
	met   bool
	left  bool
	// it is a stray: its stream has ended, and no world has been formed since
	lost bool
	// it was asked to leave
	asked bool
	freed bool
	// of a member: since when it has no stream; zero: it has one
	disconnected time.Time
	// it had a stream, and lost it
	cut bool
}

// arrived reports whether an arrival of p was received that no world has answered.
func (p *peer) arrived() bool { _, ok := p.heard[p.given]; return ok }

// era is a world, and how it ended.
type era struct {
	World
	broken bool
	idle   bool // there was no work to do when it broke
}

// model is a simple rendezvous for comparison: it knows all peers, and searches all of them for
// each answer.
type model struct {
	t *rapid.T
	// the twin gets the same calls
	r, twin *Rendezvous
	// with defaults in the place of zeros
	policy   Policy
	absence  time.Duration
	now      time.Time
	expected int
	// in the order of their start
	peers []*peer
	// newcomers in the order of their first arrivals
	guests []*peer
	// members of the last world that have not left, by rank
	old      []*peer
	eras     []era
	notified Verb
	// members of the last world that have finished, and those that take no part
	finished map[Member]bool
	aside    map[Member]bool
	// a member that took no part arrives
	comes bool
	// the others of the last world are to come back: a member has come back, or left unfinished
	broken bool
	// time of the last arrival of a member of old
	touched time.Time
	// since when newcomers could be admitted
	joinable time.Time
	// since when all that are there wait for workers that are expected
	gathers time.Time
}

func newModel(t *rapid.T) *model {
	p := Policy{
		Min: rapid.IntRange(0, 3).Draw(t, "min"), Max: rapid.SampledFrom([]int{0, 0, 3, 4}).Draw(t, "max"),
		Settle: 300 * time.Millisecond, Patience: 2 * time.Second, Attempts: rapid.IntRange(1, 3).Draw(t, "attempts"),
		Absence: 2500 * time.Millisecond,
		Gather:  rapid.SampledFrom([]time.Duration{0, 0, 700 * time.Millisecond, 4 * time.Second}).Draw(t, "gather"),
	}
	m := &model{t: t, r: New(p), twin: New(p), policy: p, now: start, finished: make(map[Member]bool),
		aside: make(map[Member]bool)}
	m.policy.Min, m.absence = max(1, p.Min), m.r.policy.Absence
	return m
}

// all makes the same call on r and its twin, and takes the actions.
func (m *model) all(do func(r *Rendezvous) []Action) []Action {
	did, other := do(m.r), do(m.twin)
	if a, b := fmt.Sprint(did), fmt.Sprint(other); a != b {
		m.t.Fatalf("same calls, other actions:\n%s\n%s", a, b)
	}
	for i, a := range did {
		m.take(a, i > 0 && did[i-1].Verb == StateLost)
	}
	if !slices.ContainsFunc(m.old, func(p *peer) bool { return !p.arrived() }) {
		// by no action: nobody is present to be notified
		m.notified = m.r.notified
	}
	return did
}

// take checks an action and performs it.
func (m *model) take(a Action, anew bool) {
	switch a.Verb {
	case Form:
		m.form(a.World, anew)
	case Recall, Abort:
		if a.Generation != m.last().Generation || a.Verb <= m.notified || len(a.Members) == 0 {
			m.t.Fatalf("%v, notified of %v before, in %+v", a, m.notified, m.last())
		}
		if settled := !m.joinable.IsZero() &&
			!m.now.Before(m.joinable.Add(m.policy.Settle)); a.Verb == Recall && !settled && !m.comes &&
			!m.spares() && len(m.old)+len(m.guests) < m.wanted() {
			m.t.Fatalf("%v with %d guests, since %v, now %v", a, len(m.guests), m.joinable, m.now)
		}
		if a.Verb == Recall && len(m.finished) > 0 {
			m.t.Fatalf("%v, and some have finished", a)
		}
		m.notified = a.Verb
		for _, who := range a.Members {
			p := m.peer(who)
			if !slices.Contains(m.old, p) || p.arrived() {
				m.t.Fatalf("%v: %v is not in it, or back", a, who)
			}
			p.down = append(p.down, a)
		}
	case Evict:
		p := m.peer(a.Member)
		if !slices.Contains(m.old, p) || m.breaks() < m.policy.Attempts {
			m.t.Fatalf("%v after %d worlds: %+v", a, m.breaks(), m.eras)
		}
		others := slices.DeleteFunc(slices.Clone(m.old), func(o *peer) bool {
			return o == p || !o.heard[o.given].Exists()
		})
		if p.heard[p.given].Exists() && len(others) == 0 {
			m.t.Fatalf("%v, which alone has the state", a)
		}
		p.alive = false
		m.leave(p)
	case Release:
		m.release(m.peer(a.Member))
	}
}

func (m *model) last() era {
	if len(m.eras) == 0 {
		return era{}
	}
	return m.eras[len(m.eras)-1]
}

func (m *model) peer(who Member) *peer {
	for _, p := range m.peers {
		if p.Member == who {
			return p
		}
	}
	m.t.Fatalf("%+v never was", who)
	return nil
}

// newest returns the newest state among the members of old that are back: the one of the latest
// beginning, and of those the one with the most rounds.
func (m *model) newest() Position {
	newest := NoState
	for _, p := range m.old {
		if p.arrived() {
			newest = newer(newest, p.heard[p.given])
		}
	}
	return newest
}

// newer returns the newer of two states.
func newer(a, b Position) Position {
	const most = 1 << 32 // rounds of a beginning
	if b.Round >= 0 && (a.Round < 0 || b.Beginning*most+b.Round > a.Beginning*most+a.Round) {
		return b
	}
	return a
}

// breaks returns how many worlds in a row of these members broke without a round.
func (m *model) breaks() int {
	n, newest := 0, m.newest()
	for _, e := range slices.Backward(m.eras) {
		if e.ID != m.last().ID || newest.Exists() && newest != e.Position &&
			newer(newest, e.Position) == newest || e.idle {
			break
		}
		if e.broken {
			n++
		}
	}
	return n
}

// form checks a world against the peers, and sends it to them.
func (m *model) form(w World, anew bool) {
	last := m.last()
	if m.over() {
		m.t.Fatalf("%+v, and all have finished", w)
	}
	for _, p := range slices.Clone(m.old) {
		if !p.arrived() {
			m.spared(p, w)
		}
	}
	members, newest := slices.Clone(m.old), m.newest()
	if m.short() && (m.gathers.IsZero() || m.now.Before(m.gathers.Add(m.policy.Gather))) {
		m.t.Fatalf("%+v formed at %v without all that are expected, since %v", w, m.now, m.gathers)
	}
	m.forgo(newest)
	want := World{ID: last.ID, Generation: last.Generation + 1}
	if newest.Exists() {
		want.Position = newest
	}
	stands := func(p *peer) bool { return m.aside[p.Member] || p.said[len(p.said)-1].Aside }
	members = slices.Concat(slices.DeleteFunc(slices.Clone(members), stands),
		slices.DeleteFunc(members, func(p *peer) bool {
			return !stands(p)
		}))
	for rank, p := range members {
		switch position := p.heard[p.given]; {
		case !newest.Exists() || !position.Exists():
		case position != newest:
			want.Behind = append(want.Behind, rank)
		default:
			want.Sources = append(want.Sources, rank)
			if p.foreign {
				m.t.Fatalf("%+v: the state of %+v is its own", w, p)
			}
		}
	}
	for range m.room() {
		m.guests[0].foreign = true
		members, m.guests = append(members, m.guests[0]), m.guests[1:]
	}
	before, after := make(map[string]bool), make(map[string]bool)
	for _, who := range last.Members {
		before[fmt.Sprintf("%+v", key(who))] = true
	}
	for _, p := range members {
		if p.left || !p.arrived() {
			m.t.Fatalf("%+v has %+v", w, p)
		}
		want.Members = append(want.Members, p.Member)
		after[fmt.Sprintf("%+v", key(p.Member))] = true
	}
	if !maps.Equal(before, after) {
		want.ID++
	} else if m.breaks() >= m.policy.Attempts && len(m.old) > 1 {
		m.t.Fatalf("%+v formed again after %d", w, m.breaks())
	}
	if a, b := fmt.Sprintf("%+v", w), fmt.Sprintf("%+v", want); a != b {
		m.t.Fatalf("formed %s\nwant   %s", a, b)
	}
	stay := len(slices.DeleteFunc(slices.Clone(members), func(p *peer) bool { return p.asked }))
	if n := len(members); n < m.policy.Min || m.policy.Max > 0 && stay > m.policy.Max {
		m.t.Fatalf("%d members, policy %+v", n, m.policy)
	}
	if anew != (!newest.Exists() && last.Generation > 0) {
		m.t.Fatalf("restarted: %t, with newest state %+v in %+v", anew, newest, w)
	}
	clear(m.finished)
	clear(m.aside)
	m.broken = false
	for _, p := range members {
		if p.said[len(p.said)-1].Aside {
			m.aside[p.Member] = true
		}
		p.given = w.Generation
		p.down = append(p.down, Action{Verb: Form, World: w})
	}
	m.old, m.notified, m.joinable, m.gathers = members, 0, time.Time{}, time.Time{}
	m.eras = append(m.eras, era{World: w})
}

func key(who Member) [2]int64 { return [2]int64{int64(who.Worker), who.Session} }

// spared checks that a world may be formed without a live member that is not back, and removes it.
func (m *model) spared(p *peer, w World) {
	suspected := slices.ContainsFunc(m.peers, func(o *peer) bool {
		// it was there until it was released just before
		there := slices.Contains(m.old, o) || o.freed && o.given == p.given
		return there && o.arrived() && slices.ContainsFunc(o.said, func(a Arrival) bool {
			return a.Generation == o.given && a.Broken && a.Suspect == p.Worker
		})
	})
	if !suspected || !p.cut && m.now.Before(m.touched.Add(m.policy.Patience)) || !m.newest().Exists() &&
		len(m.last().Sources) > 0 {
		m.t.Fatalf("%+v without %v: suspected %t, last arrival %v, now %v", w, p, suspected, m.touched, m.now)
	}
	m.old = slices.DeleteFunc(m.old, func(o *peer) bool { return o == p })
}

// leave notes that the rendezvous knows that a peer has left.
func (m *model) leave(p *peer) {
	m.broken = m.broken || m.unfinished(p)
	p.left, p.lost = true, false
	is := func(o *peer) bool { return o == p }
	m.old, m.guests = slices.DeleteFunc(m.old, is), slices.DeleteFunc(m.guests, is)
}

// some returns a random peer with a property, and skips the step if there is none.
func (m *model) some(what string, is func(p *peer) bool) *peer {
	peers := slices.DeleteFunc(slices.Clone(m.peers), func(p *peer) bool { return !is(p) })
	if len(peers) == 0 {
		m.t.Skip("no peer that " + what)
	}
	return rapid.SampledFrom(peers).Draw(m.t, what)
}

func (p *peer) works() bool { return p.alive && !p.rests }

// arrive makes a peer send an arrival: it is between two rounds.
func (p *peer) arrive(broken bool, suspect int) {
	p.rests, p.called = true, false
	p.up = append(p.up, Arrival{Member: p.Member, Generation: p.generation, Position: p.state,
		Broken: broken, Suspect: suspect, Aside: p.stands})
}

// idle changes the last message of p: its world broke when there was no work to do.
func (p *peer) idle() { p.up[len(p.up)-1].Idle = true }

// Start starts a process of a new worker, or another of a worker that has or had one.
func (m *model) Start(t *rapid.T) {
	if n := len(m.peers); n > 0 && len(m.live()) > 5 {
		t.Skip("enough")
	}
	p := &peer{Member: Member{Worker: len(m.peers), Session: 1}, alive: true, heard: make(map[int64]Position)}
	if len(m.peers) > 0 && rapid.IntRange(0, 3).Draw(t, "again") == 0 {
		former := m.some("was", func(*peer) bool { return true })
		for _, o := range m.peers {
			if o.Worker == former.Worker {
				o.alive, p.Session = false, max(p.Session, o.Session+1)
			}
		}
		p.Worker = former.Worker
	}
	p.Address = fmt.Sprintf("host-%d", rapid.IntRange(0, 3).Draw(t, "address"))
	p.generation = rapid.Int64Range(0, m.last().Generation).Draw(t, "claims generation")
	if p.state = NoState; rapid.IntRange(0, 7).Draw(t, "claims a state") > 0 {
		p.state = Position{Beginning: rapid.Int64Range(0, m.last().Generation).Draw(t, "claims beginning"),
			Round: rapid.Int64Range(0, 20).Draw(t, "claims round")}
	}
	p.stands = rapid.IntRange(0, 7).Draw(t, "stands aside") == 0
	m.peers = append(m.peers, p)
	p.arrive(false, -1)
}

func (m *model) live() []*peer {
	return slices.DeleteFunc(slices.Clone(m.peers), func(p *peer) bool { return !p.alive })
}

// Hear delivers the oldest message of a process to the rendezvous.
func (m *model) Hear(t *rapid.T) {
	m.hear(m.some("says something", func(p *peer) bool { return len(p.up) > 0 }))
}

func (m *model) hear(p *peer) {
	a := p.up[0]
	p.up, p.said = p.up[1:], append(p.said, a)
	if m.followed(p) {
		m.unchanged(func(r *Rendezvous) []Action { return r.Arrive(a, m.now) })
		return
	}
	m.regain(p, a)
	if m.meet(p); len(p.said) == 1 {
		p.given = a.Generation
	}
	switch {
	case a.Generation != p.given:
		// sent before it had read about the world that answers it
	case slices.Contains(m.old, p):
		m.touched, p.disconnected, p.cut = m.now, time.Time{}, false
		m.broken = m.broken || !m.aside[p.Member] || a.Broken || len(m.finished) == 0
		if e := &m.eras[len(m.eras)-1]; a.Broken {
			e.broken, e.idle = true, e.idle || a.Idle
		}
	default:
		m.guests = append(m.guests, p)
		p.claim, p.disconnected, p.cut = a.Position, time.Time{}, false
	}
	if a.Generation == p.given {
		p.heard[a.Generation] = a.Position
	}
	if slices.Contains(m.old, p) && a.Generation == p.given {
		if a.Position == p.claim {
			p.heard[a.Generation] = NoState
		} else {
			p.claim = NoState
		}
	}
	from := m.last().Generation
	m.comes = m.aside[p.Member]
	m.all(func(r *Rendezvous) []Action { return r.Arrive(a, m.now) })
	m.comes = false
	if waits := func(o *peer) bool {
		return !o.arrived()
	}; a.BrokeOff && a.Generation == from && m.last().Generation == from && slices.Contains(m.old, p) &&
		!m.aside[p.Member] && m.notified != Abort && slices.ContainsFunc(m.old, waits) {
		m.t.Fatalf("%+v broke off, and the others wait for it: notified of %v", p, m.notified)
	}
}

// followed reports whether the rendezvous knows that a peer has left, or knows a later session of
// its worker.
func (m *model) followed(p *peer) bool {
	return p.left || slices.ContainsFunc(m.peers, func(o *peer) bool {
		return o.Worker == p.Worker && o.Session > p.Session && o.met
	})
}

// meet notes that the rendezvous knows a peer, so that earlier sessions of its worker have left.
func (m *model) meet(p *peer) {
	p.met = true
	for _, o := range m.peers {
		if o.Worker == p.Worker && o.Session < p.Session && !o.left {
			m.leave(o)
		}
	}
}

// unchanged checks that a call changes nothing.
func (m *model) unchanged(do func(r *Rendezvous) []Action) {
	state := func() string {
		arrived, why := m.r.Waiting()
		at, ok := m.r.Deadline()
		return fmt.Sprint(m.r.World()) + fmt.Sprint(arrived, why, at, ok)
	}
	before := state()
	if did := m.all(do); len(did) > 0 || state() != before {
		m.t.Fatalf("%v, and %s after %s", did, state(), before)
	}
}

// Again delivers a message a second time.
func (m *model) Again(t *rapid.T) {
	p := m.some("said something", func(p *peer) bool { return len(p.said) > 0 && !p.lost })
	a := rapid.SampledFrom(p.said).Draw(t, "arrival")
	m.unchanged(func(r *Rendezvous) []Action { return r.Arrive(a, m.now) })
}

// Read delivers the oldest message to a process.
func (m *model) Read(t *rapid.T) {
	m.read(m.some("was notified", func(p *peer) bool { return p.alive && len(p.down) > 0 }))
}

func (m *model) read(p *peer) {
	a := p.down[0]
	p.down = p.down[1:]
	if a.Verb != Form {
		p.called = a.Generation == p.generation && !p.rests
		return
	}
	if p.rests = false; p.called {
		m.t.Fatalf("%+v: a world while it was called", p)
	}
	switch rapid.IntRange(0, 2).Draw(m.t, "state") {
	case 0:
		// it does not receive the state, and keeps its own
	case 1:
		p.state = NoState
	case 2:
		if p.state, p.foreign = a.World.Position, false; len(a.World.Sources) == 0 {
			p.state.Beginning = a.World.Generation
		}
	}
	p.generation = a.World.Generation
}

// Work lets a member complete a round, whether or not the others complete it, too.
func (m *model) Work(*rapid.T) {
	if p := m.some("works", (*peer).works); p.state.Exists() && !p.foreign {
		p.state.Round++
	}
}

func (m *model) Answer(*rapid.T) {
	m.some("is called", func(p *peer) bool { return p.works() && p.called }).arrive(false, -1)
}

// BreakOff lets a member leave in the middle of a round, whether or not it was called back.
func (m *model) BreakOff(*rapid.T) {
	p := m.some("works", (*peer).works)
	p.arrive(false, -1)
	p.up[len(p.up)-1].BrokeOff = true
}

func (m *model) Break(t *rapid.T) {
	p := m.some("works", (*peer).works)
	p.arrive(true, rapid.SampledFrom([]int{-1, rapid.SampledFrom(m.peers).Draw(t, "suspect").Worker}).Draw(t, "known"))
	if rapid.IntRange(0, 3).Draw(t, "idle") == 0 {
		p.idle()
	}
}

// ComeBack lets a member arrive that was not called. The suspect that it names is ignored, because
// no link of it broke.
func (m *model) ComeBack(t *rapid.T) {
	m.some("works", (*peer).works).arrive(false, rapid.SampledFrom(m.peers).Draw(t, "named").Worker)
}

func (m *model) Die(*rapid.T) { m.some("lives", func(p *peer) bool { return p.alive }).alive = false }

// Gone tells the rendezvous that a process has left, before or after its last messages were
// received.
func (m *model) Gone(t *rapid.T) {
	m.gone(m.some("is dead", func(p *peer) bool { return !p.alive }), rapid.Bool().Draw(t, "whichever"))
}

func (m *model) gone(p *peer, whichever bool) {
	session := p.Session
	if whichever && p.met && !slices.ContainsFunc(m.peers, func(o *peer) bool {
		return o.Worker == p.Worker && o.Session > p.Session
	}) {
		session = 0
	}
	leave := func(r *Rendezvous) []Action { return r.Leave(p.Worker, session, "killed", m.now) }
	if m.followed(p) {
		m.unchanged(leave)
		p.left = true
		return
	}
	calls := slices.ContainsFunc(m.peers, func(o *peer) bool { return o.Worker == p.Worker && m.unfinished(o) })
	m.meet(p)
	m.leave(p)
	if did := m.all(leave); !calls && slices.ContainsFunc(did, func(a Action) bool { return a.Verb == Abort }) {
		m.t.Fatalf("%v, and %v had finished", did, p.Member)
	}
}

func (m *model) Wait(t *rapid.T) {
	m.wait(time.Duration(rapid.SampledFrom([]int{1, 100, 299, 300, 1000, 2000}).Draw(t, "ms")) * time.Millisecond)
}

func (m *model) wait(d time.Duration) {
	m.now = m.now.Add(d)
	left, unfinished := m.absent()
	tick := func(r *Rendezvous) []Action { return r.Tick(m.now) }
	if at, ok := m.r.Deadline(); ok && !m.now.Before(at) {
		did := m.all(tick)
		if len(did) == 0 && !left {
			m.t.Fatalf("nothing was due at %v, now %v", at, m.now)
		}
		if !unfinished && slices.ContainsFunc(did, func(a Action) bool { return a.Verb == Abort }) {
			m.t.Fatalf("%v, and all that are lost had finished", did)
		}
		return
	}
	m.unchanged(tick)
}

func (m *model) Expect(t *rapid.T) {
	m.expected = rapid.IntRange(0, 6).Draw(t, "workers")
	m.all(func(r *Rendezvous) []Action { return r.Expect(m.expected, m.now) })
}

// wanted returns the number of members that a world has when all expected workers are there.
func (m *model) wanted() int {
	if m.policy.Max > 0 {
		return min(m.expected, m.policy.Max)
	}
	return m.expected
}
