package ring

import (
	"math/bits"
	"slices"

	"github.com/elasticdl/elasticdl/trainer/train/nn/kernel"
)

// lead is the number of steps of [reduceMany] by which a rank's sending may be ahead of its
// receiving. It keeps a link of 10 Gb/s busy over a latency of 0.2 ms. Of lead+1 steps to one rank,
// two at most are sent in two pieces.
const lead = Ahead - 3

// reduceMany sums each block of the numbers on one rank, and sends the sums to all ranks. It takes
// 2*log2(size) rounds, and each rank sends the same number of bytes as round a ring, which takes
// 2*(size-1) rounds.
//
// There are as many blocks as ranks. Block j of a rank is the block of the rank j after it. In the
// first half, each rank sends its sum of block j to the rank highest(j) after it, where the same
// block is block j-highest(j). So j loses one bit at each rank, and the sum arrives at the rank of
// the block. Each rank sends its blocks from the last to the first. The blocks that a rank sends
// first in a round are those that it received first in the round before, so that rounds follow one
// another without a pause. The second half makes all steps in the opposite order and direction.
//
// The second half is the all-gather of Bruck et al., "Efficient Algorithms for All-to-All
// Communications in Multiport Message-Passing Systems", IEEE TPDS 8(11), 1997. For the first half,
// see Träff, "Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms", arXiv:2410.14234.
// Any size will do. The halving and doubling of Rabenseifner needs a power of two.
//
// A rank changes a block that it sent when it receives the sum of that block, which was made with
// what it sent.
//
// No ranks wait in a circle. Let t be the least number of steps that any rank has received. A rank
// that has received t steps waits neither to receive step t nor to send. The sender of its step t
// has received t steps, too, and needs no more to send it. The receiver of its sends has also
// received t steps, so that at most lead+1 steps are under way to it.
func reduceMany(l Link, rank, size int, data, scratch []float32) error {
	p := newSchedule(rank, size, data)
	sent := 0
	for t := range p.steps() {
		for ; sent < p.steps() && sent <= t+lead; sent++ {
			s := p.step(sent)
			if s.after >= t {
				break
			}
			for _, piece := range s.send {
				if len(piece) == 0 {
					continue
				}
				if err := l.Send(s.to, raw(piece)); err != nil {
					return err
				}
			}
		}
		s := p.step(t)
		for _, piece := range s.receive {
			if len(piece) == 0 {
				continue
			}
			if err := receive(l, s.from, piece, scratch, s.add); err != nil {
				return err
			}
		}
	}
	return nil
}

// receive fills x with what a rank sends, or adds that to x.
func receive(l Link, from int, x, scratch []float32, add bool) error {
	if !add {
		return l.Recv(from, raw(x))
	}
	theirs := scratch[:len(x)]
	if err := l.Recv(from, raw(theirs)); err != nil {
		return err
	}
	kernel.Add(x, theirs)
	return nil
}

// schedule is the order in which a rank sends and receives the blocks of data.
type schedule struct {
	rank, size int
	data       []float32
	// bounds of the runs of blocks that are sent together, from 1 to size. All blocks of a run have
	// the same highest bit.
	cuts []int
	// number of segments of a block; 1 unless each run is a block
	parts int
}

// step has the numbers that a rank sends to one rank, and those that it receives from another.
type step struct {
	to, from int
	// step that must be received before this one is sent; -1: none
	after int
	// in two pieces if they continue at the beginning of the data
	send, receive [2][]float32
	// add what is received
	add bool
}

func newSchedule(rank, size int, data []float32) schedule {
	block := (len(data) + size - 1) / size
	together := 1
	for 2*together*block <= segment {
		together *= 2
	}
	var cuts []int
	for hi := size; hi > 1; hi = max(highest(hi-1), (hi-1)/together*together) {
		cuts = append(cuts, hi)
	}
	cuts = append(cuts, 1)
	slices.Reverse(cuts)
	return schedule{rank, size, data, cuts, (block + segment - 1) / segment}
}

// highest returns the highest bit of j.
func highest(j int) int { return 1 << (bits.Len(uint(j)) - 1) }

// runs returns how many runs are sent in one half.
func (p *schedule) runs() int { return len(p.cuts) - 1 }

func (p *schedule) steps() int { return 2 * p.runs() * p.parts }

// step returns the t-th step.
func (p *schedule) step(t int) step {
	turn, nth := t/p.parts, t%p.parts
	first := turn < p.runs()
	run := turn - p.runs()
	if first {
		run = p.runs() - 1 - turn
	}
	lo, hi := p.cuts[run], p.cuts[run+1]
	d := highest(lo)
	s := step{to: (p.rank + d) % p.size, from: (p.rank - d + p.size) % p.size, after: -1, add: first,
		send: p.pieces(lo, hi, nth), receive: p.pieces(lo-d, hi-d, nth)}
	switch {
	case !first:
		s.after = (p.runs()+p.run(hi-d-1))*p.parts + nth
		s.to, s.from, s.send, s.receive = s.from, s.to, s.receive, s.send
	case lo+2*d < p.size:
		s.after = (p.runs()-1-p.run(lo+2*d))*p.parts + nth
	}
	return s
}

// run returns the index of the run with a block. It is -1 for block 0, whose sum is complete before
// the second half begins with run 0.
func (p *schedule) run(block int) int {
	i, found := slices.BinarySearch(p.cuts, block)
	if !found {
		i--
	}
	return i
}

// pieces returns the nth part of the blocks [lo, hi) of this rank.
func (p *schedule) pieces(lo, hi, nth int) [2][]float32 {
	n := len(p.data)
	lo, hi = (lo+p.rank)%p.size, (hi-1+p.rank)%p.size+1
	from, to := n*lo/p.size, n*hi/p.size
	if lo >= hi {
		return [2][]float32{p.data[from:], p.data[:to]}
	}
	a, b := part(to-from, p.parts, nth)
	return [2][]float32{p.data[from+a : from+b]}
}
