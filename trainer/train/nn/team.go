package nn

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/elasticdl/elasticdl/trainer/train/nn/kernel"
)

// parts is the number of stretches into which a batch is cut, for any number of threads: sums over
// the batch are sums over parts, folded in order.
const parts = 8

// team is the threads of a tape: the caller's, and helpers. Both look for a while whether there is
// something to do before they sleep, because to wake a thread takes as long as a small piece of
// work. The caller waits for pieces, not for helpers: one that wakes late finds nothing to do.
type team struct {
	work   func(worker, piece int)
	pieces int
	// pieces that are claimed, of how many, and a count of the calls of runPieces, so that a late
	// helper cannot claim a piece of the next call: see [unclaimed]
	claims atomic.Uint64
	done   atomic.Int32
	ended  atomic.Bool
	caller *sleeper
	// one for each helper
	helpers []*sleeper
}

func newTeam(threads int, work func(worker, piece int)) *team {
	t := &team{work: work, caller: newSleeper()}
	for worker := 1; worker < min(threads, parts); worker++ {
		s := newSleeper()
		t.helpers = append(t.helpers, s)
		go t.help(worker, s)
	}
	return t
}

// help does pieces until the team is closed.
func (t *team) help(worker int, s *sleeper) {
	for !t.ended.Load() {
		t.drain(worker)
		s.await(func() bool { return t.open() || t.ended.Load() })
	}
}

// runPieces does every piece once and returns when all are done.
func (t *team) runPieces(pieces int) {
	t.pieces = pieces
	t.done.Store(0)
	call := t.claims.Load()>>32 + 1
	t.claims.Store(call<<32 | uint64(pieces)<<16)
	for _, h := range t.helpers {
		h.wake()
	}
	t.drain(0)
	t.caller.await(t.finished)
}

// unclaimed returns the next piece that nobody has claimed, if there is one. Claims hold the number
// of the call in their high half, then 16 bits for the number of pieces and 16 for that of the
// claimed ones.
func unclaimed(claims uint64) (piece int, ok bool) {
	piece = int(claims & 0xffff)
	return piece, piece < int(claims>>16&0xffff)
}

// open reports whether there are pieces to do.
func (t *team) open() bool {
	_, ok := unclaimed(t.claims.Load())
	return ok
}

func (t *team) finished() bool { return int(t.done.Load()) == t.pieces }

// drain does pieces until all are claimed.
func (t *team) drain(worker int) {
	for {
		claims := t.claims.Load()
		piece, ok := unclaimed(claims)
		if !ok {
			return
		}
		if t.claims.CompareAndSwap(claims, claims+1) {
			// pieces is stable until this one is done
			pieces := t.pieces
			t.work(worker, piece)
			if int(t.done.Add(1)) == pieces && worker > 0 {
				t.caller.wake()
			}
		}
	}
}

func (t *team) size() int { return len(t.helpers) + 1 }

// close ends the helpers.
func (t *team) close() {
	t.ended.Store(true)
	for _, h := range t.helpers {
		h.wake()
	}
}

// sleeper is a goroutine that waits for a condition. It looks for it before it sleeps. If the
// condition held soon, it looks twice as often the next time, even if it slept: it would have been
// faster awake. If not, it looks a quarter as often: when processors are short, a thread that looks
// may keep the one for which it waits from running.
type sleeper struct {
	looks  int
	asleep atomic.Bool
	woken  chan time.Time
}

const (
	// time after which a sleeper should not have been awake
	soon = 100 * time.Microsecond
	// looks that take about as long
	mostLooks = 1 << 12
	// Looks before other goroutines may run. After every look would be too often: it can wake a
	// thread of the Go runtime.
	looksInTurn = 1 << 9
)

func newSleeper() *sleeper { return &sleeper{looks: mostLooks, woken: make(chan time.Time, 1)} }

// await returns when the condition holds. The goroutine that makes it hold calls wake afterwards.
func (s *sleeper) await(condition func() bool) {
	began := time.Now()
	for look := range s.looks {
		if condition() {
			s.looks = min(2*s.looks, mostLooks)
			return
		}
		if look%looksInTurn == looksInTurn-1 {
			runtime.Gosched()
		} else {
			kernel.Pause()
		}
	}
	held := began.Add(soon)
	for {
		s.asleep.Store(true)
		if condition() && s.asleep.CompareAndSwap(true, false) {
			break
		}
		held = <-s.woken
		if condition() {
			break
		}
	}
	if held.Sub(began) < soon {
		s.looks = min(2*s.looks, mostLooks)
	} else {
		s.looks = max(s.looks/4, 1)
	}
}

// wake wakes the goroutine if it sleeps.
func (s *sleeper) wake() {
	if s.asleep.CompareAndSwap(true, false) {
		s.woken <- time.Now()
	}
}
