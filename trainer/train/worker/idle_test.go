package worker

import (
	"testing"
	"testing/synctest"
	"time"
)

// A link that breaks while no rank has anything to bring is no evidence against the peer. A link
// that breaks in a round is, and one that cannot be made.
func TestIdleLinkBreaks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClass(2)
		first := c.pupils[0]
		first.give(training(1, 0, 8, 0))
		first.granted++ // more is to come
		c.dark = 2
		c.start(t)
		breaks := func() {
			c.mu.Lock()
			links := c.links
			c.links = nil
			c.mu.Unlock()
			for _, link := range links {
				link.Close()
			}
			time.Sleep(15 * time.Millisecond)
		}
		says := func(idle bool) {
			t.Helper()
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			if n := len(c.broken); n != 2 {
				t.Errorf("%d of 2 members come back from a world that broke", n)
			}
			for _, a := range c.broken {
				if a.Idle != idle {
					t.Errorf("generation %d: worker %d says idle %v, it is %v", a.Generation, a.Worker, a.Idle, idle)
				}
			}
			c.broken = nil
		}
		time.Sleep(time.Second)
		breaks()
		says(true)
		time.Sleep(c.job.HeartbeatTimeout.Duration)
		says(false)
		time.Sleep(time.Second)
		first.mu.Lock()
		first.tasks = append(first.tasks, training(2, 8, 48, 0))
		first.mu.Unlock()
		time.Sleep(5 * time.Millisecond)
		breaks()
		says(false)
		c.finish(t)
	})
}
