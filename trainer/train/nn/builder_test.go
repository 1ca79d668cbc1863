package nn

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestBuilder(t *testing.T) {
	build := func(seed uint64, names ...string) *Params {
		b := NewBuilder(seed)
		for _, name := range names {
			b.BatchNorm(3, BatchNorm{})
			b.Dense(20, Dense{Name: name, Units: 30})
		}
		p, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := build(1, "a", "b")
	var names []string
	for _, v := range p.Layout {
		names = append(names, v.Name)
	}
	const want = "batch_normalization/gamma batch_normalization/beta a/kernel a/bias " +
		"batch_normalization_1/gamma batch_normalization_1/beta b/kernel b/bias " +
		"batch_normalization/moving_mean batch_normalization/moving_variance " +
		"batch_normalization_1/moving_mean batch_normalization_1/moving_variance"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("variables are\n%s\nwant\n%s", got, want)
	}
	a, b := p.vars[2], p.vars[6]
	limit := float32(math.Sqrt(6. / 50))
	if top := slices.Max(a.Value); top > limit || top < .95*limit {
		t.Errorf("kernel reaches %v, want about %v", top, limit)
	}
	if slices.Equal(a.Value, b.Value) {
		t.Error("two kernels are the same")
	}
	if q := build(1, "b", "c"); !slices.Equal(q.vars[2].Value, b.Value) {
		t.Error("the initial value depends on more than seed and name")
	}
	if q := build(2, "a"); slices.Equal(q.vars[2].Value, a.Value) {
		t.Error("the initial value does not depend on the seed")
	}
	if &p.Grads[0] != &p.vars[0].Grad[0] || &p.Values[6] != &a.Value[0] {
		t.Error("variables are not views of the flat arrays")
	}
	bad := NewBuilder(1)
	bad.Dense(0, Dense{Units: 2})
	if _, err := bad.Build(); err == nil {
		t.Error("a layer of no inputs is built")
	}
}

// The parts of a model join to the whole: an initial value does not depend on how many servers
// there are.
func TestInitialParts(t *testing.T) {
	b := NewBuilder(3)
	b.BatchNorm(3, BatchNorm{})
	b.Dense(90, Dense{Units: 70})
	b.Variable("ramp", func(_ *rand.Rand, _ []int, at int, dst []float32) {
		for i := range dst {
			dst[i] = float32(at + i)
		}
	}, 5000)
	b.Dense(7, Dense{Units: 5})
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	for parts := 1; parts <= 9; parts++ {
		var joined []float32
		for i := range parts {
			layout, part, err := b.Initial(i, parts)
			if err != nil || len(layout) != len(p.Layout) {
				t.Fatal(layout, err)
			}
			joined = append(joined, part...)
		}
		if !slices.Equal(joined, p.Values) {
			t.Errorf("%d parts join to other values than the whole", parts)
		}
	}
	bad := NewBuilder(1)
	bad.Dense(0, Dense{Units: 2})
	if _, _, err := bad.Initial(0, 1); err == nil {
		t.Error("a layer of no inputs has initial values")
	}
}

// A server of many needs the memory of its own part, also of one large variable.
func TestInitialPartMemory(t *testing.T) {
	const n = 1 << 20
	b := NewBuilder(3)
	b.Variable("large", GlorotUniform, n/2, 2)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, _, err := b.Initial(15, 16); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 4*n/16+64<<10 {
		t.Errorf("a sixteenth of %d bytes takes %d", 4*n, bytes)
	}
}
