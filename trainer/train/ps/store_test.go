package ps

import (
	"runtime/debug"
	"testing"
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
