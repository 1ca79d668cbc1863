package worker

import (
	"slices"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// An order to flush holds for the life of the model in which it came, whether or not the worker was in the first world of the next life.
func TestFlushOfAnotherModel(t *testing.T) {
	m := newMeeting(nil, self(pod.Worker))
	for _, c := range []struct {
		life, order int64
		sources     []int32
		want        int64
	}{
		{life: 1},
		{life: 1, order: 1, want: 1},
		{life: 1, sources: []int32{0}, want: 1},
		{life: 2, sources: []int32{0}},
		{life: 2, order: 2, want: 2},
		{life: 3},
	} {
		if c.order > 0 {
			m.hear(t.Context(), &wire.Assembly{Word: &wire.Assembly_Flush{Flush: c.order}})
		} else {
			m.hear(t.Context(), &wire.Assembly{Word: &wire.Assembly_World{World: &wire.World{Life: c.life, Sources: c.sources}}})
		}
		if _, flush := m.heard(0); flush != c.want {
			t.Errorf("after %+v the flush is %d", c, flush)
		}
	}
}

// A worker that is given a world leaves the older one, in which it may be waiting for a worker that has left.
func TestWorldEndsTheOneBefore(t *testing.T) {
	m := newMeeting(nil, self(pod.Worker))
	world := func(formation int64) membership {
		m.hear(t.Context(), &wire.Assembly{Word: &wire.Assembly_World{World: &wire.World{Formation: formation}}})
		return <-m.worlds
	}
	first := world(1)
	second := world(2)
	if first.ctx.Err() == nil || second.ctx.Err() != nil {
		t.Errorf("the first world: %v, the second: %v", first.ctx.Err(), second.ctx.Err())
	}
}

// A world outlives the streams of its members: they continue in it, and report so on the next stream.
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
