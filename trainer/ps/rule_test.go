package ps

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestRule drives the rule with gradients, repeats, flushes and changes of the
// contributors, beside a model that keeps everything and decides by the words of the laws.
func TestRule(t *testing.T) {
	rapid.Check(t, checkRule)
}

func ruleConfig(t *rapid.T) ServerConfig {
	c := ServerConfig{LRStalenessModulation: rapid.Bool().Draw(t, "modulation")}
	if rapid.Bool().Draw(t, "async") {
		c.Async = true
		return c
	}
	c.GradsToWait = rapid.IntRange(0, 5).Draw(t, "grads to wait")
	if rapid.Bool().Draw(t, "tolerance given") {
		c.SyncVersionTolerance = new(rapid.IntRange(0, 3).Draw(t, "tolerance"))
	}
	return c
}

func checkRule(t *rapid.T) {
	c := ruleConfig(t)
	r := newRule(c)
	var (
		contributors, version int64
		effects               = map[push]int{} // by worker, lease and done
		waiting               []push           // gathered
		asked                 = map[int]push{} // last accepted, by worker
	)
	settle := func() {
		waiting = nil
		version++
		r.applied()
	}
	age := func(p push) int64 { return version - p.version }
	fits := func(p push) bool {
		switch {
		case c.SyncVersionTolerance != nil:
			return age(p) <= int64(*c.SyncVersionTolerance)
		case c.GradsToWait > 1 && !c.Async:
			return age(p) <= 0
		}
		return true
	}
	most := func() int { // gradients that an update may wait for
		n := max(1, c.GradsToWait)
		if contributors > 0 {
			n = min(n, int(contributors))
		}
		return n
	}
	t.Repeat(map[string]func(*rapid.T){
		"push": func(t *rapid.T) {
			worker := rapid.IntRange(0, 4).Draw(t, "worker")
			last := asked[worker]
			p := push{worker: worker, version: max(0, version-rapid.Int64Range(-1, 4).Draw(t, "age"))}
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0: // the same again, or an older one of the lease
				p.lease, p.done = last.lease, last.done-rapid.Int64Range(0, 1).Draw(t, "back")
			case 1:
				p.lease, p.done = last.lease+1, 1
			default:
				p.lease, p.done = max(1, last.lease), last.done+1
			}
			old := p.lease > 0 && p.lease == last.lease && p.done <= last.done
			before := *r
			judged := r.judge(p)
			if before.version != r.version || len(before.gathered) != len(r.gathered) {
				t.Fatal("to judge had an effect")
			}
			got := r.take(p)
			expect := taken
			switch {
			case old:
				expect = repeated
			case !fits(p):
				expect = stale
			}
			if got != expect || judged != expect {
				t.Fatalf("%+v at version %d: taken %v, judged %v, want %v", p, version, got, judged, expect)
			}
			if got == taken {
				waiting = append(waiting, p)
				if p.lease > 0 {
					asked[worker] = p
					effects[push{worker: worker, lease: p.lease, done: p.done}]++
				}
			}
			if r.due() != (len(waiting) >= most() && len(waiting) > 0) {
				t.Fatalf("due %t with %d gathered, an update takes %d", r.due(), len(waiting), most())
			}
			if r.due() {
				if len(waiting) != most() {
					t.Fatalf("an update of %d gradients, want %d", len(waiting), most())
				}
				settle()
			}
		},
		"contributors": func(t *rapid.T) {
			contributors = rapid.Int64Range(1, 6).Draw(t, "n")
			r.contributors = int(contributors)
			if r.due() { // as Control does: what is there is one update
				settle()
			}
		},
		"flush": func(t *rapid.T) {
			if len(waiting) > 0 {
				settle()
			}
		},
		"": func(t *rapid.T) {
			if r.version != version {
				t.Fatalf("version %d, want %d", r.version, version)
			}
			if len(waiting) > 0 && len(waiting) >= most() {
				t.Fatalf("%d gradients are gathered, %d make an update", len(waiting), most())
			}
			weights := r.weights()
			for i, p := range waiting {
				weight := 1.0
				if a := age(p); c.LRStalenessModulation && a > 1 {
					weight = 1 / float64(a)
				}
				if math.Abs(weights[i]-weight) > 1e-12 {
					t.Fatalf("weight %v of age %d", weights[i], age(p))
				}
			}
			for w := range 5 {
				if r.waits(w) != slices.ContainsFunc(waiting, func(p push) bool { return p.worker == w }) {
					t.Fatalf("worker %d waits: %t", w, r.waits(w))
				}
			}
			for p, n := range effects {
				if n != 1 {
					t.Fatalf("%+v had its effect %d times", p, n)
				}
			}
		},
	})
}

func TestVersionGoesOn(t *testing.T) {
	r := newRule(ServerConfig{})
	r.start(500)
	r.start(3)
	if r.version != 500 {
		t.Fatal(r.version)
	}
}

// Lease 0 is no lease: nothing is known of it.
func TestNoLease(t *testing.T) {
	r := newRule(ServerConfig{})
	for range 3 {
		if v := r.take(push{}); v != taken {
			t.Fatal(v)
		}
		r.applied()
	}
}
