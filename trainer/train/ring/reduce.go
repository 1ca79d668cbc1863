package ring

import (
	"fmt"

	"github.com/elasticdl/elasticdl/trainer/train/nn/kernel"
)

const (
	// segment is the most numbers that each of more than few ranks sends at a time.
	segment = 16 << 10
	// chunk is the number of numbers that each of few ranks sums up at a time. A rank is woken up
	// for each, and each is a write and some packets. With smaller chunks that takes longer than
	// to fetch the numbers of larger ones from the third-level cache.
	chunk = 128 << 10
	// few is up to how many ranks exchange chunks with all others: they wait for one another twice
	// in a group, and not 2*log2(size) times. Each of them is a peer of all others.
	few = 5
	// small is up to how many numbers, of all ranks together, are gathered on each. More than few
	// ranks gather more: they wait for one another half as often as [reduceMany] does.
	small     = 16 << 10
	moreSmall = 64 << 10

	// ScratchSize is the number of numbers that the scratch of [Reduce] has.
	ScratchSize = max(segment, chunk, small, moreSmall)
)

// Reduce makes data, as long on every rank, the sum over all ranks. scratch has ScratchSize
// elements at least.
func Reduce(l Link, rank, size int, data, scratch []float32) error {
	if len(scratch) < ScratchSize {
		panic(fmt.Sprintf("ring.Reduce: scratch of %d elements, needs %d", len(scratch), ScratchSize))
	}
	var err error
	switch {
	case size == 1 || len(data) == 0:
		return nil
	case size*len(data) <= small, size > few && size*len(data) <= moreSmall:
		err = reduceSmall(l, rank, size, data, scratch)
	case size <= few:
		err = reduceFew(l, rank, size, data, scratch)
	default:
		err = reduceMany(l, rank, size, data, scratch)
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

// reduceFew goes through data in groups, of which each rank sums up one chunk: it sends the others
// theirs, receives its own from them, adds them up, and sends the sum back. In turn g it sends of
// group g+1, sums up in g, and receives the sums of g-1, so that what it receives was mostly sent
// before.
//
// Nobody waits in a circle: who has come least far waits neither to receive, since the others are
// past sending it, nor to send, since what was sent to another Ahead before is of a part that the
// other is past receiving. A chunk that was sent is changed when the sum of it is received: the
// other has it.
func reduceFew(l Link, rank, size int, data, scratch []float32) error {
	group := size * chunk
	piece := func(g, owner int) []float32 {
		all := data[min(max(g*group, 0), len(data)):min(max((g+1)*group, 0), len(data))]
		lo, hi := part(len(all), size, owner%size)
		return all[lo:hi]
	}
	for g := -1; (g-1)*group < len(data); g++ {
		for d := 1; d < size; d++ {
			to := rank + d
			if err := l.Send(to%size, raw(piece(g+1, to))); err != nil {
				return err
			}
		}
		mine := piece(g, rank)
		for d := 1; d < size; d++ {
			theirs := scratch[:len(mine)]
			if err := l.Recv((rank+size-d)%size, raw(theirs)); err != nil {
				return err
			}
			kernel.Add(mine, theirs)
		}
		for d := 1; d < size; d++ {
			if err := l.Send((rank+d)%size, raw(mine)); err != nil {
				return err
			}
		}
		for d := 1; d < size; d++ {
			from := rank + size - d
			if err := l.Recv(from%size, raw(piece(g-1, from))); err != nil {
				return err
			}
		}
	}
	return nil
}

// part returns the i-th of k nearly equal parts of n.
func part(n, k, i int) (lo, hi int) { return n * i / k, n * (i + 1) / k }
