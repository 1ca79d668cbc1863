package rendezvous

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestLaws compares the rendezvous with the model, while processes start, die, leave and lose links
// at any time, and streams are slow.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		t.Repeat(map[string]func(*rapid.T){
			"": m.Check, "start": m.Start, "start more": m.Start, "hear": m.Hear, "hear more": m.Hear,
			"hear most": m.Hear,
			"again":     m.Again, "read": m.Read, "read more": m.Read, "read most": m.Read, "work": m.Work,
			"answer": m.Answer, "answer more": m.Answer,
			"break": m.Break, "break off": m.BreakOff, "come back": m.ComeBack, "die": m.Die,
			"gone": m.Gone, "wait": m.Wait, "expect": m.Expect, "ask": m.Ask,
			"restart": m.Restart, "replace": m.Replace, "return": m.Return, "return more": m.Return, "cut": m.Cut,
			"stray": m.Stray, "finish": m.Finish,
		})
		if m.settle(t); m.over() {
			return
		}
		live := m.live()
		stay := slices.DeleteFunc(slices.Clone(live), func(p *peer) bool { return p.asked })
		if len(stay) > 0 && len(stay) < len(live) && len(stay) >= m.policy.Min {
			t.Fatalf("%d live, of which %d are to leave", len(live), len(live)-len(stay))
		}
		want := len(live)
		// members that were asked to leave and stay because they are needed do not count
		if m.policy.Max > 0 && len(stay) == len(live) {
			want = min(want, m.policy.Max)
		}
		if want < m.policy.Min {
			if _, why := m.r.Waiting(); why == "" {
				t.Fatalf("%d live, at least %d are needed, and it works", want, m.policy.Min)
			}
			return
		}
		w, _ := m.r.World()
		if len(w.Members) != want {
			t.Fatalf("%+v, and %d live", w, len(live))
		}
		for _, who := range w.Members {
			if p := m.peer(who); !p.alive || p.rests || p.generation != w.Generation {
				t.Fatalf("%+v in %+v", p, w)
			}
		}
		m.wait(time.Hour)
	})
}

// settle delivers all messages, lets all members come back that were called and follow, and waits
// for all deadlines. The others of a world in which a member has finished finish, too, or break it.
func (m *model) settle(t *rapid.T) {
	first := func(is func(p *peer) bool) *peer {
		if i := slices.IndexFunc(m.peers, is); i >= 0 {
			return m.peers[i]
		}
		return nil
	}
	for range 10000 {
		if p := first(func(p *peer) bool { return len(p.up) > 0 }); p != nil {
			m.hear(p)
		} else if p := first(m.returns); p != nil {
			m.back(p)
		} else if p := first(func(p *peer) bool { return p.alive && len(p.down) > 0 }); p != nil {
			m.read(p)
		} else if p := first(func(p *peer) bool { return p.works() && p.called && !m.ignores(p) }); p != nil {
			p.arrive(false, -1)
		} else if p := first(func(p *peer) bool { return !p.alive && !p.left }); p != nil {
			m.gone(p, false)
		} else if at, ok := m.r.Deadline(); ok {
			m.wait(at.Sub(m.now))
		} else if p := first(func(p *peer) bool {
			return p.works() && m.unfinished(p)
		}); p != nil && len(m.finished) > 0 && !m.over() {
			if rapid.Bool().Draw(t, "finishes") {
				m.finish(p)
			} else {
				p.arrive(true, -1)
			}
		} else {
			return
		}
		m.Check(t)
	}
	t.Fatal("does not settle")
}
