package supervise

import (
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
)

// Contact tracks since when the master has been reachable without a break: only then can it notice
// silent workers, and report a loss. The zero value has not reached it yet.
type Contact struct {
	// incarnation of the master
	master int
	// since when it can judge silences; zero: it is away
	since time.Time
	// when the last answer came, or the first question was not answered
	last time.Time
	// questions in a row that were not answered
	missed int
}

// Answered takes the answer of an incarnation of the master to a heartbeat.
func (c *Contact) Answered(now time.Time, master int) {
	// this process was suspended, or the whole machine
	stopped := now.Sub(c.last) > timing.BeatLimit+timing.Beat
	if c.since.IsZero() || stopped || master != c.master {
		// until then a new master counts no worker as lost that has yet to find it
		c.since = now.Add(timing.Return)
	}
	c.master, c.last, c.missed = master, now, 0
}

// Missed takes a heartbeat that was not answered. It returns how long the master has been away, if
// that is at least a limit; 0: it is not, or there is no limit.
func (c *Contact) Missed(now time.Time, limit time.Duration) (away time.Duration) {
	c.since = time.Time{}
	// several in a row: after one, the agent itself may have been suspended
	if c.missed++; limit > 0 && c.missed > 1 && now.Sub(c.last) >= limit {
		return now.Sub(c.last)
	}
	return 0
}

// Begin notes when heartbeats begin.
func (c *Contact) Begin(now time.Time) { c.last = now }

// Kept returns how long the master is known to have been reachable without a break since a time.
func (c *Contact) Kept(after time.Time) time.Duration {
	if c.since.IsZero() {
		return 0
	}
	if c.since.After(after) {
		after = c.since
	}
	return c.last.Sub(after)
}
