package ring

import (
	"fmt"

	"github.com/elasticdl/elasticdl/trainer/nn/kernel"
)

const (
	// segment is how many numbers are sent at a time.
	segment = 32 << 10
	// segments is how many of them a rank's chunk of a group has.
	segments = 4
	// lead is by how many segments a rank's sending is ahead of its receiving: less than segments, since
	// a segment is passed on that many later.
	lead = 2
	// small is up to how many numbers, of all ranks together, are gathered on each.
	small = 16 << 10

	// ScratchSize is how many numbers the scratch of [Reduce] has.
	ScratchSize = max(segment, small)
)

// Reduce makes data, as long on every rank, the sum over all ranks. scratch has ScratchSize elements at least.
func Reduce(l Link, rank, size int, data, scratch []float32) error {
	if len(scratch) < ScratchSize {
		panic(fmt.Sprintf("ring.Reduce: scratch of %d elements, needs %d", len(scratch), ScratchSize))
	}
	var err error
	switch {
	case size == 1 || len(data) == 0:
		return nil
	case size*len(data) <= small:
		err = reduceSmall(l, rank, size, data, scratch)
	default:
		err = reduceRing(l, rank, size, data, scratch)
	}
	if err != nil {
		return err
	}
	return l.Flush()
}

// reduceSmall gathers all ranks' numbers and adds them up in the order of ranks.
func reduceSmall(l Link, rank, size int, data, scratch []float32) error {
	n := len(data)
	copy(scratch, data) // block i is of rank+i
	for d := 1; d < size; d *= 2 {
		blocks := min(d, size-d)
		if err := l.Send((rank-d+size)%size, raw(scratch[:blocks*n])); err != nil {
			return err
		}
		if err := l.Recv((rank+d)%size, raw(scratch[d*n:][:blocks*n])); err != nil {
			return err
		}
	}
	clear(data)
	for r := range size {
		block := (r - rank + size) % size
		kernel.Add(data, scratch[block*n:][:n])
	}
	return nil
}

// reduceRing goes through data in groups of size chunks, each of some segments. In
// size-1 rounds a rank receives a segment of a chunk, adds its own, and passes the sum on; in as many
// more it receives sums that are complete, and passes them on. A chunk's sum begins at the rank of
// its number and ends at the one before. A rank changes what it sent when it receives the sum of
// it, Ahead sends later at least.
//
// Nobody waits in a circle: a rank that waits to send waits for its neighbour to receive what it sent
// segments before, so that one is behind it by segments-lead at least, and so on round the ring.
func reduceRing(l Link, rank, size int, data, scratch []float32) error {
	p := plan{rank: rank, size: size, n: len(data)}
	next, prev := (rank+1)%size, (rank-1+size)%size
	total := p.blocks()
	for t := -lead; t < total; t++ {
		if s := t + lead; s < total {
			_, lo, hi := p.block(s, 0)
			if err := l.Send(next, raw(data[lo:hi])); err != nil {
				return err
			}
		}
		if t < 0 {
			continue
		}
		round, lo, hi := p.block(t, 1)
		mine := data[lo:hi]
		into := mine
		if round < size-1 {
			into = scratch[:len(mine)]
		}
		if err := l.Recv(prev, raw(into)); err != nil {
			return err
		}
		if round < size-1 {
			kernel.Add(mine, into)
		}
	}
	return nil
}

// plan is in which order a rank sends and receives the blocks of n numbers.
type plan struct{ rank, size, n int }

const group = segment * segments // of one chunk

// blocks is how many there are to send, and to receive. Some of the last may be empty.
func (p plan) blocks() int {
	groups := (p.n + p.size*group - 1) / (p.size * group)
	return groups * p.rounds() * segments
}

func (p plan) rounds() int { return 2 * (p.size - 1) }

// block is the t-th to be sent, if back is 0, or to be received, if back is 1: which round it is of, and [lo, hi).
func (p plan) block(t, back int) (round, lo, hi int) {
	s := t % segments
	t /= segments
	round = t % p.rounds()
	from := t / p.rounds() * p.size * group
	n := min(p.size*group, p.n-from)
	chunk := ((p.rank-round-back)%p.size + 2*p.size) % p.size
	lo, hi = part(n, p.size, chunk)
	a, b := part(hi-lo, segments, s)
	return round, from + lo + a, from + lo + b
}

// part is the i-th of k nearly equal parts of n.
func part(n, k, i int) (lo, hi int) { return n * i / k, n * (i + 1) / k }
