package master

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
)

// The time of a recovery runs from the first loss to the first progress with what replaces all that
// was lost: in a ring the next world, after the loss of a server the next model generation.
func TestRecovery(t *testing.T) {
	ring := func(version int64) progressed { return progressed{version: version, world: true} }
	servers := func(version int64) progressed { return progressed{version: version} }
	both := WorldFormed{World: rendezvous.World{Members: []rendezvous.Member{{Worker: 0}, {Worker: 1}}}}
	one := WorldFormed{World: rendezvous.World{Members: []rendezvous.Member{{Worker: 0}}}}
	for _, c := range []struct {
		name string
		// each a second after the one before: an event, or progress
		steps []any
		want  string // seconds of the recoveries
	}{
		{"nothing lost", []any{servers(1), servers(2), RolledBack{}, servers(1)}, ""},
		{"worker of servers", []any{servers(1), PodEnded{ID: worker(0)}, servers(1), servers(2), servers(3)}, "2"},
		{"server", []any{servers(9), PodEnded{ID: ps(0)}, servers(10), RolledBack{}, servers(4), servers(5)}, "4"},
		{"ring", []any{ring(3), PodEnded{ID: worker(0)}, ring(4), WorldFormed{}, ring(4), ring(5)}, "4"},
		{"two losses, one recovery", []any{ring(3), PodEnded{ID: worker(0)}, both, PodEnded{ID: worker(1)},
			ring(4), WorldFormed{}, ring(5)}, "5"},
		{"program that says nothing of itself", []any{ring(0), ProgramFailed{}, WorldFormed{}, ring(0),
			progressed{world: true, worked: true}}, "3"},
		{"master", []any{MasterReplaced{}, progressed{unknown: true}, ring(7), ring(7), ring(8)}, "4"},
		{"server without a rollback", []any{servers(0), PodEnded{ID: ps(0)}, servers(0), PodJoined{ID: ps(0)},
			servers(0), servers(1)}, "4"},
		{"worker that never worked", []any{ring(3), PodEnded{ID: worker(7)}, ring(4), both, ring(5)}, ""},
		{"worker that left the world before", []any{both, ring(3),
			one, PodEnded{ID: worker(1)}, ring(4), both, ring(5)}, ""},
		{"planned change of the master", []any{ring(0), MasterReplaced{Planned: true}, ring(1)}, ""},
		{"suspended meanwhile", []any{ring(3), PodEnded{ID: worker(0)}, Suspended{}, ring(4)}, ""},
	} {
		var r recovery
		for _, id := range []pod.ID{worker(0), worker(1), ps(0)} {
			r.hold(id)
		}
		var got []string
		now := time.UnixMilli(0)
		for _, step := range c.steps {
			now = now.Add(time.Second)
			switch step := step.(type) {
			case Event:
				r.hear(step, now)
			case progressed:
				if took, ok := r.progress(step, now); ok {
					got = append(got, fmt.Sprint(took.Seconds()))
				}
			}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: recovered after %q s, want %q", c.name, text, c.want)
		}
	}
}
