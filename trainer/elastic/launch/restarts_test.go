package launch

import (
	"slices"
	"testing"
	"time"
)

// The pauses between masters grow while they crash, and end when one is killed or lives for long.
func TestRestarts(t *testing.T) {
	type life struct {
		lived         time.Duration
		ready, killed bool
	}
	const s = time.Second
	young := life{ready: true}
	for _, tt := range []struct {
		name   string
		lives  []life
		pauses []time.Duration
		end    bool
	}{
		{"once", []life{young}, []time.Duration{0}, false},
		{"again and again", slices.Repeat([]life{young}, 10),
			[]time.Duration{0, s / 10, s / 5, 2 * s / 5, 4 * s / 5, 8 * s / 5, 16 * s / 5, 32 * s / 5,
				10 * s, 10 * s}, false},
		{"one was steady", []life{young, young, {lived: 10 * s}, young}, []time.Duration{0, s / 10, 0, s / 10}, false},
		{"killed, and not on its own", []life{young, young, {0, true, true}, {0, true, true}, young,
			young}, []time.Duration{0, s / 10, 0, 0, 0, s / 10}, false},
		{"killed before it is ready", slices.Repeat([]life{{killed: true}}, 10),
			slices.Repeat([]time.Duration{0}, 10), true},
		{"never ready", slices.Repeat([]life{{}}, 10), []time.Duration{0, s / 10, s / 5, 2 * s / 5,
			4 * s / 5, 8 * s / 5, 16 * s / 5, 32 * s / 5, 10 * s, 10 * s}, true},
		{"ready between", append(slices.Repeat([]life{{}}, 9), young, life{}), nil, false},
	} {
		var r Restarts
		var pauses []time.Duration
		ok := true
		for _, l := range tt.lives {
			if !ok {
				t.Errorf("%s: given up too early", tt.name)
			}
			var pause time.Duration
			pause, ok = r.Next(l.lived, l.ready, l.killed)
			pauses = append(pauses, pause)
		}
		if ok == tt.end || tt.pauses != nil && !slices.Equal(pauses, tt.pauses) {
			t.Errorf("%s: pauses %v, given up: %v; want %v, %v", tt.name, pauses, !ok, tt.pauses, tt.end)
		}
	}
}
