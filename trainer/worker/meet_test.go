package worker

import (
	"testing"

	"github.com/elasticdl/elasticdl/trainer/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// An order to flush is of the model that was trained when it came.
func TestFlushOfAnotherModel(t *testing.T) {
	m := newMeeting(nil, self(pod.Worker))
	world := func(formation int64, sources ...int32) {
		m.hear(t.Context(), &wire.Assembly{Word: &wire.Assembly_World{World: &wire.World{Formation: formation, Sources: sources}}})
	}
	flush := func(number int64) {
		m.hear(t.Context(), &wire.Assembly{Word: &wire.Assembly_Flush{Flush: number}})
	}
	wants := func(formation, want int64) {
		t.Helper()
		if _, flush := m.heard(formation); flush != want {
			t.Errorf("in world %d the flush is %d, want %d", formation, flush, want)
		}
	}
	flush(1)
	world(2, 0)
	wants(2, 1)
	world(3)
	wants(3, 0)
	flush(2)
	wants(3, 2)
}

// Who is given a world is in no older one: it may wait there for somebody who has left.
func TestWorldEndsTheOneBefore(t *testing.T) {
	m := newMeeting(nil, self(pod.Worker))
	world := func(formation int64) place {
		m.hear(t.Context(), &wire.Assembly{Word: &wire.Assembly_World{World: &wire.World{Formation: formation}}})
		return <-m.worlds
	}
	first := world(1)
	second := world(2)
	if first.ctx.Err() == nil || second.ctx.Err() != nil {
		t.Errorf("the first world: %v, the second: %v", first.ctx.Err(), second.ctx.Err())
	}
}
