package rendezvous

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Finish lets a member finish: it has nothing more to do in the world that it works in.
func (m *model) Finish(*rapid.T) {
	m.finish(m.some("may finish", func(p *peer) bool {
		return p.works() && p.formation == p.given && !p.arrived() && m.unfinished(p)
	}))
}

func (m *model) finish(p *peer) {
	m.unchanged(func(r *Rendezvous) []Action { return r.Finish(p.Worker, p.given-1, m.now) })
	m.finished[p.Member] = true
	m.all(func(r *Rendezvous) []Action { return r.Finish(p.Worker, p.given, m.now) })
	m.unchanged(func(r *Rendezvous) []Action { return r.Finish(p.Worker, p.given, m.now) })
}

// unfinished reports whether a peer is a member of the last world that is at work there, or has
// come back from it, and that takes part, or none has finished.
func (m *model) unfinished(p *peer) bool {
	return slices.Contains(m.old, p) && (p.arrived() || !m.finished[p.Member]) &&
		(!m.aside[p.Member] || len(m.finished) == 0)
}

// ignores reports whether a peer that was called back has finished in its world, and is not called
// at once. It may come back, or not.
func (m *model) ignores(p *peer) bool {
	return m.told == Recall && slices.Contains(m.old, p) && p.formation == p.given && m.finished[p.Member]
}

// divided reports whether a member has finished, and another has come back before it had.
func (m *model) divided() bool {
	return len(m.finished) > 0 && slices.ContainsFunc(m.old, func(p *peer) bool {
		return p.arrived() && !m.finished[p.Member] && !m.aside[p.Member]
	})
}

// over reports whether all members of the last world that take part in its rounds have finished.
func (m *model) over() bool {
	return len(m.finished) > 0 && !slices.ContainsFunc(m.last().Members, func(who Member) bool {
		return !m.finished[who] && !m.aside[who]
	})
}

// The others go on without a member that had finished when it was away for too long, also under the
// next master.
func TestFinishedMemberStaysAway(t *testing.T) {
	r := New(Policy{Min: 2, Absence: time.Second})
	for w := range 2 {
		r.Arrive(Arrival{Member: Member{Worker: w, Session: 1, Address: "a"}, Round: -1, Suspect: -1}, start)
	}
	r.Finish(1, 1, start)
	r, err := Restore(Policy{Min: 2, Absence: time.Second}, r.Snapshot(), start)
	if err != nil {
		t.Fatal(err)
	}
	r.Present(Member{Worker: 0, Session: 1, Address: "a"}, 1, start)
	if did := fmt.Sprint(r.Tick(start.Add(time.Second)), r.Over(),
		r.Finish(0, 1, start.Add(time.Second)), r.Over()); did != "[] false [] true" {
		t.Error(did)
	}
}

// When a member has finished, nobody misses one that takes no part: its loss calls nobody back, and
// it is released at once when it is asked to leave.
func TestAsideIsNotMissed(t *testing.T) {
	for _, script := range []string{
		"finish 0\nleave 2 killed",
		"finish 0\nback 2\nleave 2 killed",
		"finish 0\ndepart 2 -> release worker-2",
		"finish 0\nback 2\ndepart 2 -> release worker-2",
		"depart 2 -> recall worker-0, worker-1, worker-2 from 1: worker-2 to leave\nfinish 0 -> release worker-2",
		"depart 2 -> recall worker-0, worker-1, worker-2 from 1: worker-2 to leave\nback 2\nfinish " +
			"0 -> release worker-2",
	} {
		s := &stage{t: t, r: New(Policy{}), now: start}
		s.play(`
			expect 3
			join 0
			join 1
			join 2 aside 1 -> form 1.1 worker-0, worker-1, worker-2`)
		s.play(script)
		r, err := Restore(Policy{}, s.r.Snapshot(), s.now)
		if err != nil {
			t.Fatalf("%s: %v", script, err)
		}
		for s.r = range slices.Values([]*Rendezvous{s.r, r}) {
			s.play("finish 1\nover true")
		}
	}
}

// Nobody waits without end for a member that has finished and does not follow a recall: all begin
// again, also if the master was replaced meanwhile. If nobody comes back, all finish.
func TestFinishInARecall(t *testing.T) {
	for _, script := range []string{
		"finish 0\nback 1 round 5 -> abort worker-0 from 1: worker-1 came back, and others have finished",
		"back 1 round 5\nfinish 0 -> abort worker-0 from 1: worker-0 has finished, and others came back",
	} {
		for _, restored := range []bool{false, true} {
			s := &stage{t: t, r: New(Policy{}), now: start}
			s.play(`
				expect 2
				join 0
				join 1 -> form 1.1 worker-0, worker-1
				expect 3
				join 2 -> recall worker-0, worker-1 from 1: worker-2 to join`)
			s.play(script)
			if restored {
				r, err := Restore(Policy{}, s.r.Snapshot(), s.now)
				if err != nil {
					t.Fatal(err)
				}
				s.r = r
				s.play("expect 3\njoin 2\nback 1 round 5")
			}
			s.play(`
				state 2 waiting for worker-0 to come back
				back 0 round 5 -> form 2.2 worker-0, worker-1, worker-2 with round 5 of rank 0, 1: ` + script[strings.LastIndex(script, ": ")+2:])
		}
	}
	s := &stage{t: t, r: New(Policy{}), now: start}
	s.play(`
		expect 2
		join 0
		join 1 -> form 1.1 worker-0, worker-1
		expect 3
		join 2 -> recall worker-0, worker-1 from 1: worker-2 to join
		state 1 waiting for worker-0, worker-1 to come back
		finish 0
		state 1 waiting for worker-1 to finish
		due never
		finish 1
		over true
		state 1`)
}
