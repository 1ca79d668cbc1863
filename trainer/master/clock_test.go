package master

import (
	"testing"
	"time"
)

// The clock of the master does not count time in which the master did not run.
func TestClock(t *testing.T) {
	begin := time.Now()
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	c := newClock()
	for _, step := range []struct{ armed, now, want int }{
		{0, 5, 5}, // no timer is set
		{10, 8, 8},
		{10, 10, 10},
		{10, 70, 10},
		{0, 72, 10}, // the timer is not set again yet
		{75, 74, 12},
		{75, 80, 13},
	} {
		if step.armed > 0 {
			c.armed = at(step.armed)
		}
		if got := c.at(at(step.now)); !got.Equal(at(step.want)) {
			t.Errorf("%+v: %v", step, got.Sub(begin))
		}
		if step.armed == 0 {
			c.armed = time.Time{}
		}
	}
}

// The clock does not count time in which the master answered nobody, once, whether the timer was to
// fire in it or not. Asked for a time before that, it shows the newest one.
func TestClockExcuses(t *testing.T) {
	begin := time.Now()
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	for _, armed := range []int{0, 5, 12, 15, 60} {
		c := newClock()
		if armed > 0 {
			c.armed = at(armed)
		}
		before := c.at(at(10))
		c.excuse(at(10), at(15))
		for _, now := range []int{10, 14, 15} {
			if got := c.at(at(now)); !got.Equal(before) {
				t.Errorf("timer at %d s, clock at %v: %v at %d s", armed, before.Sub(begin), got.Sub(begin), now)
			}
		}
		if got := c.at(at(15).Add(punctual)); !got.Equal(before.Add(punctual)) {
			t.Errorf("timer at %d s: the clock stands at %v", armed, got.Sub(begin))
		}
	}
}

// The timer runs to its deadline, or fires at once if that has passed. An earlier deadline makes
// the loop look at all deadlines again.
func TestClockArms(t *testing.T) {
	now := time.Now()
	c := newClock()
	if !c.firesAfter(now.Add(time.Hour)) {
		t.Error("a timer that is not set fires too early")
	}
	if got := c.arm(now.Add(time.Minute), now); got != time.Minute || !c.firesAfter(now.Add(59*time.Second)) ||
		c.firesAfter(now.Add(time.Minute)) {
		t.Errorf("the timer runs for %v", got)
	}
	if got := c.arm(now.Add(-time.Minute), now); got != 0 || !c.at(now).Equal(now) {
		t.Errorf("the timer runs for %v, the clock shows %v", got, c.at(now))
	}
	c.at(now.Add(time.Hour)) // the master did not run
	if got := c.wall(now.Add(time.Minute)); !got.Equal(now.Add(time.Hour + time.Minute)) {
		t.Errorf("the clock shows it at %v", got.Sub(now))
	}
	c.look()
	c.look()
	if len(c.poke) != 1 {
		t.Errorf("%d looks are due", len(c.poke))
	}
}
