package goodput

import (
	"fmt"
	"testing"
	"time"
)

// A worker is reported after it was slow for a while, once, and is one no more when it was not slow
// for a longer while.
func TestSlowWatch(t *testing.T) {
	var w SlowWatch
	now := time.UnixMilli(1_000_000)
	one := []Slow{{Worker: 3, Step: 210, Median: 100}}
	var said []string
	pass := func(times int, slow []Slow) {
		for range times {
			now = now.Add(time.Second)
			begun, over := w.Observe(slow, now)
			for _, s := range begun {
				said = append(said, fmt.Sprintf("%d %s", s.Worker, s.Pace()))
			}
			for _, o := range over {
				said = append(said, fmt.Sprintf("%d over after %v", o.Worker, o.After))
			}
		}
	}
	want := func(when, text string) {
		t.Helper()
		if got := fmt.Sprint(said); got != text {
			t.Errorf("%s: %s, want %s", when, got, text)
		}
		said = nil
	}
	pass(3, one)
	pass(1, nil)
	pass(3, one)
	want("moments", "[]")
	pass(5, []Slow{{Worker: 3, Step: 220, Median: 100}})
	want("a while", "[3 takes 2.2 times the median step: 220 ms, the others 100 ms]")
	pass(10, nil)
	pass(10, one)
	want("pauses", "[]")
	if got := fmt.Sprint(w.Reported()); got != "[{3 220 100}]" {
		t.Errorf("reported: %s", got)
	}
	pass(20, nil)
	want("the end", "[3 over after 27s]")
	if got := w.Reported(); got != nil || len(w.seen) != 0 {
		t.Errorf("kept: %v, %v", got, w.seen)
	}
}

// A worker that becomes five times slower in the middle of a long job is reported within ten
// seconds.
func TestSlowIsSeenSoon(t *testing.T) {
	j := newJob()
	var w SlowWatch
	step := func(second int, factor int64) bool {
		j.now = j.now.Add(time.Second)
		for i, own := range []int64{10, 10 * factor} {
			s := &j.view.Workers[i].Spent
			steps := 1000 / (10 * factor)
			s.Report, s.Steps, s.Compute, s.Peers = s.Report+1, s.Steps+steps, s.Compute+steps*own,
				s.Peers+1000-steps*own
		}
		j.Observe(j.view, j.now)
		begun, _ := w.Observe(j.Slow(), j.now)
		return len(begun) > 0
	}
	for i := range 300 {
		if step(i, 1) {
			t.Fatal("reported without a reason")
		}
	}
	for i := range 10 {
		if step(i, 5) {
			return
		}
	}
	t.Errorf("not reported within ten seconds: %v", j.Slow())
}
