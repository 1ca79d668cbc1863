package task

import (
	"math"
	"math/bits"
	"math/rand/v2"
)

// permutation is an order of the numbers from 0 to n-1. Each place of it is computed, so the order of a million tasks
// costs nothing to make and holds no memory. The zero value orders nothing.
//
// It is a Feistel network over a rectangle of rows × columns cells, n or a few more, as square as can be: one round
// moves every cell within its column, by a distance that depends on the column, the next within its row. Rounds can
// be undone, so this is a permutation of the cells. A number that lands on a cell beyond n is sent through again
// (cycle walking), which happens to one in √n of them.
type permutation struct {
	n, rows, columns uint64
	keys             [rounds]uint64
	shuffled         bool // false: the numbers in their own order
}

// rounds of the network, an even number. Four are enough where round functions are as good as random.
const rounds = 8

// plain returns the order of the numbers themselves.
func plain(n int) permutation { return permutation{n: uint64(n)} }

// shuffle returns the order that seed and stream decide.
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

// indexOf returns where a number is: at(place(number)) is number.
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

// around returns x modulo n, for x below 2n.
func around(x, n uint64) uint64 {
	if x >= n {
		return x - n
	}
	return x
}

// distance returns a number below n that is as good as random for each key and x. It mixes as splitmix64 does.
func distance(key, x, n uint64) uint64 {
	x = (x + key) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	high, _ := bits.Mul64(x^x>>31, n)
	return high
}
