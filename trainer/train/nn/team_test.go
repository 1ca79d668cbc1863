package nn

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestTeam checks that a team does every piece once before runPieces returns, whether its helpers
// sleep or not, and that close ends them.
func TestTeam(t *testing.T) {
	for threads := range parts + 2 {
		synctest.Test(t, func(t *testing.T) {
			var done [parts]atomic.Int32
			team := newTeam(threads, func(_, piece int) {
				runtime.Gosched() // so that helpers get pieces, too
				done[piece].Add(1)
			})
			defer team.close()
			for call := range 1000 {
				if call%100 == 0 {
					synctest.Wait() // until all helpers sleep
				}
				pieces := 1 + call%parts
				team.runPieces(pieces)
				for i := range done {
					want := int32(0)
					if i < pieces {
						want = 1
					}
					if n := done[i].Swap(0); n != want {
						t.Fatalf("%d threads, call %d: piece %d of %d is done %d times", threads, call, i, pieces, n)
					}
				}
			}
		})
	}
}
