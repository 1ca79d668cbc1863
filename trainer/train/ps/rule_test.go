package ps

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
)

// TestRule drives the rule with gradients, repeats, flushes and changes of the contributors,
// compared with a model that keeps everything and decides by the words of the laws.
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

// record is one of a task.
type record struct {
	ledger.Task
	at int64
}

func checkRule(t *rapid.T) {
	c := ruleConfig(t)
	r := newRule(c)
	var (
		contributors, version int64
		effects               = map[record]int{}
		waiting               []push // gathered
		had                   = map[ledger.Task]int64{}
		settled               int
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
			p := push{
				worker:  rapid.IntRange(0, 4).Draw(t, "worker"),
				version: max(0, version-rapid.Int64Range(-1, 4).Draw(t, "age")),
				task: ledger.Task{Epoch: rapid.IntRange(0, 3).Draw(t, "epoch"),
					Number: rapid.IntRange(0, 2).Draw(t, "task")},
				of: 10,
			}
			// A pushing worker is at the server's marker, behind it, or, if a marker was lost,
			// beyond it.
			p.from = max(0, had[p.task]+rapid.Int64Range(-3, 1).Draw(t, "from"))
			p.from = min(p.from, p.of-1)
			p.to = min(p.from+rapid.Int64Range(1, 3).Draw(t, "records"), p.of)
			before := *r
			judged := r.judge(p)
			if before.version != r.version || len(before.gathered) != len(r.gathered) {
				t.Fatal("to judge had an effect")
			}
			got := r.accept(p)
			expect := accepted
			switch {
			case p.task.Epoch > 0 && (p.task.Epoch <= settled || p.to <= had[p.task]):
				expect = repeated
			case p.task.Epoch > 0 && p.from != had[p.task]:
				expect = cut
			case !fits(p):
				expect = stale
			}
			if got != expect || judged != expect {
				t.Fatalf("%+v at version %d: taken %v, judged %v, want %v", p, version, got, judged, expect)
			}
			if got == accepted {
				waiting = append(waiting, p)
				if p.task.Epoch > 0 {
					had[p.task] = p.to
					for i := p.from; i < p.to; i++ {
						effects[record{p.task, i}]++
					}
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
			// as Control does: what is there is one update
			if r.due() {
				settle()
			}
		},
		"flush": func(t *rapid.T) {
			if len(waiting) > 0 {
				settle()
			}
			settled = max(settled, rapid.IntRange(0, 2).Draw(t, "settled"))
			r.settle(settled)
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
			for of, n := range effects {
				if n != 1 {
					t.Fatalf("%+v had its effect %d times", of, n)
				}
			}
			for task, n := range had {
				want := n
				if task.Epoch <= settled || n == 10 {
					want = math.MaxInt64
				}
				if got := r.done(task); got != want {
					t.Fatalf("%d records of %v are had, want %d", got, task, want)
				}
			}
			for _, epoch := range r.ledger.Epochs() {
				if epoch <= settled {
					t.Fatalf("markers of epoch %d are kept, %d epochs are settled", epoch, settled)
				}
			}
		},
	})
}

// Epoch 0 is no task: nothing is known of it.
func TestNoTask(t *testing.T) {
	r := newRule(ServerConfig{})
	for range 3 {
		if v := r.accept(push{}); v != accepted {
			t.Fatal(v)
		}
		r.applied()
	}
}
