package worker

import (
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

// A worker that is given a world without a state drops its own state, even if that world comes to
// nothing.
func TestStateOfALostModelIsVoid(t *testing.T) {
	for _, c := range []struct {
		name string
		at   rendezvous.Position
		base *wire.Base
		want rendezvous.Position
	}{
		{"a model that is lost", rendezvous.Position{Beginning: 1, Round: 17}, nil, rendezvous.NoState},
		{"a model that is lost, and a checkpoint", rendezvous.Position{Beginning: 1},
			&wire.Base{Number: 3}, rendezvous.NoState},
		{"the initial values", rendezvous.Position{}, nil, rendezvous.Position{}},
		{"nothing", rendezvous.NoState, nil, rendezvous.NoState},
	} {
		r := &member{worker: &worker{}}
		r.at = c.at
		r.live(membership.Of(t.Context(),
			&wire.World{Id: 1, Generation: 2, Members: []*wire.Member{{Worker: 5}}, Base: c.base}))
		if r.at != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, r.at, c.want)
		}
	}
}
