package nn

import (
	"math"
	"slices"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
)

// announcements are models whose gradients become final in different orders.
var announcements = map[string]func(b *Builder) Module{
	"small": small,
	"dense": func(b *Builder) Module {
		return Sequential{Flatten{}, b.Dense(126, Dense{Units: 20, ReLU: true}), b.Dense(20, Dense{Units: 4})}
	},
	// three layers are used twice, in stages that are not adjacent
	"shared": func(b *Builder) Module {
		conv := b.Conv2D(2, Conv2D{Filters: 2, Kernel: [2]int{3, 3}, Padding: Same})
		norm, dense := b.BatchNorm(2, BatchNorm{}), b.Dense(2, Dense{Units: 2})
		return Sequential{
			conv, norm, dense, b.Conv2D(2, Conv2D{Filters: 2, Kernel: [2]int{1, 1}}), b.BatchNorm(2, BatchNorm{}),
			conv, dense, norm, Flatten{}, b.Dense(126, Dense{Units: 4}),
		}
	},
	"unused": func(b *Builder) Module {
		unused, first := b.Dense(2, Dense{Units: 3}), b.Dense(2, Dense{Units: 2})
		norm, dead := b.BatchNorm(2, BatchNorm{}), b.BatchNorm(2, BatchNorm{})
		last := b.Dense(126, Dense{Units: 4})
		b.Dense(7, Dense{Units: 7})
		return forward(func(t *Tape, x *Tensor) *Tensor {
			unused.Forward(t, x)
			x = first.Forward(t, x)
			dead.Forward(t, x)
			return last.Forward(t, Flatten{}.Forward(t, norm.Forward(t, x)))
		})
	},
	"resnet": func(b *Builder) Module {
		return Sequential{b.Conv2D(2, Conv2D{Filters: 3, Kernel: [2]int{1, 1}}), resnet(b, 4, 4, 4, 8)}
	},
	// no operation gathers: a stage ends when enough gradients are final
	"wide": func(b *Builder) Module {
		return Sequential{Flatten{}, b.Dense(126, Dense{Units: 300}), b.Dense(300, Dense{Units: 1000}),
			b.Dense(1000, Dense{Units: 4})}
	},
}

// ranges returns the ranges of gradients that a pass announces, and a copy of all gradients
// at the first announcement. It checks that the ranges are disjoint, cover all gradients and are
// not changed later.
func ranges(t *testing.T, tape *Tape, m model, module Module) (told []param.Range, early []float32) {
	t.Helper()
	grads := tape.params.Grads
	for i := range grads {
		// so that a gradient that is announced too early differs
		grads[i] = float32(math.NaN())
	}
	copies := make([]float32, len(grads))
	covered := make([]int, len(grads))
	tape.OnGrads(func(lo, hi int) {
		if early == nil {
			early = slices.Clone(grads)
		}
		if lo >= hi {
			t.Errorf("reported of nothing: %d to %d", lo, hi)
		}
		told = append(told, param.Range{Start: lo, End: hi})
		copy(copies[lo:hi], grads[lo:hi])
		for i := lo; i < hi; i++ {
			covered[i]++
		}
	})
	defer tape.OnGrads(nil)
	m.pass(t, tape, module)
	at := 0
	for _, p := range tape.params.vars {
		for i := range p.Len() {
			if covered[at] != 1 || copies[at] != grads[at] {
				t.Fatalf("%s[%d] is reported %d times, of %v, and %v in the end", p.Name, i, covered[at],
					copies[at], grads[at])
			}
			at++
		}
	}
	return told, early
}

// TestOnGrads checks that each gradient is announced once, when it is final, in the same ranges
// with any number of threads, and that announcements change no gradient.
func TestOnGrads(t *testing.T) {
	for name, build := range announcements {
		t.Run(name, func(t *testing.T) {
			var first []param.Range
			for _, threads := range []int{1, 2, 3} {
				for _, batch := range []int{1, 5, 64} {
					m := smallModel(batch, threads)
					m.build = build
					tape, module := m.tape(t)
					m.pass(t, tape, module)
					quiet := slices.Clone(tape.params.Grads)
					tape.SetNoise(m.noise)
					told, _ := ranges(t, tape, m, module)
					if !slices.Equal(tape.params.Grads, quiet) {
						t.Errorf("%d threads, batch %d: other gradients when they are notified of", threads, batch)
					}
					if first == nil {
						first = told
					}
					if !slices.Equal(told, first) {
						t.Errorf("%d threads, batch %d: reported %v, first %v", threads, batch, told, first)
					}
				}
			}
		})
	}
}

// TestGradsAreToldEarly checks that the gradients of a deep network are announced in stages: those
// of the last layers before those of the first are computed.
func TestGradsAreToldEarly(t *testing.T) {
	const blocks = 5
	deep := func(b *Builder) Module {
		s := Sequential{}
		for range blocks {
			s = append(s, b.Conv2D(2, Conv2D{Filters: 2, Kernel: [2]int{3, 3}, Padding: Same}),
				b.BatchNorm(2, BatchNorm{}), ReLU{})
		}
		return append(s, Flatten{}, b.Dense(126, Dense{Units: 4}))
	}
	for name, c := range map[string]struct {
		build  func(b *Builder) Module
		stages int
	}{"norms": {deep, blocks + 1}, "wide": {announcements["wide"], 2}} {
		m := smallModel(6, 2)
		m.build = c.build
		tape, module := m.tape(t)
		told, early := ranges(t, tape, m, module)
		vars := tape.params.vars
		if !math.IsNaN(float64(early[0])) || !slices.ContainsFunc(early, func(g float32) bool { return g == g }) {
			t.Errorf("%s: the first layer's gradient is %v when the last's is reported", name, early[0])
		}
		values := told[:0]
		for _, s := range told {
			if s.Start < tape.params.Layout.Trainable() {
				values = append(values, s)
			}
		}
		fromEnd := func(a, b param.Range) int { return b.Start - a.Start }
		if len(values) < c.stages || !slices.IsSortedFunc(values, fromEnd) {
			t.Errorf("%s: reported %v of %d variables, want %d ranges or more, from the end", name,
				values, len(vars), c.stages)
		}
	}
}

// TestFailedPassTellsNothing checks that a pass that fails announces no gradients.
func TestFailedPassTellsNothing(t *testing.T) {
	m := smallModel(3, 1)
	tape, module := m.tape(t)
	tape.OnGrads(func(lo, hi int) { t.Errorf("reported of %d to %d", lo, hi) })
	err := tape.Pass(true, []Array{m.input}, func(t *Tape) {
		t.Backward(t.SoftmaxCrossEntropy(module.Forward(t, t.Input(0)), []int32{0, 1, 4}))
	})
	if err == nil {
		t.Error("label 4 of 4 classes is accepted")
	}
}
