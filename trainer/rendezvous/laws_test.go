package rendezvous

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestLaws compares the rendezvous with the model, while processes start, die, leave and lose links at any time, and streams are slow.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		t.Repeat(map[string]func(*rapid.T){
			"": m.Check, "start": m.Start, "start more": m.Start, "hear": m.Hear, "hear more": m.Hear, "hear most": m.Hear,
			"again": m.Again, "read": m.Read, "read more": m.Read, "read most": m.Read, "work": m.Work, "answer": m.Answer, "answer more": m.Answer,
			"break": m.Break, "break off": m.BreakOff, "come back": m.ComeBack, "die": m.Die, "gone": m.Gone, "wait": m.Wait, "expect": m.Expect, "ask": m.Ask,
			"restart": m.Restart, "replace": m.Replace, "return": m.Return, "return more": m.Return, "cut": m.Cut,
			"stray": m.Stray,
		})
		m.settle(t)
		live := m.live()
		stay := slices.DeleteFunc(slices.Clone(live), func(p *peer) bool { return p.asked })
		if len(stay) > 0 && len(stay) < len(live) && len(stay) >= m.policy.Min {
			t.Fatalf("%d live, of which %d are to leave", len(live), len(live)-len(stay))
		}
		want := len(live)
		if m.policy.Max > 0 && len(stay) == len(live) { // members that were asked to leave and stay because they are needed do not count
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
			if p := m.peer(who); !p.alive || p.rests || p.formation != w.Formation {
				t.Fatalf("%+v in %+v", p, w)
			}
		}
		m.wait(time.Hour)
	})
}
