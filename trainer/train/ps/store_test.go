package ps

import (
	"runtime"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
)

// A server that comes to a version only after it was released does not keep it: nobody would tell
// it again.
func TestReleasedVersionIsNotKept(t *testing.T) {
	s := &store{values: []float32{1, 2}}
	s.release(100)
	for version, want := range map[int64]bool{50: false, 100: false} {
		if s.keep(version) != want || s.held != 0 {
			t.Errorf("version %d is kept, although versions up to 100 are released", version)
		}
	}
	if !s.keep(150) || s.held != 150 {
		t.Errorf("holds %d, not version 150", s.held)
	}
	if s.release(149); s.held != 150 {
		t.Errorf("holds %d after the release of 149", s.held)
	}
	if s.release(150); s.held != 0 {
		t.Errorf("holds %d after its release", s.held)
	}
	// another model generation: nothing of it is released
	if s.release(0); !s.keep(50) {
		t.Error("version 50 of another generation is not kept")
	}
}

// The garbage of a server is a hundredth of what it holds, or two megabytes; that of a small one,
// and where the user wants less or no collection, is the runtime's affair.
func TestGarbageIsLimited(t *testing.T) {
	for _, c := range []struct{ values, before, want int }{
		{values: large - 1, before: 100, want: 100},
		{values: large, before: 100, want: 50},
		{values: 25 << 20, before: 100, want: 2},
		{values: 1 << 30, before: 100, want: 1},
		{values: large, before: 20, want: 20},
		{values: large, before: -1, want: -1},
	} {
		usual := debug.SetGCPercent(c.before)
		limitGarbage(c.values)
		if got := debug.SetGCPercent(usual); got != c.want {
			t.Errorf("%d values, GOGC=%d: the garbage is limited to %d %%, want %d", c.values, c.before, got, c.want)
		}
	}
}

// An update on any number of processors is that of the whole arrays at once.
func TestUpdateOnAllProcessors(t *testing.T) {
	const trainable, state = 3*chunk + chunk/2, 2*chunk + 3
	layout := dense(trainable, state)
	ramp := func(n int, from float32) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = from + float32(i%1000)/1000
		}
		return x
	}
	optimizer := must(optim.New(optim.Config{Name: optim.Adam}))
	const n = trainable + state
	want, slots := ramp(n, 1), optimizer.NewSlots(trainable)
	sum := ramp(n, -2)
	for i := range sum {
		sum[i] /= 2
	}
	optimizer.Apply(want[:trainable], sum[:trainable], slots, 1, 0.1)
	layout.Average(trainable, want[trainable:], sum[trainable:])

	for _, processors := range []int{1, 2, 3, 100} {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
		s := &store{optimizer: optimizer}
		s.fill(layout, param.Range{End: n}, ramp(n, 1), 0)
		s.sum = ramp(n, -2)
		s.apply([]float64{1, 1}, 0.1)
		if !slices.Equal(s.values, want) || !slices.EqualFunc(s.slots, slots, slices.Equal) {
			t.Errorf("an update on %d processors is another one", processors)
		}
	}
}
