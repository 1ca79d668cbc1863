package ring

import (
	"fmt"
	"math"
	"sync"
	"testing"
)

// hop is the latency of a message, in seconds. bandwidth is the number of bytes that a network card
// sends, and receives, in a second.
const (
	hop       = 50e-6
	bandwidth = 10e9 / 8
)

// model is a network in virtual time. Each rank has its own clock, so that the result does not
// depend on the scheduling of goroutines.
type model map[[2]int]*modelPipe

// modelPipe has the messages of one rank to another.
type modelPipe struct {
	mu      sync.Mutex
	changed *sync.Cond
	// messages that are not received yet
	arrived []message
	// time at which each message was received
	taken []float64
	// bytes of the first message of arrived that are received already
	part int
}

type message struct {
	bytes int
	at    float64
}

// modelRank is the link of one rank.
type modelRank struct {
	model
	rank int
	now  float64
	// time at which the network card is free again
	sent, received float64
}

func (r *modelRank) Send(to int, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	p := r.model[[2]int{r.rank, to}]
	p.mu.Lock()
	defer p.mu.Unlock()
	sent := func() int { return len(p.taken) + len(p.arrived) }
	for sent() >= len(p.taken)+Ahead {
		p.changed.Wait()
	}
	if i := sent() - Ahead; i >= 0 {
		r.now = max(r.now, p.taken[i])
	}
	r.sent = max(r.sent, r.now) + float64(len(b))/bandwidth
	p.arrived = append(p.arrived, message{len(b), r.sent + hop})
	p.changed.Broadcast()
	return nil
}

func (r *modelRank) Recv(from int, b []byte) error {
	p := r.model[[2]int{from, r.rank}]
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := len(b); n > 0; {
		for len(p.arrived) == 0 {
			p.changed.Wait()
		}
		m := p.arrived[0]
		take := min(n, m.bytes-p.part)
		n -= take
		p.part += take
		r.received = max(r.received+float64(take)/bandwidth, m.at)
		r.now = max(r.now, r.received)
		if p.part == m.bytes {
			p.arrived, p.part = p.arrived[1:], 0
			p.taken = append(p.taken, r.now)
			p.changed.Broadcast()
		}
	}
	return nil
}

func (r *modelRank) Flush() error { return nil }

// modelled returns the seconds until size ranks have summed n numbers, bucket by bucket.
func modelled(t *testing.T, size, n int) float64 {
	m := make(model)
	for from := range size {
		for _, to := range Peers(from, size) {
			p := new(modelPipe)
			p.changed = sync.NewCond(&p.mu)
			m[[2]int{from, to}] = p
		}
	}
	ranks := make([]*modelRank, size)
	var all sync.WaitGroup
	for i := range ranks {
		ranks[i] = &modelRank{model: m, rank: i}
		all.Go(func() {
			data, scratch := make([]float32, n), make([]float32, ScratchSize)
			b := NewBuckets(n, n)
			b.Reset(size)
			b.Final(0, n)
			for lo, hi, ok := b.Next(); ok; lo, hi, ok = b.Next() {
				if err := Reduce(ranks[i], i, size, data[lo:hi], scratch); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	last := 0.0
	for _, r := range ranks {
		last = max(last, r.now)
	}
	return last
}

// TestManyRanks checks that the time of a sum over many ranks is near to the least possible.
func TestManyRanks(t *testing.T) {
	for _, c := range []struct {
		size, n int
		// greatest time, as a multiple of the least possible
		most float64
	}{
		{2, 1_000_000, 1.3}, {4, 1_000_000, 1.6}, {8, 2_000_000, 1.4}, {32, 2_000_000, 1.4},
	} {
		t.Run(fmt.Sprintf("%d ranks, %d numbers", c.size, c.n), func(t *testing.T) {
			// Each rank sends each number twice, except those of its own part.
			least := 2 * float64(c.size-1) / float64(c.size) * 4 * float64(c.n) / bandwidth
			if got := modelled(t, c.size, c.n); got > c.most*least {
				t.Errorf("takes %.2g s, %.2f times the least, at most %.2f", got, got/least, c.most)
			} else {
				t.Logf("takes %.2g s, %.2f times the least", got, got/least)
			}
		})
	}
	// A few numbers of many ranks are gathered, which waits as often as the logarithm of the ranks,
	// not as often as their number.
	const size, n = 100, 200
	waits := math.Ceil(math.Log2(size))
	if got := modelled(t, size, n); got > 2*(waits*hop+4*size*n/bandwidth) {
		t.Errorf("%d numbers of %d ranks take %.2g s, which is %.0f waits, expected %.0f", n, size, got, got/hop, waits)
	}
}
