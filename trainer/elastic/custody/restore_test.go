package custody

import (
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
)

// The first life that begins after a master has come back is later than any that may have begun
// before.
func TestNoLifeBeginsTwice(t *testing.T) {
	ring := RestoreRing(2, 7, rendezvous.World{Formation: 1}, SavedRing{})
	if ring.Life() != 2 || ring.Lives() != 7 {
		t.Fatal("the life does not go on", ring.Life(), ring.Lives())
	}
	if ring.Lost(true, 0); ring.Life() != 8 || ring.Lives() != 8 {
		t.Errorf("life %d of a ring begins after up to 7 others", ring.Life())
	}
	for holds, want := range map[int64]int64{0: 8, 2: 8, 9: 10} {
		servers := NewServers(1)
		servers.Recover(2, 7, Base{})
		servers.Join(0, 1, 1, "a", holds)
		goes := servers.Recovered(0, Base{})
		if goes != (holds == 2) || !goes && servers.Life() != want {
			t.Errorf("life %d begins, or goes on: %v, with a server that has values of life %d",
				servers.Life(), goes, holds)
		}
		if goes {
			if servers.Leave(0, 1); servers.Life() != want {
				t.Errorf("life %d of servers begins after up to 7 others", servers.Life())
			}
		}
	}
}
