package ring

import "fmt"

// A bucket has an eighth of all numbers, so that most of them are on their way before the last are computed, within
// bounds: of less the waiting costs more than the sending, and of more the sending is no faster. These are the bounds of few ranks.
const (
	leastBucket = 64 << 10
	mostBucket  = 256 << 10
)

// bounds returns the bounds of a bucket. Round a ring a bucket waits 2*(size-1) times, whatever its length, so the bounds grow with the
// size: to half a group of [reduceRing] and to a whole one, in which the sending takes longer than the waiting.
func bounds(size int) (least, most int) {
	if size <= few {
		return leastBucket, mostBucket
	}
	return max(leastBucket, size*segment), max(mostBucket, size*segment*segments)
}

// Buckets cuts numbers in stretches, and tells them one by one as they become final: from the end of
// those that the backward pass makes to their beginning, then the others. Which stretches there are and
// their order depend on the numbers' and the ranks' count only, so every rank reduces the same at the same turn.
type Buckets struct {
	cuts    []bucket
	early   int
	n, next int // all numbers; the bucket to be told
	trained int
	size    int // that the cuts are for
}

// bucket is the numbers [lo, hi).
type bucket struct{ lo, hi, missing int }

// NewBuckets begins with nothing final, for one rank, of which there are the most buckets. Of the n numbers those from trained on become
// final at any time.
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

// Len is how many buckets there are.
func (b *Buckets) Len() int { return len(b.cuts) }

// Early is how many of them may be told before the backward pass has ended.
func (b *Buckets) Early() int { return b.early }

// Reset makes nothing final, and the buckets those of a world of so many ranks.
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

// Final says that [lo, hi) is final; no number is so twice.
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

// Next is the next bucket, if all of it is final.
func (b *Buckets) Next() (lo, hi int, ok bool) {
	if b.Done() || b.cuts[b.next].missing > 0 {
		return 0, 0, false
	}
	c := b.cuts[b.next]
	b.next++
	return c.lo, c.hi, true
}

// Done says that Next has told all.
func (b *Buckets) Done() bool { return b.next == len(b.cuts) }
