package nn

import (
	"math/bits"
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
	// A bit for each piece that nobody has claimed. The high half counts the calls of runPieces, so
	// that a late helper cannot claim a piece of the next call.
	unclaimed atomic.Uint64
	done      atomic.Int32
	ended     atomic.Bool
	caller    *sleeper
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
	call := t.unclaimed.Load()>>32 + 1
	t.unclaimed.Store(call<<32 | 1<<pieces - 1)
	for _, h := range t.helpers {
		h.wake()
	}
	t.drain(0)
	t.caller.await(t.finished)
}

// open reports whether there are pieces to claim.
func (t *team) open() bool { return uint32(t.unclaimed.Load()) != 0 }

func (t *team) finished() bool { return int(t.done.Load()) == t.pieces }

// drain does pieces until all are claimed. Each worker begins with pieces of its own, whose data
// may be in the cache of its processor since the call before.
func (t *team) drain(worker int) {
	for {
		unclaimed := t.unclaimed.Load()
		if uint32(unclaimed) == 0 {
			return
		}
		own := worker * bits.Len32(uint32(unclaimed)) / t.size()
		piece := bits.TrailingZeros32(uint32(unclaimed) >> own << own)
		if t.unclaimed.CompareAndSwap(unclaimed, unclaimed&^(1<<piece)) {
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
