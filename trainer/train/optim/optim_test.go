package optim

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/train/nn/kernel"
	"pgregory.net/rapid"
)

// reference is one parameter under an optimizer, in float64, as the papers write it.
type reference struct {
	c             Config
	p             float64
	m, v, vmax, a float64
}

func newReference(c Config, p float32) *reference {
	return &reference{c: c, p: float64(p), a: c.InitialAccumulator}
}

func (r *reference) apply(g, lr float64, t int) {
	c := r.c
	switch {
	case c.Name == Adam:
		r.m = c.Beta1*r.m + (1-c.Beta1)*g
		r.v = c.Beta2*r.v + (1-c.Beta2)*g*g
		r.vmax = max(r.vmax, r.v)
		lr *= math.Sqrt(1-math.Pow(c.Beta2, float64(t))) / (1 - math.Pow(c.Beta1, float64(t)))
		root := math.Sqrt(r.v)
		if c.AMSGrad {
			root = math.Sqrt(r.vmax)
		}
		r.p -= lr * r.m / (root + c.Epsilon)
	case c.Name == Adagrad:
		r.a += g * g
		r.p -= lr * g / (math.Sqrt(r.a) + c.Epsilon)
	case c.Nesterov:
		r.v = c.Momentum*r.v + g
		r.p -= lr * (g + c.Momentum*r.v)
	default:
		r.v = c.Momentum*r.v + g
		r.p -= lr * r.v
	}
}

func configGen() *rapid.Generator[Config] {
	return rapid.Custom(func(t *rapid.T) Config {
		c := Config{Name: rapid.SampledFrom(names).Draw(t, "name")}
		zeroOr := func(field string, low, high float64) float64 {
			if rapid.Bool().Draw(t, "default "+field) {
				return 0
			}
			return rapid.Float64Range(low, high).Draw(t, field)
		}
		c.LearningRate = zeroOr("lr", 1e-4, 0.5)
		switch c.Name {
		case Adam:
			c.Beta1, c.Beta2 = zeroOr("beta1", 0.1, 0.99), zeroOr("beta2", 0.5, 0.9999)
			c.Epsilon, c.AMSGrad = zeroOr("epsilon", 1e-8, 1), rapid.Bool().Draw(t, "amsgrad")
		case Adagrad:
			c.Epsilon, c.InitialAccumulator = zeroOr("epsilon", 1e-8, 1), zeroOr("accumulator", 1e-3, 1)
		case SGD:
			c.Momentum = zeroOr("momentum", 0.01, 0.99)
			c.Nesterov = c.Momentum > 0 && rapid.Bool().Draw(t, "nesterov")
		case Momentum:
			c.Momentum = rapid.Float64Range(0.01, 0.99).Draw(t, "momentum")
			c.Nesterov = rapid.Bool().Draw(t, "nesterov")
		}
		return c
	})
}

// kernels runs a test with each set of kernels; it is skipped for those that this machine has not.
func kernels(t *testing.T, test func(t *testing.T)) {
	for _, name := range []string{"generic", "avx2", "avx512"} {
		t.Run(name, func(t *testing.T) {
			before := kernel.Name()
			if err := kernel.Use(name); err != nil {
				t.Skip(err)
			}
			t.Cleanup(func() {
				if err := kernel.Use(before); err != nil {
					t.Error(err)
				}
			})
			test(t)
		})
	}
}

// Many steps stay with the float64 reference.
func TestReference(t *testing.T) {
	kernels(t, func(t *testing.T) { rapid.Check(t, checkReference) })
}

func checkReference(t *rapid.T) {
	c := configGen().Draw(t, "config")
	o, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	n := rapid.IntRange(1, 70).Draw(t, "n")
	steps := rapid.IntRange(1, 60).Draw(t, "steps")
	p := rapid.SliceOfN(rapid.Float32Range(-2, 2), n, n).Draw(t, "p")
	base := rapid.SliceOfN(rapid.Float32Range(-3, 3), n, n).Draw(t, "g")
	refs := make([]*reference, n)
	for i := range refs {
		refs[i] = newReference(o.Config(), p[i])
	}
	slots, g := o.NewSlots(n), make([]float32, n)
	// rounding errors grow with the way, not with where it ends
	travelled := make([]float64, n)
	for step := 1; step <= steps; step++ {
		lr, given := o.Config().LearningRate, 0.0 // 0: the configuration's
		if step%3 == 0 {
			lr /= float64(step)
			given = lr
		}
		for i, r := range refs {
			g[i] = base[i] * float32(math.Cos(float64(step*(i+1))))
			before := r.p
			r.apply(float64(g[i]), lr, step)
			travelled[i] += math.Abs(r.p - before)
		}
		o.Apply(p, g, slots, int64(step), given)
	}
	for i, r := range refs {
		limit := 2e-6 * float64(steps) * (1 + math.Abs(r.p) + travelled[i])
		if got := float64(p[i]); !(math.Abs(got-r.p) <= limit) {
			t.Fatalf("%+v: p[%d] = %v after %d steps, want %v ± %v", o.Config(), i, got, steps, r.p, limit)
		}
	}
}

// Law 1: stretches give the same bits as the whole.
func TestStretches(t *testing.T) {
	kernels(t, func(t *testing.T) { rapid.Check(t, checkStretches) })
}

func checkStretches(t *rapid.T) {
	o, err := New(configGen().Draw(t, "config"))
	if err != nil {
		t.Fatal(err)
	}
	n := rapid.IntRange(2, 150).Draw(t, "n")
	whole := rapid.SliceOfN(rapid.Float32Range(-2, 2), n, n).Draw(t, "p")
	g := rapid.SliceOfN(rapid.Float32Range(-3, 3), n, n).Draw(t, "g")
	parts := slices.Clone(whole)
	wholeSlots, partSlots := o.NewSlots(n), o.NewSlots(n)
	for step := range int64(3) {
		o.Apply(whole, g, wholeSlots, step+1, 0)
		cut := rapid.IntRange(0, n).Draw(t, "cut")
		for _, s := range [][2]int{{cut, n}, {0, cut}} {
			o.ApplyRange(s[0], s[1], parts, g, partSlots, step+1, 0)
		}
	}
	if !slices.Equal(whole, parts) || !slices.EqualFunc(wholeSlots, partSlots, slices.Equal) {
		t.Fatalf("whole %v\nparts %v", whole, parts)
	}
}

// The first steps by hand, so that reference and optimizer are not wrong together.
func TestFirstSteps(t *testing.T) {
	for _, c := range []struct {
		config Config
		// p after steps with gradient 2, then 2, from 1
		want []float64
	}{
		{Config{Name: SGD, LearningRate: 0.1}, []float64{0.8, 0.6}},
		{Config{Name: Momentum, LearningRate: 0.1, Momentum: 0.5}, []float64{0.8, 0.5}},
		{Config{Name: SGD, LearningRate: 0.1, Momentum: 0.5, Nesterov: true}, []float64{0.7, 0.35}},
		{Config{Name: Adam, LearningRate: 0.1}, []float64{0.9, 0.8}},
		{Config{Name: Adam, LearningRate: 0.1, AMSGrad: true}, []float64{0.9, 0.8}},
		{Config{Name: Adagrad, LearningRate: 0.1, InitialAccumulator: 5},
			[]float64{1 - 0.2/3, 1 - 0.2/3 - 0.2/math.Sqrt(13)}},
	} {
		o, err := New(c.config)
		if err != nil {
			t.Fatal(err)
		}
		p, slots := []float32{1}, o.NewSlots(1)
		for i, want := range c.want {
			o.Apply(p, []float32{2}, slots, int64(i+1), 0)
			if math.Abs(float64(p[0])-want) > 1e-6 {
				t.Errorf("%+v: p = %v after %d steps, want %v", c.config, p[0], i+1, want)
			}
		}
	}
}

// Defaults are those of Keras.
func TestDefaults(t *testing.T) {
	for _, want := range []Config{
		{Name: SGD, LearningRate: 0.01},
		{Name: Momentum, LearningRate: 0.01, Momentum: 0.9},
		{Name: Adam, LearningRate: 0.001, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-7},
		{Name: Adagrad, LearningRate: 0.001, Epsilon: 1e-7, InitialAccumulator: 0.1},
	} {
		o, err := New(Config{Name: want.Name, Momentum: want.Momentum})
		if err != nil {
			t.Fatal(err)
		}
		if got := o.Config(); got != want {
			t.Errorf("%s: %+v, want %+v", want.Name, got, want)
		}
	}
}

// AMSGrad's root never falls, Adam's does.
func TestAMSGradRemembers(t *testing.T) {
	way := func(amsgrad bool) float32 {
		o, err := New(Config{Name: Adam, LearningRate: 0.1, Beta2: 0.5, AMSGrad: amsgrad})
		if err != nil {
			t.Fatal(err)
		}
		p, slots := []float32{0}, o.NewSlots(1)
		o.Apply(p, []float32{100}, slots, 1, 0)
		for step := range int64(40) {
			o.Apply(p, []float32{1}, slots, step+2, 0)
		}
		return -p[0]
	}
	if adam, ams := way(false), way(true); ams > adam/2 {
		t.Errorf("AMSGrad went %v, Adam %v", ams, adam)
	}
}

func TestValidate(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		config Config
		want   []string
	}{
		{Config{}, []string{"Name"}},
		{Config{Name: "adam"}, []string{"Name"}},
		{Config{Name: SGD, LearningRate: -1}, []string{"LearningRate"}},
		{Config{Name: SGD, LearningRate: math.Inf(1), Momentum: 1}, []string{"LearningRate", "Momentum"}},
		{Config{Name: SGD, Nesterov: true}, []string{"Nesterov"}},
		{Config{Name: SGD, Epsilon: 1, Beta1: 0.9, Beta2: 0.9, AMSGrad: true},
			[]string{"Epsilon", "Beta1", "Beta2", "AMSGrad"}},
		{Config{Name: Momentum}, []string{"Momentum = 0"}},
		{Config{Name: Adam, Beta1: 1, Beta2: -0.1, Epsilon: nan}, []string{"Beta1", "Beta2", "Epsilon"}},
		{Config{Name: Adam, Momentum: 0.9, InitialAccumulator: 1}, []string{"Momentum", "InitialAccumulator"}},
		{Config{Name: Adagrad, InitialAccumulator: -1, Nesterov: true}, []string{"InitialAccumulator", "Nesterov"}},
	} {
		_, err := New(c.config)
		if err == nil {
			t.Errorf("%+v: no error", c.config)
			continue
		}
		for _, field := range c.want {
			if !strings.Contains(err.Error(), field) {
				t.Errorf("%+v: error %q does not name %s", c.config, err, field)
			}
		}
		if got := strings.Count(err.Error(), "\n") + 1; got != len(c.want) {
			t.Errorf("%+v: %d problems, want %d: %v", c.config, got, len(c.want), err)
		}
	}
}

func TestSlots(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   int
	}{
		{Config{Name: SGD}, 0},
		{Config{Name: SGD, Momentum: 0.9}, 1},
		{Config{Name: Momentum, Momentum: 0.9, Nesterov: true}, 1},
		{Config{Name: Adam}, 2},
		{Config{Name: Adam, AMSGrad: true}, 3},
		{Config{Name: Adagrad}, 1},
	} {
		if got := c.config.Slots(); got != c.want {
			t.Errorf("%+v: %d slots, want %d", c.config, got, c.want)
		}
	}
}

func TestConfigJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := configGen().Draw(t, "config")
		b, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var got Config
		if err := json.Unmarshal(b, &got); err != nil || got != c {
			t.Fatalf("%s: %+v, want %+v, %v", b, got, c, err)
		}
	})
}

func TestWrongSlotsPanic(t *testing.T) {
	o, err := New(Config{Name: Adam})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	o.Apply([]float32{1}, []float32{1}, nil, 1, 0)
}

func BenchmarkApply(b *testing.B) {
	const n = 1 << 20
	for _, c := range []Config{{Name: SGD}, {Name: SGD, Momentum: 0.9}, {Name: Adam},
		{Name: Adam, AMSGrad: true}, {Name: Adagrad}} {
		name := c.Name
		if c.Momentum > 0 {
			name = Momentum
		} else if c.AMSGrad {
			name = "AMSGrad"
		}
		b.Run(name, func(b *testing.B) {
			o, err := New(c)
			if err != nil {
				b.Fatal(err)
			}
			p, g, slots := make([]float32, n), make([]float32, n), o.NewSlots(n)
			// p and slots are read and written, g is read
			b.SetBytes(int64(4 * n * (3 + 2*len(slots))))
			for step := int64(1); b.Loop(); step++ {
				o.Apply(p, g, slots, step, 0)
			}
		})
	}
}

// A schedule's rate is never as small as 0: to Apply that is the configuration's.
func TestRate(t *testing.T) {
	o, err := New(Config{Name: SGD, LearningRate: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		schedule func(int64, int) float64
		want     float64
	}{
		{nil, 0.5},
		{func(version int64, workers int) float64 { return float64(version) / float64(workers) }, 1.5},
	} {
		if got := o.Rate(tt.schedule, 3, 2); got != tt.want {
			t.Errorf("rate %v, want %v", got, tt.want)
		}
	}
	for _, stands := range []float64{0, -1, math.NaN(), math.SmallestNonzeroFloat64} {
		rate := o.Rate(func(int64, int) float64 { return stands }, 1, 1)
		p := []float32{1}
		o.Apply(p, []float32{1e30}, nil, 1, rate/1000) // staleness modulation divides it
		if p[0] != 1 {
			t.Errorf("a schedule of %v moves by %v", stands, 1-p[0])
		}
	}
}
