package ring

import (
	"fmt"
	"math/bits"
)

// A bucket has an eighth of all numbers, so that most of them are being sent before the last are
// computed, within bounds: smaller buckets wait longer than they send, and larger ones are not sent
// faster. These are the bounds for few ranks.
const (
	leastBucket = 64 << 10
	mostBucket  = 256 << 10
)

// bounds returns the bounds of a bucket. More than few ranks wait 2*log2(size) times for a bucket
// of any length. The bounds grow with that, so that the sending takes longer than the waiting.
func bounds(size int) (least, most int) {
	if size <= few {
		return leastBucket, mostBucket
	}
	rounds := bits.Len(uint(size - 1))
	return leastBucket * rounds, mostBucket * rounds
}

// Buckets cuts numbers into stretches, and returns them one by one as they become final: from the
// end of those that the backward pass computes to their beginning, then the others. The stretches
// and their order depend only on the numbers of elements and ranks, so every rank reduces the same
// stretch at the same turn.
type Buckets struct {
	cuts  []bucket
	early int
	// number of elements; index of the next bucket to return
	n, next int
	trained int
	// number of ranks for which the buckets are cut
	size int
}

// bucket is the stretch [lo, hi), of which missing numbers are not final yet.
type bucket struct{ lo, hi, missing int }

// NewBuckets returns buckets of n numbers for one rank, which has the most buckets, with nothing
// final. The numbers from trained on may become final at any time.
func NewBuckets(n, trained int) *Buckets {
	b := &Buckets{n: n, trained: trained}
	b.Reset(1)
	return b
}

// cut adds the buckets of [from, to), from its end; the first of them is the longest.
func (b *Buckets) cut(from, to int) {
	least, most := bounds(b.size)
	size := min(max((to-from)/8, least), most)
	for hi := to; hi > from; {
		lo := from + max((hi-from)/size-1, 0)*size
		b.cuts = append(b.cuts, bucket{lo: lo, hi: hi})
		hi = lo
	}
}

// Len returns the number of buckets.
func (b *Buckets) Len() int { return len(b.cuts) }

// Early returns how many of them may be returned before the backward pass has ended.
func (b *Buckets) Early() int { return b.early }

// Reset marks nothing as final, and cuts the buckets for a world of size ranks.
func (b *Buckets) Reset(size int) {
	if size != b.size {
		b.size, b.cuts = size, nil
		b.cut(0, b.trained)
		b.early = max(0, len(b.cuts)-1)
		b.cut(b.trained, b.n)
	}
	for i := range b.cuts {
		b.cuts[i].missing = b.cuts[i].hi - b.cuts[i].lo
	}
	b.next = 0
}

// Final marks [lo, hi) as final. No number may be marked twice.
func (b *Buckets) Final(lo, hi int) {
	if lo < 0 || hi < lo || hi > b.n {
		panic(fmt.Sprintf("ring.Buckets: [%d, %d) of %d", lo, hi, b.n))
	}
	for i := range b.cuts {
		c := &b.cuts[i]
		c.missing -= max(0, min(hi, c.hi)-max(lo, c.lo))
		if c.missing < 0 {
			panic(fmt.Sprintf("ring.Buckets: [%d, %d) is final twice", lo, hi))
		}
	}
}

// Next returns the next bucket, if all of it is final.
func (b *Buckets) Next() (lo, hi int, ok bool) {
	if b.Done() || b.cuts[b.next].missing > 0 {
		return 0, 0, false
	}
	c := b.cuts[b.next]
	b.next++
	return c.lo, c.hi, true
}

// Done reports whether Next has returned all buckets.
func (b *Buckets) Done() bool { return b.next == len(b.cuts) }
