package master

import "time"

// punctual is the largest delay of the timer that does not count as time in which the master did
// not run. It is larger than the time between two looks at the time in one tick: otherwise
// something due at the second look would not be due at the first, again and again.
const punctual = 50 * time.Millisecond

// clock is the time that counts for silence and delays, and the time of the master's timer.
type clock struct {
	// makes the loop look at the deadlines again
	poke chan struct{}
	// time to which the timer is set
	armed time.Time
	// time in which this master did not run
	downtime time.Duration
	// newest time that it has shown
	newest time.Time
}

func newClock() *clock { return &clock{poke: make(chan struct{}, 1)} }

// at returns now without the time in which this master itself did not run: it was suspended, had no
// processor, or answered nobody while its record was written. Silence and delays are measured by
// this clock, so that others are not blamed for that time. It only moves forward: for a time before
// one that it was asked for, it returns the newest that it has shown.
func (c *clock) at(now time.Time) time.Time {
	if late := now.Sub(c.armed); !c.armed.IsZero() && late > punctual {
		c.downtime += late
		c.armed = now
	}
	if shown := now.Add(-c.downtime); shown.After(c.newest) {
		c.newest = shown
	}
	return c.newest
}

// excuse leaves out the time between two looks at the time, in which the master answered nobody.
func (c *clock) excuse(from, to time.Time) {
	c.at(from)
	c.downtime += to.Sub(from)
	if !c.armed.IsZero() && c.armed.Before(to) {
		c.armed = to
	}
}

// wall returns when the clock shows a time, if the master runs until then.
func (c *clock) wall(at time.Time) time.Time { return at.Add(c.downtime) }

// arm notes that the timer is set to a time, or to now if that time has passed; zero: it is not
// set. It returns how long the timer has to run.
func (c *clock) arm(at, now time.Time) time.Duration {
	if c.armed = at; !at.IsZero() && at.Before(now) {
		c.armed = now
	}
	return c.armed.Sub(now)
}

// firesAfter reports whether the timer fires after a time, or not at all.
func (c *clock) firesAfter(at time.Time) bool { return c.armed.IsZero() || at.Before(c.armed) }

// look makes the loop look at the deadlines again.
func (c *clock) look() { signal(c.poke) }
