package worker

import (
	"testing"

	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

// A worker that is given a world without a state drops its own state, even if that world comes to
// nothing.
func TestStateOfALostModelIsVoid(t *testing.T) {
	for _, c := range []struct {
		name    string
		changes int64
		base    *wire.Base
		want    int64
	}{
		{"a model that is lost", 17, nil, -1},
		{"a model that is lost, and a checkpoint", 17, &wire.Base{Number: 3}, -1},
		{"the initial values", 0, nil, 0},
		{"nothing", -1, nil, -1},
	} {
		r := &member{worker: &worker{}}
		r.changes = c.changes
		r.live(membership.Of(t.Context(),
			&wire.World{Id: 1, Formation: 2, Members: []*wire.Member{{Worker: 5}}, Base: c.base}))
		if r.changes != c.want {
			t.Errorf("%s: round %d, want %d", c.name, r.changes, c.want)
		}
	}
}
