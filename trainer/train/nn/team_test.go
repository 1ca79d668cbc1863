package nn

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestSleeper checks that a sleeper looks longer after short waits, in which it slept or not, and
// less long after long ones.
func TestSleeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSleeper()
		for _, c := range []struct {
			lasts       time.Duration
			looks, next int
		}{
			{0, 8, 16},
			{soon / 2, 8, 16},
			{soon / 2, mostLooks, mostLooks},
			{2 * soon, 8, 2},
			{2 * soon, 2, 1},
		} {
			s.looks = c.looks
			var held atomic.Bool
			if c.lasts == 0 {
				held.Store(true)
			}
			time.AfterFunc(c.lasts, func() {
				held.Store(true)
				s.wake()
			})
			s.await(held.Load)
			synctest.Wait()
			if s.looks != c.next {
				t.Errorf("after a wait of %s with %d looks: %d, want %d", c.lasts, c.looks, s.looks, c.next)
			}
		}
	})
}

// TestTeamOwnPieces checks that threads that begin at the same time begin with pieces of their own.
func TestTeamOwnPieces(t *testing.T) {
	const threads = 3
	var first [threads]atomic.Int32 // 1 + piece
	var begun sync.WaitGroup
	begun.Add(threads)
	team := newTeam(threads, func(worker, piece int) {
		if first[worker].CompareAndSwap(0, int32(1+piece)) {
			begun.Done()
			begun.Wait()
		}
	})
	defer team.close()
	team.runPieces(parts)
	for worker := range first {
		if piece, own := int(first[worker].Load()-1), worker*parts/threads; piece != own {
			t.Errorf("thread %d of %d begins with piece %d of %d: want %d", worker, threads, piece, parts, own)
		}
	}
}

// TestParallel checks that ranges cover all elements once, and are those of one thread.
func TestParallel(t *testing.T) {
	for _, n := range []int{0, 1, 16, 100, 1000, 1 << 20} {
		var alone [][2]int
		for threads := 1; threads <= parts+1; threads++ {
			tape := NewTape(&Params{}, threads, 1)
			defer tape.Close()
			var mu sync.Mutex
			var ranges [][2]int
			tape.Parallel(n, func(lo, hi int) {
				mu.Lock()
				defer mu.Unlock()
				ranges = append(ranges, [2]int{lo, hi})
			})
			slices.SortFunc(ranges, func(a, b [2]int) int { return a[0] - b[0] })
			end := 0
			for _, r := range ranges {
				if r[0] != end || r[1] <= r[0] {
					t.Fatalf("%d threads: [0, %d) is cut into %v", threads, n, ranges)
				}
				end = r[1]
			}
			if threads == 1 {
				alone = ranges
			}
			if end != n || !slices.Equal(ranges, alone) {
				t.Fatalf("%d threads: [0, %d) is cut into %v, by one thread into %v", threads, n, ranges, alone)
			}
		}
	}
}

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
