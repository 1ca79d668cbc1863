package leases

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
)

var start = time.Unix(1e9, 0)

// rank is a process in the world. Only those of this worker have a connection.
type rank struct {
	conn int
	// number of rounds in its state; -1: it has none
	state int64
	lives bool
}

// trained is the progress of a lease by a round: its first count records are in the state.
type trained struct{ round, count int64 }

// fake is a lease in the model.
type fake struct {
	size int64
	// the holder does not know its size
	stream bool
	// connection of its process; 0: none
	owner int
	// what its processes have reported, and what is safe
	reported, safe int64
	rounds         []trained
}

// all returns the count of all its records.
func (f *fake) all() int64 {
	if f.stream {
		return ledger.End + f.size
	}
	return f.size
}

// in returns the number of records of the lease in a state.
func (f *fake) in(state int64) (count int64) {
	for _, t := range f.rounds {
		if t.round <= state {
			count = max(count, t.count)
		}
	}
	return count
}

// model is a job of one worker with some processes, and a rank of another worker. It knows for each
// state which records are in it.
type model struct {
	*rapid.T
	// the twin gets the same calls
	h, twin *Holder
	now     time.Time
	world   []*rank
	// the state with which the world began, and the newest whose records are known
	base, newest int64
	conns        int
	// dead processes whose leases are not free yet
	dead []int
	// leases that are held, and those whose report was not delivered
	leases map[int64]*fake
	done   map[int64]bool
	// leases that were reported
	reported map[int64]bool
	last     int64
	// until when the master is not to be asked
	waits time.Time
	over  bool
	// newest round of this worker in this world, number of all, and the newest generation with one
	round, steps, rounds, generation int64
}

// both makes the same call on the holder and its twin.
func both[R any](m *model, call func(*Holder) R) R {
	a, b := call(m.h), call(m.twin)
	if !reflect.DeepEqual(a, b) {
		m.Fatalf("same calls, other results: %v and %v", a, b)
	}
	return a
}

// void makes a call without a result.
func (m *model) void(call func(*Holder)) {
	both(m, func(h *Holder) bool { call(h); return true })
}

// local draws a running process of this worker for which is is true; nil: there is none.
func (m *model) local(is func(*rank) bool) *rank {
	var all []*rank
	for _, r := range m.world {
		if r.conn > 0 && r.lives && is(r) {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return rapid.SampledFrom(all).Draw(m.T, "process")
}

// follows reports whether every rank has the state of one, and so begins its next round.
func (m *model) follows(r *rank) bool {
	return r.state >= 0 && !slices.ContainsFunc(m.world, func(other *rank) bool { return other.state < r.state })
}

// of returns the leases of a process, by number.
func (m *model) of(conn int) (ids []int64) {
	for _, id := range slices.Sorted(maps.Keys(m.leases)) {
		if m.leases[id].owner == conn {
			ids = append(ids, id)
		}
	}
	return ids
}

// progress returns what a process reports of its leases, and notes it.
func (m *model) progress(r *rank) (all []Progress) {
	for _, id := range m.of(r.conn) {
		l := m.leases[id]
		l.reported = max(l.reported, l.in(r.state))
		all = append(all, Progress{id, l.in(r.state)})
	}
	return all
}

// secure notes that all ranks have what a process has reported. It returns the leases to report.
func (m *model) secure(conn int) (done []int64) {
	for _, id := range m.of(conn) {
		l := m.leases[id]
		if l.safe = l.reported; l.safe == l.all() {
			done = append(done, id)
		}
	}
	return done
}

// reports checks which leases are reported as done: laws 2 and 3.
func (m *model) reports(done []Progress, want []int64) {
	if len(done) != len(want) {
		m.Fatalf("reported %v, want %v", done, want)
	}
	for i, id := range want {
		if done[i] != (Progress{id, m.leases[id].all()}) {
			m.Fatalf("reported %v, want %v with all records", done, want)
		}
		if m.reported[id] {
			m.Fatalf("lease %d is reported twice", id)
		}
		m.covers(id, m.leases[id].all())
		m.reported[id], m.done[id] = true, true
		delete(m.leases, id)
	}
}

// covers checks that records of a lease are in the state of every rank: law 2.
func (m *model) covers(id, count int64) {
	for _, r := range m.world {
		if in := m.leases[id].in(r.state); r.lives && r.state >= 0 && in < count {
			m.Fatalf("%d records of lease %d are safe, and a rank in round %d has %d", count, id, r.state, in)
		}
	}
}

// check compares the holder with the model.
func (m *model) check() {
	s := both(m, (*Holder).Status)
	ids := slices.Sorted(maps.Keys(m.leases))
	var got []int64
	for _, l := range s.Leases {
		got = append(got, l.ID)
		f := m.leases[l.ID]
		if f == nil || l.Done != f.safe {
			m.Fatalf("%+v is safe, want %+v", l, f)
		}
		m.covers(l.ID, l.Done)
	}
	names := both(m, (*Holder).Held)
	if want := slices.Concat(ids, slices.Sorted(maps.Keys(m.done))); !slices.Equal(got, ids) ||
		!slices.Equal(names, want) {
		m.Fatalf("holds %v and names %v, want %v and %v", got, names, ids, want)
	}
	if s.Steps != m.steps || s.Version != m.round || s.Rounds != m.rounds {
		m.Fatalf("%+v, want %d steps, version %d, rounds %d", s, m.steps, m.round, m.rounds)
	}
}

// ask asks for a lease: laws 1 and 6.
func (m *model) ask() {
	r := m.local(func(*rank) bool { return true })
	if r == nil {
		return
	}
	a := both(m, func(h *Holder) Answer { return h.Ask(r.conn, m.now) })
	if asks := len(m.of(0)) == 0 && !m.over && !m.now.Before(m.waits); asks != (a.Kind == AskMaster) {
		m.Fatalf("%+v: over %v, wait for %v, free %v", a, m.over, m.waits.Sub(m.now), m.of(0))
	}
	if a.Kind == AskMaster {
		a = m.master(r)
	}
	free := m.of(0)
	switch {
	case (a.Kind == Granted) != (len(free) > 0):
		m.Fatalf("%+v, and %v are free", a, free)
	case a.Kind == Granted:
		l := m.leases[a.ID]
		if a.ID != free[0] || a.Done != l.safe {
			m.Fatalf("%+v, want lease %d from record %d", a, free[0], l.safe)
		}
		l.owner = r.conn
	case a.Kind != Wait && a.Kind != Over, (a.Kind == Over) != m.over:
		m.Fatalf("%+v: over %v", a, m.over)
	}
}

// master answers a request for a lease.
func (m *model) master(r *rank) Answer {
	var g Grant
	switch rapid.SampledFrom([]string{"lease", "lease", "none", "over", "unreachable"}).Draw(m.T, "master") {
	case "lease":
		m.last++
		size := rapid.Int64Range(1, 4).Draw(m.T, "size")
		g.Lease = &Lease{ID: m.last, Epoch: 1, Number: m.last, Start: 10 * m.last, End: 10*m.last + size}
		stream := rapid.Bool().Draw(m.T, "stream")
		if stream {
			g.Lease.End, g.Lease.Stream = 10*m.last+1, true
		}
		m.leases[m.last] = &fake{size: size, stream: stream}
	case "over":
		g.Over, m.over = true, true
	case "unreachable":
		m.waits = m.now.Add(RetryAfter)
		return both(m, func(h *Holder) Answer { return h.Unreachable(m.now) })
	default:
		m.waits = m.now.Add(RetryAfter)
	}
	return both(m, func(h *Holder) Answer { return h.Answered(r.conn, g, m.now) })
}

// train has a rank complete a round. All ranks have decided before what they train on in it.
func (m *model) train() {
	var able []*rank
	for _, r := range m.world {
		if r.lives && m.follows(r) {
			able = append(able, r)
		}
	}
	if len(able) == 0 {
		return
	}
	r := rapid.SampledFrom(able).Draw(m.T, "rank")
	if r.state == m.newest {
		m.newest++
		for _, id := range slices.Sorted(maps.Keys(m.leases)) {
			l := m.leases[id]
			if slices.ContainsFunc(m.world, func(r *rank) bool { return r.conn > 0 && r.conn == l.owner }) {
				count := l.in(m.newest)
				switch {
				case !l.stream:
					count = rapid.Int64Range(count, l.size).Draw(m.T, "records")
				case count < l.all():
					if count = rapid.Int64Range(count, l.size+1).Draw(m.T, "records"); count > l.size {
						count = l.all()
					}
				}
				l.rounds = append(l.rounds, trained{m.newest, count})
			}
		}
	}
	if r.state++; r.conn == 0 {
		return
	}
	want, wantFirst := m.secure(r.conn), m.generation > m.rounds
	report := Round{Generation: m.generation, Number: r.state, Leases: m.progress(r)}
	if r.state > m.round {
		m.steps++
	}
	m.round, m.rounds, m.waits = max(m.round, r.state), m.generation, time.Time{}
	var first bool
	done := both(m, func(h *Holder) (done []Progress) {
		first, done = h.Round(r.conn, report)
		return done
	})
	if first != wantFirst {
		m.Fatalf("first round of generation %d: %v, want %v", m.generation, first, wantFirst)
	}
	m.reports(done, want)
}

// synchronize has a rank receive the state with which the world began.
func (m *model) synchronize() {
	hasBase := func(r *rank) bool { return r.lives && r.state >= m.base }
	i := slices.IndexFunc(m.world, func(r *rank) bool { return r.lives && r.state < m.base })
	if i < 0 || !slices.ContainsFunc(m.world, hasBase) {
		return
	}
	r := m.world[i]
	if r.state = m.base; r.conn > 0 {
		leases := m.progress(r)
		m.void(func(h *Holder) { h.Received(r.conn, leases) })
	}
}

// form forms the next world, with the newest state of its ranks. If none has one, the training
// begins again, and all leases are void.
func (m *model) form() {
	m.generation++
	m.world = slices.DeleteFunc(m.world, func(r *rank) bool { return !r.lives })
	if !slices.ContainsFunc(m.world, func(r *rank) bool { return r.conn == 0 }) {
		m.world = append(m.world, &rank{state: -1, lives: true})
	}
	for len(m.world) < 1+rapid.IntRange(1, 3).Draw(m.T, "processes") {
		m.conns++
		m.world = append(m.world, &rank{conn: m.conns, state: -1, lives: true})
	}
	source := slices.MaxFunc(m.world, func(a, b *rank) int { return int(a.state - b.state) })
	floor := rapid.SampledFrom([]int64{0, 0, m.last / 2}).Draw(m.T, "floor")
	if source.state < 0 {
		source.state, floor = 0, m.last+1
	}
	m.base, m.newest = source.state, source.state
	for id, l := range m.leases {
		l.rounds = slices.DeleteFunc(l.rounds, func(t trained) bool { return t.round > m.base })
		if id < floor {
			delete(m.leases, id)
		}
	}
	m.round, m.waits, m.over = 0, time.Time{}, false
	m.void(func(h *Holder) { h.Enter(floor) })
}

// die ends a rank.
func (m *model) die() {
	r := rapid.SampledFrom(m.world).Draw(m.T, "rank")
	if r.lives && r.conn > 0 {
		m.dead = append(m.dead, r.conn)
	}
	r.lives = false
}

// free notes that all messages of a dead process are handled.
func (m *model) free() {
	if len(m.dead) == 0 {
		return
	}
	conn := m.dead[0]
	m.dead = m.dead[1:]
	for _, id := range m.of(conn) {
		l := m.leases[id]
		l.owner, l.reported = 0, l.safe
	}
	m.void(func(h *Holder) { h.Free(conn) })
}

// moves returns what may happen.
func (m *model) moves() map[string]func() {
	return map[string]func(){
		"ask": m.ask, "train": m.train, "train on": m.train,
		"ask and train": func() {
			m.ask()
			m.check()
			m.train()
			m.check()
			m.train()
		},
		"synchronize": m.synchronize, "synchronize others": m.synchronize, "form": m.form,
		"meet": func() {
			if r := m.local(m.follows); r != nil {
				want := m.secure(r.conn)
				m.reports(both(m, func(h *Holder) []Progress { return h.Met(r.conn) }), want)
			}
		},
		"die": m.die, "free": m.free,
		"restart": func() {
			m.die()
			m.form()
			m.free()
			m.ask()
		},
		"deliver": func() {
			if len(m.done) == 0 {
				return
			}
			id := slices.Min(slices.Collect(maps.Keys(m.done)))
			delete(m.done, id)
			if all := both(m, func(h *Holder) bool { return h.Delivered(id) }); all != (len(m.done) == 0) {
				m.Fatalf("the master knows of all: %v, and has yet to hear of %v", all, m.done)
			}
		},
		"wait": func() {
			m.now = m.now.Add(time.Duration(rapid.IntRange(1, 50).Draw(m.T, "ms")) * time.Millisecond)
		},
	}
}

// Ranks that train, meet, and die at any time find the laws kept.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{T: t, h: New(), twin: New(), now: start, leases: make(map[int64]*fake), done: make(map[int64]bool),
			reported: make(map[int64]bool)}
		m.void(func(h *Holder) { h.Declared(Dataset{Size: 100, PerTask: 4}, Grant{}) })
		m.form()
		moves := make(map[string]func(*rapid.T))
		for name, move := range m.moves() {
			moves[name] = func(t *rapid.T) {
				m.T = t
				move()
				m.check()
			}
		}
		t.Repeat(moves)
	})
}
