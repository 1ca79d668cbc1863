package nn

import (
	"sync"
	"sync/atomic"
)

// parts is the number of stretches into which a batch is cut, for any number of threads: sums over
// the batch are sums over parts, folded in order.
const parts = 8

// team is the threads of a tape: the caller's, and helpers, which sleep between pieces of teamwork.
type team struct {
	work   func(worker, piece int)
	pieces int
	next   atomic.Int32
	wake   []chan struct{} // one for each helper
	busy   sync.WaitGroup
}

func newTeam(threads int, work func(worker, piece int)) *team {
	t := &team{work: work}
	for worker := 1; worker < min(threads, parts); worker++ {
		wake := make(chan struct{}, 1)
		t.wake = append(t.wake, wake)
		go func() {
			for range wake {
				t.drain(worker)
				t.busy.Done()
			}
		}()
	}
	return t
}

// runPieces does every piece once and returns when all are done.
func (t *team) runPieces(pieces int) {
	t.pieces = pieces
	t.next.Store(0)
	t.busy.Add(len(t.wake))
	for _, wake := range t.wake {
		wake <- struct{}{}
	}
	t.drain(0)
	t.busy.Wait()
}

func (t *team) drain(worker int) {
	for {
		piece := int(t.next.Add(1)) - 1
		if piece >= t.pieces {
			return
		}
		t.work(worker, piece)
	}
}

func (t *team) size() int { return len(t.wake) + 1 }

func (t *team) close() {
	for _, wake := range t.wake {
		close(wake)
	}
}
