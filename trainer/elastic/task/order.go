package task

import (
	"math"
	"math/bits"
	"math/rand/v2"
)

// permutation is an order of the numbers 0 to n-1. The number at each place is computed, so that
// the order of a million tasks takes no time to make and no memory. The zero value orders no
// numbers.
//
// It is a Feistel network over a rectangle of rows × columns cells, which is nearly square and has
// n cells or a few more. One round moves every cell within its column, by a distance that depends
// on the column; the next round moves it within its row. Every round can be inverted, so this is a
// permutation of the cells. A number that lands on a cell beyond n goes through the network again
// (cycle walking), which happens to one in √n of them.
type permutation struct {
	n, rows, columns uint64
	keys             [rounds]uint64
	// false: the numbers are in their natural order
	shuffled bool
}

// rounds is the number of rounds of the network. It is even. Four are enough if the round functions
// are random.
const rounds = 8

// plain returns the natural order of n numbers.
func plain(n int) permutation { return permutation{n: uint64(n)} }

// shuffle returns a random order of n numbers, which depends on seed and stream only.
func shuffle(n int, seed, stream uint64) permutation {
	p := permutation{n: uint64(n), shuffled: true}
	p.rows = max(1, uint64(math.Sqrt(float64(n))))
	p.columns = (p.n + p.rows - 1) / p.rows
	r := rand.New(rand.NewPCG(seed, stream))
	for i := range p.keys {
		p.keys[i] = r.Uint64()
	}
	return p
}

// at returns the number at a place.
func (p *permutation) at(place int) int {
	if !p.shuffled {
		return place
	}
	x := uint64(place)
	for {
		row, column := x/p.columns, x%p.columns
		for i := 0; i < rounds; i += 2 {
			row = around(row+distance(p.keys[i], column, p.rows), p.rows)
			column = around(column+distance(p.keys[i+1], row, p.columns), p.columns)
		}
		if x = row*p.columns + column; x < p.n {
			return int(x)
		}
	}
}

// indexOf returns the place of a number: at(indexOf(number)) is number.
func (p *permutation) indexOf(number int) int {
	if !p.shuffled {
		return number
	}
	x := uint64(number)
	for {
		row, column := x/p.columns, x%p.columns
		for i := rounds - 2; i >= 0; i -= 2 {
			column = around(column+p.columns-distance(p.keys[i+1], row, p.columns), p.columns)
			row = around(row+p.rows-distance(p.keys[i], column, p.rows), p.rows)
		}
		if x = row*p.columns + column; x < p.n {
			return int(x)
		}
	}
}

// around returns x modulo n, for x < 2n.
func around(x, n uint64) uint64 {
	if x >= n {
		return x - n
	}
	return x
}

// distance returns a pseudorandom number below n for key and x, by the mixing function of
// splitmix64.
func distance(key, x, n uint64) uint64 {
	x = (x + key) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	high, _ := bits.Mul64(x^x>>31, n)
	return high
}
