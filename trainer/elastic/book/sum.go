package book

import (
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
)

// position returns the number of a position of a task: of its first records, n of them. The end of
// a task of unknown length is one position, whatever its length is.
func position(number int, n int64) uint64 {
	switch {
	case n == 0:
		return 0
	case ledger.Ended(n):
		n = ledger.End
	}
	return mix(mix(uint64(number)+1) + uint64(n))
}

// Factor returns the odd number by which the sums of an epoch are multiplied.
func Factor(epoch int) uint64 { return mix(uint64(epoch)<<32|0x5eed) | 1 }

// Sum returns the sum of a stretch of a task, without the factor of the epoch.
func Sum(number int, from, to int64) uint64 { return position(number, to) - position(number, from) }

// wholeSum returns the sum of all tasks of shards.
func wholeSum(shards []task.Shard, each int64, unsized bool) (sum uint64) {
	number := 0
	for _, s := range shards {
		for left := s.Count; left > 0; left -= each {
			size := min(left, each)
			if unsized {
				size = ledger.End
			}
			sum += position(number, size)
			number++
		}
	}
	return sum
}

// mix applies the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
