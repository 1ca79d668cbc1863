package zoo

import (
	"slices"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/train/nn/kernel"
)

func newEngine(t *testing.T, m *Model, threads int) *Engine {
	t.Helper()
	e, err := NewEngine(m, threads, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func step(t *testing.T, e *Engine, b *Batch) []float32 {
	t.Helper()
	if _, err := e.Step(b); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(e.Grads())
}

func predict(t *testing.T, e *Engine, b *Batch) []float32 {
	t.Helper()
	outputs, err := e.Predict(b)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(outputs.Data)
}

// TestNoiseIsThatOfItsSeed: the same parameters, batch and noise give the same bits, whatever came
// before.
func TestNoiseIsThatOfItsSeed(t *testing.T) {
	b, other := feed(t, mnistFunctional, Training, 9), feed(t, mnistFunctional, Training, 20)
	fresh := newEngine(t, mnistFunctional, 1)
	fresh.SetNoise(5)
	want := step(t, fresh, b)
	if slices.Equal(want, step(t, fresh, b)) {
		t.Error("the next step has the same noise")
	}

	e := newEngine(t, mnistFunctional, 3)
	bad := split(b, 2)[0]
	bad.Labels = []int32{0, 10}
	for name, before := range map[string]func(){
		"nothing":           func() {},
		"steps":             func() { step(t, e, other); step(t, e, b) },
		"another noise":     func() { e.SetNoise(6); step(t, e, b) },
		"an inference":      func() { predict(t, e, other) },
		"a step that fails": func() { e.Step(bad) },
	} {
		before()
		e.SetNoise(5)
		if !slices.Equal(step(t, e, b), want) {
			t.Errorf("other gradients after %s", name)
		}
	}
	e.SetNoise(6)
	if slices.Equal(step(t, e, b), want) {
		t.Error("another seed gives the same noise")
	}
	if allocs := testing.AllocsPerRun(10, func() { e.SetNoise(5) }); allocs > 0 {
		t.Errorf("the noise allocates %v times", allocs)
	}
}

// TestUse: an engine computes with the values of another, and then with its own again.
func TestUse(t *testing.T) {
	for _, m := range models {
		t.Run(m.Name, func(t *testing.T) {
			b := feed(t, m, Training, 9)
			e, other := newEngine(t, m, 2), newEngine(t, m, 2)
			for i := range other.Values() {
				other.Values()[i] *= 1 - float32(i%7)/16
			}
			gradients := func(e *Engine) []float32 { e.SetNoise(1); return step(t, e, b) }
			own, ownGrads := predict(t, e, b), gradients(e)
			values := slices.Clone(e.Values())

			e.Use(slices.Clone(other.Values()))
			if !slices.Equal(predict(t, e, b), predict(t, other, b)) || slices.Equal(predict(t, e, b), own) {
				t.Error("outputs are not those of the values in use")
			}
			if !slices.Equal(gradients(e), gradients(other)) {
				t.Error("gradients are not those of the values in use")
			}
			if !slices.Equal(e.Values(), values) {
				t.Error("the engine's own values have changed")
			}

			e.Use(nil)
			if !slices.Equal(predict(t, e, b), own) || !slices.Equal(gradients(e), ownGrads) {
				t.Error("the engine does not compute with its own values again")
			}
			defer func() {
				if recover() == nil {
					t.Error("values of another length are used")
				}
			}()
			e.Use(values[1:])
		})
	}
}

// TestOnGrads: every model tells of all gradients, once, when they are final, whatever the number
// of threads.
func TestOnGrads(t *testing.T) {
	for _, m := range models {
		t.Run(m.Name, func(t *testing.T) {
			b := feed(t, m, Training, 9)
			var first [][2]int
			for threads := range 3 {
				e := newEngine(t, m, threads+1)
				quiet := step(t, e, b)
				step(t, e, split(b, 4)[0]) // leaves other gradients
				told, copies := [][2]int{}, make([]float32, len(e.Grads()))
				e.OnGrads(func(lo, hi int) {
					told = append(told, [2]int{lo, hi})
					kernel.Add(copies[lo:hi], e.Grads()[lo:hi])
				})
				e.SetNoise(1)
				grads := step(t, e, b)
				if !slices.Equal(copies, grads) {
					t.Error("the reported gradients differ from the final ones")
				}
				if first == nil {
					first = told
				}
				if !slices.Equal(told, first) {
					t.Errorf("%d threads tell %v, one tells %v", threads+1, told, first)
				}
				e.OnGrads(nil)
				e.SetNoise(1)
				if !slices.Equal(step(t, e, b), quiet) || !slices.Equal(grads, quiet) {
					t.Error("listening changes gradients")
				}
			}
		})
	}
}
