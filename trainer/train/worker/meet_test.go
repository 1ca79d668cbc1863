package worker

import (
	"slices"
	"testing"
	"time"
)

// A world outlives the streams of its members: they continue in it, and report so on the next
// stream.
func TestWorldOutlivesStreams(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClass(2)
		for i, p := range c.pupils {
			p.give(training(int64(1+i), int64(32*i), int64(32*i+32), 0))
		}
		c.start(t)
		time.Sleep(25 * time.Millisecond) // in the third of eight rounds
		c.mu.Lock()
		for _, p := range c.pupils {
			close(p.stream.cut)
		}
		c.mu.Unlock()
		c.finish(t)
		if c.world != 1 || !slices.Equal(c.works, []int64{1, 1}) {
			t.Errorf("%d worlds, and the workers say that they work in %v, want [1 1]", c.world, c.works)
		}
	})
}
