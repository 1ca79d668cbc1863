package rendezvous

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Restart replaces the master, which ends every stream. Members that work continue; processes that
// wait for a world arrive again.
func (m *model) Restart(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "restart") > 0 {
		t.Skip("rarely")
	}
	m.restart()
}

func (m *model) restart() {
	for _, r := range []**Rendezvous{&m.r, &m.twin} {
		text, err := json.Marshal((*r).Snapshot())
		if err != nil {
			m.t.Fatal(err)
		}
		var s Snapshot
		if err := json.Unmarshal(text, &s); err != nil {
			m.t.Fatal(err)
		}
		if *r, err = Restore((*r).policy, s, m.now); err != nil {
			m.t.Fatalf("%s: %v", text, err)
		}
	}
	m.guests, m.joinable, m.gathers = nil, time.Time{}, time.Time{}
	if n := len(m.eras); n > 0 {
		// members that arrived with a broken link arrive again
		m.eras[n-1].broken = false
	}
	for _, p := range m.peers {
		if p.lost { // strays are not in the snapshot
			m.leave(p)
			p.alive = false
		}
		m.disconnect(p)
	}
}

// disconnect ends the stream of a peer. A peer between two rounds opens another at once and
// arrives. One that works opens another later.
func (m *model) disconnect(p *peer) {
	member := slices.Contains(m.old, p)
	var last Arrival
	for _, a := range slices.Concat(p.said, p.up) {
		last = a
	}
	p.up, p.down, p.said = nil, nil, nil
	if member {
		delete(p.heard, p.given)
	} else {
		p.heard, p.met = make(map[int64]Position), false
	}
	p.disconnected, p.cut = time.Time{}, false
	switch {
	case member:
		p.disconnected = m.now
	case p.asked:
		p.asked = false // the master asks it again later
	}
	if p.alive && p.rests {
		// the message about the world that it was given was lost with the stream
		if member && last.Generation != p.given {
			last = Arrival{Member: p.Member, Generation: p.given, Position: last.Position, Suspect: -1}
		}
		p.up = []Arrival{last}
	}
}

// Return lets a peer that works connect again.
func (m *model) Return(*rapid.T) {
	m.back(m.some("is disconnected", m.returns))
}

// returns reports whether a peer that is disconnected may have a stream again.
func (m *model) returns(p *peer) bool {
	return p.works() && !p.disconnected.IsZero() && !m.followed(p)
}

func (m *model) back(p *peer) {
	did, twin := m.r.Present(p.Member, p.generation, m.now), m.twin.Present(p.Member, p.generation, m.now)
	if a, b := fmt.Sprint(did), fmt.Sprint(twin); a != b {
		m.t.Fatalf("same calls, other actions:\n%s\n%s", a, b)
	}
	verb := m.notified
	if !slices.Contains(m.old, p) || p.generation != p.given {
		verb = Abort
	}
	p.disconnected, p.cut = time.Time{}, false
	switch {
	case verb == 0 && len(did) == 0:
	case verb == 0 || len(did) != 1 || did[0].Verb != verb || did[0].Generation != p.generation ||
		fmt.Sprint(did[0].Members) != fmt.Sprint([]Member{p.Member}):
		m.t.Fatalf("%v for %+v, want %v", did, p, verb)
	case p.generation != p.given:
		// it arrives from the world that it was given meanwhile
		p.arrive(false, -1)
		p.up[0].Generation = p.given
	default:
		p.down = append(p.down, did...)
	}
}

// Cut ends the stream of a member that works, as far as the rendezvous knows. The member may be
// dead, or its arrival may be under way, or it may not have read about its world.
func (m *model) Cut(*rapid.T) {
	p := m.some("works in the world", func(p *peer) bool {
		return p.disconnected.IsZero() && slices.Contains(m.old, p) && !p.arrived() && !m.followed(p)
	})
	m.disconnect(p)
	p.cut = true
	if did := m.all(func(r *Rendezvous) []Action {
		return r.Disconnected(p.Worker, p.Session, "cut", m.now)
	}); len(did) > 0 && slices.Contains(m.old, p) {
		m.t.Fatalf("%v for %+v, which works", did, p)
	}
}

// absent removes the members that were away for too long, and reports whether there were any, and
// whether one of them had not finished.
func (m *model) absent() (left, unfinished bool) {
	for _, p := range slices.Clone(m.old) {
		if !p.disconnected.IsZero() && !p.arrived() && !m.now.Before(p.disconnected.Add(m.absence)) {
			unfinished = unfinished || m.unfinished(p)
			m.leave(p)
			p.alive, left = false, true // it comes back as another process
		}
	}
	return left, unfinished
}

// gives returns the first time at which a member that is disconnected is not waited for any more,
// zero if none is disconnected.
func (m *model) gives() (first time.Time) {
	for _, p := range m.old {
		if p.disconnected.IsZero() || p.arrived() {
			continue
		}
		if at := p.disconnected.Add(m.absence); first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

// Replace replaces the master, and all processes report to the new one at once: it then has the
// same state as the one before.
func (m *model) Replace(t *rapid.T) {
	for _, p := range m.peers {
		if !p.alive && !p.left || len(p.up)+len(p.down) > 0 || !p.disconnected.IsZero() ||
			p.alive && p.rests && !p.arrived() {
			t.Skip("something is under way")
		}
	}
	state := func() string {
		s := m.r.Snapshot()
		s.Cause = ""
		arrived, why := m.r.Waiting()
		return fmt.Sprintf("%+v\n%d %s", s, arrived, why)
	}
	before, guests := state(), slices.Clone(m.guests)
	m.restart()
	for _, p := range slices.Concat(m.old, guests) {
		switch {
		case len(p.up) > 0:
			m.hear(p)
		case p.works() && slices.Contains(m.old, p):
			m.back(p)
		}
	}
	if after := state(); after != before {
		t.Fatalf("saved\n%s\nrestored\n%s", before, after)
	}
}

func TestRestoreRefuses(t *testing.T) {
	one := []Saved{{Worker: 1, Session: 1}}
	for _, tt := range []struct {
		snapshot Snapshot
		want     string
	}{
		{Snapshot{Generation: 1, Members: one}, "restore the rendezvous: snapshot: world 0 of generation 1"},
		{Snapshot{ID: 2, Generation: 1, Members: one}, "world 2 of generation 1"},
		{Snapshot{ID: 1, Generation: 1}, "0 members of generation 1"},
		{Snapshot{Given: -1}, "-1 generations were given out"},
		{Snapshot{Position: NoState}, "round -1 since generation 0, broken 0 times, 0 workers expected"},
		{Snapshot{Position: Position{Beginning: -1}}, "round 0 since generation -1"},
		{Snapshot{Notified: Recall}, "recall was notified"},
		{Snapshot{ID: 1, Generation: 1, Members: one, Notified: Evict}, "evict was notified"},
		{Snapshot{ID: 1, Generation: 1, Members: one, Sources: []int{0, 0, 1}},
			"rank 0 as a source, of 1 members\nrank 1 as a source, of 1 members"},
		{Snapshot{ID: 1, Generation: 1, Members: []Saved{{Worker: 1}}}, "worker 1 of session 0, or it is there twice"},
		{Snapshot{ID: 1, Generation: 1, Members: append(one, one...)}, "worker 1 of session 1, or it is there twice"},
		{Snapshot{ID: 1, Generation: 1, Members: []Saved{{Worker: 1, Session: 1, Brought: -1}}},
			"worker 1 brought round -2 since generation 0, suspected 0 times"},
		{Snapshot{ID: 1, Generation: 1, Members: []Saved{{Worker: 1, Session: 1, Left: true},
			{Worker: 2, Session: 1}}}, "a member left that the others miss, and they were not notified"},
	} {
		if _, err := Restore(Policy{}, tt.snapshot, start); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %s", tt.snapshot, err, tt.want)
		}
	}
}

// The snapshot of a world of 1,000 members fits into 64 KiB.
func TestSnapshotIsBounded(t *testing.T) {
	r := New(Policy{Min: 1000})
	for w := range 1000 {
		m := Member{Worker: w, Session: 1<<32 + int64(w), Address: "10.244.100.100:40000"}
		r.Arrive(Arrival{Member: m, Position: NoState, Suspect: -1}, start)
	}
	for rank := range 1000 {
		r.world.Sources = append(r.world.Sources, rank)
	}
	r.cause = strings.Repeat("x", 5000)
	text, err := json.Marshal(r.Snapshot())
	if w, ok := r.World(); err != nil || !ok || len(w.Members) != 1000 || len(text) > 64<<10 {
		t.Errorf("%d bytes of a world of %d, %v", len(text), len(w.Members), err)
	}
}

func FuzzRestore(f *testing.F) {
	f.Add(
		[]byte(
			`{"id":1,"formation":3,"beginning":1,"round":5,"sources":[0],"members":[{"w":0,"s":1,"a":"x"},{"w":2,"s":4,"b":3,"c":1,"d":true},{"w":3,"s":1,"l":true,"n":2}],"told":3,"stuck":1,"expected":2}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var s Snapshot
		if json.Unmarshal(text, &s) != nil {
			return
		}
		r, err := Restore(Policy{Max: 3}, s, start)
		if err != nil {
			return
		}
		if after := r.Snapshot(); after.validate() != nil {
			t.Fatalf("%s is restored as %+v", text, after)
		}
		for _, m := range s.Members {
			r.Present(Member{Worker: m.Worker, Session: m.Session}, s.Generation, start)
			r.Arrive(Arrival{Member: Member{Worker: m.Worker, Session: m.Session},
				Generation: s.Generation, Position: s.Position, Suspect: -1}, start)
		}
		for range len(s.Members) + 10 {
			if at, ok := r.Deadline(); ok {
				r.Tick(at)
			}
		}
		if at, ok := r.Deadline(); ok {
			t.Fatalf("%s: something is due at %v, always", text, at)
		}
	})
}
