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
	m := New(nil, rpc.NewSelf(identity.Header{Role: pod.Worker, ModelGeneration: 1}, nil))
	for _, c := range []struct {
		modelGeneration, order int64
		sources                []int32
		want                   int64
	}{
		{modelGeneration: 1},
		{modelGeneration: 1, order: 1, want: 1},
		{modelGeneration: 1, sources: []int32{0}, want: 1},
		{modelGeneration: 2, sources: []int32{0}},
		{modelGeneration: 2, order: 2, want: 2},
		{modelGeneration: 3},
	} {
		if c.order > 0 {
			m.Hear(t.Context(), &wire.Assembly{Word: &wire.Assembly_Flush{Flush: c.order}})
		} else {
			m.Hear(t.Context(), &wire.Assembly{
				Word: &wire.Assembly_World{World: &wire.World{ModelGeneration: c.modelGeneration, Sources: c.sources}}})
		}
		if _, flush := m.Heard(0); flush != c.want {
			t.Errorf("after %+v the flush is %d", c, flush)
		}
	}
}

// A worker that is given a world leaves the older one, in which it may be waiting for a worker that
// has left.
func TestWorldEndsTheOneBefore(t *testing.T) {
	m := New(nil, rpc.NewSelf(identity.Header{Role: pod.Worker, ModelGeneration: 1}, nil))
	world := func(generation int64) World {
		m.Hear(t.Context(), &wire.Assembly{Word: &wire.Assembly_World{World: &wire.World{Generation: generation}}})
		return <-m.worlds
	}
	first := world(1)
	second := world(2)
	if first.ctx.Err() == nil || second.ctx.Err() != nil {
		t.Errorf("the first world: %v, the second: %v", first.ctx.Err(), second.ctx.Err())
	}
}
