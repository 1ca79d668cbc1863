package worker

import (
	"testing"

	"github.com/elasticdl/elasticdl/trainer/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// An order to flush is of the model that was trained when it came, whether or not the worker was in the first world with the next one.
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
