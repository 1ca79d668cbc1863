package membership

import (
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// An order to flush holds for the model generation in which it came, whether or not the worker was
// in the first world of the next generation.
func TestFlushOfAnotherModel(t *testing.T) {
	m := New(nil, rpc.NewSelf(identity.Header{Role: pod.Worker, Life: 1}, nil))
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
			m.Hear(t.Context(), &wire.Assembly{Word: &wire.Assembly_Flush{Flush: c.order}})
		} else {
			m.Hear(t.Context(), &wire.Assembly{
				Word: &wire.Assembly_World{World: &wire.World{Life: c.life, Sources: c.sources}}})
		}
		if _, flush := m.Heard(0); flush != c.want {
			t.Errorf("after %+v the flush is %d", c, flush)
		}
	}
}

// A worker that is given a world leaves the older one, in which it may be waiting for a worker that
// has left.
func TestWorldEndsTheOneBefore(t *testing.T) {
	m := New(nil, rpc.NewSelf(identity.Header{Role: pod.Worker, Life: 1}, nil))
	world := func(formation int64) World {
		m.Hear(t.Context(), &wire.Assembly{Word: &wire.Assembly_World{World: &wire.World{Formation: formation}}})
		return <-m.worlds
	}
	first := world(1)
	second := world(2)
	if first.ctx.Err() == nil || second.ctx.Err() != nil {
		t.Errorf("the first world: %v, the second: %v", first.ctx.Err(), second.ctx.Err())
	}
}
