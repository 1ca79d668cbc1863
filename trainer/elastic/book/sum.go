package book

import "github.com/elasticdl/elasticdl/trainer/elastic/task"

// position returns the number of a position of a task: of its first records, n of them.
func position(number int, n int64) uint64 {
	if n == 0 {
		return 0
	}
	return mix(mix(uint64(number)+1) + uint64(n))
}

// Factor returns the odd number by which the sums of an epoch are multiplied.
func Factor(epoch int) uint64 { return mix(uint64(epoch)<<32|0x5eed) | 1 }

// Sum returns the sum of a stretch of a task, without the factor of the epoch.
func Sum(number int, from, to int64) uint64 { return position(number, to) - position(number, from) }

// wholeSum returns the sum of all tasks of shards.
func wholeSum(shards []task.Shard, each int64) (sum uint64) {
	number := 0
	for _, s := range shards {
		for left := s.Count; left > 0; left -= each {
			sum += position(number, min(left, each))
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
