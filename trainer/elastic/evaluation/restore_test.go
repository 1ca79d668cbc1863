package evaluation

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// kept holds a saved state and its measurements.
type kept struct {
	Saved
	measured map[int64]bool
}

// through returns what is read of what is written.
func through(t interface{ Fatal(...any) }, s Saved) (back Saved) {
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	return back
}

func (l *lawsTest) save(t *rapid.T) {
	l.kept = append(l.kept, kept{through(t, l.s.Save()), maps.Clone(l.measured)})
}

// comeBack restarts a master with a saved state of some time, or with none. Running measurements
// are withdrawn.
func (l *lawsTest) comeBack(t *rapid.T) {
	k := rapid.SampledFrom(append(l.kept, kept{through(t, l.s.Save()), l.measured}, kept{})).Draw(t, "saved")
	l.restore(t, k)
}

func (l *lawsTest) restore(t *rapid.T, k kept) {
	s, err := Restore(l.s.policy, k.Saved)
	if err != nil {
		t.Fatal(err)
	}
	l.s, l.running, l.released = s, 0, s.Release()
	l.measured = make(map[int64]bool)
	maps.Copy(l.measured, k.measured)
}

// replace compares a schedule that is restored with the one that was saved, when the holders have
// reported their state to both.
func (l *lawsTest) replace(t *rapid.T) {
	before := l.s
	for i, h := range l.holders {
		before.Snapshot(i, h.held)
	}
	run, runs := before.Running()
	l.restore(t, kept{through(t, before.Save()), l.measured})
	for i, h := range l.holders {
		l.s.Snapshot(i, h.held)
	}
	due, ok := before.Due()
	if runs {
		due, ok = run, true
	}
	got, is := l.s.Due()
	a, b := fmt.Sprint(before.Release(), before.measured), fmt.Sprint(l.s.Release(), l.s.measured)
	if is != ok || got != due || a != b {
		t.Fatalf("saved: %+v (%t) is due, %s\nrestored: %+v (%t), %s", due, ok, a, got, is, b)
	}
}

// The last evaluation is due again if it ran, and made once.
func TestRestoreFinal(t *testing.T) {
	p := Policy{Steps: 50, Servers: 1}
	s := New(p)
	hold(s, 50)
	s.Begin(1)
	complete(t, s)
	s.Final(70)
	for range 3 { // asked for, and then twice running
		back, err := Restore(p, through(t, s.Save()))
		if err != nil {
			t.Fatal(err)
		}
		s = back
		due(t, s, 70)
		s.Begin(1)
	}
	complete(t, s)
	s, err := Restore(p, through(t, s.Save()))
	if err != nil {
		t.Fatal(err)
	}
	s.Final(70)
	hold(s, 50)
	if !s.Idle() || s.Release() != 50 {
		t.Error("measured again")
	}
}

func TestRestoreRefuses(t *testing.T) {
	seven, below := int64(7), int64(-1)
	for _, tt := range []struct {
		saved Saved
		want  string
	}{
		{Saved{Measured: []int64{7, 7}}, "restore the evaluations: version 7 follows version 7"},
		{Saved{Measured: []int64{-4}}, "restore the evaluations: version -4 follows version -1"},
		{Saved{Released: -1}, "restore the evaluations: 0 are measured, snapshots up to version -1 released"},
		{Saved{Measured: []int64{7}, Final: &seven}, "restore the evaluations: that of version 7 cannot be due"},
		{Saved{Final: &below}, "restore the evaluations: that of version -1 cannot be due"},
	} {
		if _, err := Restore(Policy{}, tt.saved); err == nil || err.Error() != tt.want {
			t.Errorf("%+v: %v, want %s", tt.saved, err, tt.want)
		}
	}
	s := New(Policy{})
	for v := range int64(1000) {
		s.measured[math.MaxInt64-v] = true
	}
	text, err := json.Marshal(s.Save())
	if err != nil || len(text) > 4<<10 || !strings.Contains(string(text), "9223372036854775807") {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

func FuzzRestore(f *testing.F) {
	f.Add([]byte(`{"released":50,"measured":[50,70],"final":90}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var saved Saved
		if json.Unmarshal(text, &saved) != nil {
			return
		}
		s, err := Restore(Policy{Steps: 5, Servers: 1}, saved)
		if err != nil {
			return
		}
		if _, err := Restore(s.policy, s.Save()); err != nil {
			t.Fatalf("%s is not restored again: %v", text, err)
		}
		hold(s, math.MaxInt64)
		if r, ok := s.Due(); ok {
			s.Begin(1)
			if saved.Released == math.MaxInt64 && r.Snapshot > 0 {
				t.Fatalf("%s: %+v is due", text, r)
			}
		}
	})
}
