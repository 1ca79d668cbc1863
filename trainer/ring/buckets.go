package ring

import "fmt"

// A bucket has an eighth of all numbers, so that most of them are on their way before the last are computed, within
// these bounds: of less the waiting costs more than the sending, and of more the sending is no faster.
const (
	leastBucket = 16 << 10
	mostBucket  = 256 << 10
)

// Buckets cuts [0, n) in stretches, and tells them one by one, from the end to the
// beginning, as they become final. Which stretches there are and their order depend on n only, so every rank
// reduces the same at the same turn.
type Buckets struct {
	n, size int
	missing []int // elements of each bucket that are not final yet; bucket i begins at i*size, the last is longer
	next    int   // the bucket to be told
}

// NewBuckets begins with nothing final.
func NewBuckets(n int) *Buckets {
	b := &Buckets{n: n, size: min(max(n/8, leastBucket), mostBucket)}
	b.missing = make([]int, max(n/b.size, min(n, 1)))
	b.Reset()
	return b
}

// Len is how many buckets there are.
func (b *Buckets) Len() int { return len(b.missing) }

// Reset makes nothing final.
func (b *Buckets) Reset() {
	for i := range b.missing {
		lo, hi := b.bounds(i)
		b.missing[i] = hi - lo
	}
	b.next = len(b.missing) - 1
}

// Final says that [lo, hi) is final; no element is so twice.
func (b *Buckets) Final(lo, hi int) {
	if lo < 0 || hi < lo || hi > b.n {
		panic(fmt.Sprintf("ring.Buckets: [%d, %d) of %d", lo, hi, b.n))
	}
	for i := range b.missing {
		from, to := b.bounds(i)
		b.missing[i] -= max(0, min(hi, to)-max(lo, from))
		if b.missing[i] < 0 {
			panic(fmt.Sprintf("ring.Buckets: [%d, %d) is final twice", lo, hi))
		}
	}
}

// Next is the next bucket, if all of it is final.
func (b *Buckets) Next() (lo, hi int, ok bool) {
	if b.next < 0 || b.missing[b.next] > 0 {
		return 0, 0, false
	}
	lo, hi = b.bounds(b.next)
	b.next--
	return lo, hi, true
}

// Done says that Next has told all.
func (b *Buckets) Done() bool { return b.next < 0 }

func (b *Buckets) bounds(i int) (lo, hi int) {
	if i == len(b.missing)-1 {
		return i * b.size, b.n
	}
	return i * b.size, (i + 1) * b.size
}
