package ring

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/trainer/train/nn/kernel"
)

// network has the links in memory between all ranks of a world. A rank is delayed at random. A
// message is copied only when Ahead later ones are sent, as late as a link may do that.
type network struct {
	size  int
	pipes map[[2]int]*pipe
}

// pipe has the messages of one rank to another. They are in the memory of the sender until they are
// copied.
type pipe struct {
	mu      sync.Mutex
	changed *sync.Cond
	// messages that are not copied yet, at most Ahead
	sent [][]byte
	// bytes that are copied and not received yet
	bytes []byte
	// sizes of the messages that are not received yet
	sizes []int
	// bytes of the first of them that are received already
	part int
}

// receive counts n bytes as received. It returns an error if a message of Whole bytes or more is
// not received as a whole.
func (p *pipe) receive(n int) error {
	for n > 0 {
		first := p.sizes[0]
		take := min(n, first-p.part)
		if max(first, n) >= Whole && take != max(first, n) {
			return fmt.Errorf("%d bytes are received from a message of %d at %d", n, first, p.part)
		}
		n -= take
		p.part += take
		if p.part == first {
			p.sizes, p.part = p.sizes[1:], 0
		}
	}
	return nil
}

func newNetwork(size int) *network {
	n := &network{size, make(map[[2]int]*pipe)}
	for from := range size {
		for _, to := range Peers(from, size) {
			p := &pipe{}
			p.changed = sync.NewCond(&p.mu)
			n.pipes[[2]int{from, to}] = p
		}
	}
	return n
}

// end is the link of one rank.
type end struct {
	*network
	rank   int
	random *rand.Rand // nil: no delays
}

// delay sleeps at random.
func (e *end) delay() {
	if e.random != nil && e.random.IntN(3) == 0 {
		time.Sleep(time.Duration(e.random.IntN(1000)))
	}
}

func (e *end) Send(to int, b []byte) error {
	p := e.pipes[[2]int{e.rank, to}]
	p.mu.Lock()
	p.sent = append(p.sent, b)
	if len(b) > 0 {
		p.sizes = append(p.sizes, len(b))
	}
	p.move(Ahead)
	p.mu.Unlock()
	e.delay()
	return nil
}

// move copies all messages except the last keep ones.
func (p *pipe) move(keep int) {
	for len(p.sent) > keep {
		p.bytes = append(p.bytes, p.sent[0]...)
		p.sent = p.sent[1:]
	}
	p.changed.Broadcast()
}

func (e *end) Recv(from int, b []byte) error {
	e.delay()
	p := e.pipes[[2]int{from, e.rank}]
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.bytes) < len(b) {
		if len(p.sent) > 0 {
			p.move(len(p.sent) - 1)
			continue
		}
		p.changed.Wait()
	}
	copy(b, p.bytes)
	p.bytes = p.bytes[len(b):]
	return p.receive(len(b))
}

func (e *end) Flush() error {
	for _, to := range Peers(e.rank, e.size) {
		p := e.pipes[[2]int{e.rank, to}]
		p.mu.Lock()
		p.move(0)
		p.mu.Unlock()
	}
	return nil
}

// left returns the number of bytes that were copied and not received.
func (n *network) left() int {
	total := 0
	for _, p := range n.pipes {
		total += len(p.bytes)
	}
	return total
}

// world runs f on every rank, and checks that all bytes are received. If seed is not 0 it runs in a
// bubble, with random delays.
func world(t *testing.T, size int, seed uint64, f func(rank int, l Link)) {
	t.Helper()
	run := func(t *testing.T) {
		n := newNetwork(size)
		var wg sync.WaitGroup
		for r := range size {
			e := &end{network: n, rank: r}
			if seed != 0 {
				e.random = rand.New(rand.NewPCG(seed, uint64(r)))
			}
			wg.Go(func() { f(r, e) })
		}
		wg.Wait()
		if left := n.left(); left > 0 {
			t.Errorf("%d bytes are left", left)
		}
	}
	if seed != 0 {
		synctest.Test(t, run)
	} else {
		run(t)
	}
}

// reduced returns the results of Reduce on every rank, of the first n numbers of each.
func reduced(t *testing.T, size int, seed uint64, given [][]float32, n int) [][]float32 {
	t.Helper()
	out := make([][]float32, size)
	world(t, size, seed, func(r int, l Link) {
		data, scratch := slices.Clone(given[r][:n]), make([]float32, ScratchSize)
		if err := Reduce(l, r, size, data, scratch); err != nil {
			t.Error(err)
		}
		out[r] = slices.Clone(data)
		// after Reduce the caller may change its data
		clear(data)
		clear(scratch)
	})
	return out
}

// lengths returns the numbers of values at which Reduce changes its algorithm, for a size of the
// world.
func lengths(size int) []int {
	all := []int{0, 1, 2, size - 1, size, size + 1, 1000, small / size, small/size + 1, small + 1}
	if size <= few {
		group := size * chunk
		return append(all, group-1, group, group+1, 3*group+7)
	}
	// one block a message, and more
	whole := size * segment
	return append(all, whole/2, whole/2+1, whole-1, whole, whole+1, 2*whole+size+1)
}

// Sums of whole numbers are exact in any order.
func TestReduceSums(t *testing.T) {
	for _, size := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 13} {
		most := slices.Max(lengths(size))
		given, want := make([][]float32, size), make([]float32, most)
		for r := range given {
			given[r] = make([]float32, most)
			for i := range given[r] {
				given[r][i] = float32((i*7+r*13)%1001 - 500)
			}
			kernel.Add(want, given[r])
		}
		for _, n := range lengths(size) {
			for r, got := range reduced(t, size, 0, given, n) {
				if !bytes.Equal(raw(got), raw(want[:n])) {
					t.Errorf("%d of %d ranks, %d numbers: wrong sums from [%d] on", r, size, n,
						firstDifference(got, want))
				}
			}
		}
	}
}

func firstDifference(a, b []float32) int {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return i
		}
	}
	return -1
}

// Sums of any numbers have the same bits on every rank and at any timing, and are close to the true
// ones.
func TestReduceIsOneResult(t *testing.T) {
	for size := 2; size <= 9; size++ {
		random := rand.New(rand.NewPCG(1, uint64(size)))
		most := slices.Max(lengths(size))
		given, want := make([][]float32, size), make([]float64, most)
		for r := range given {
			given[r] = make([]float32, most)
			for i := range given[r] {
				given[r][i] = random.Float32() - 0.5
				want[i] += float64(given[r][i])
			}
		}
		for _, n := range []int{1, 1000, small/size + 1, most} {
			first := reduced(t, size, 0, given, n)[0]
			for i, v := range first {
				if math.Abs(float64(v)-want[i]) > 1e-6 {
					t.Fatalf("%d ranks, %d numbers: [%d] is %v, want %v", size, n, i, v, want[i])
				}
			}
			for seed := range uint64(2) {
				for r, got := range reduced(t, size, seed, given, n) {
					if !bytes.Equal(raw(got), raw(first)) {
						t.Fatalf("%d ranks, %d numbers, seed %d: rank %d has another sum at [%d]", size,
							n, seed, r, firstDifference(got, first))
					}
				}
			}
		}
	}
}

// Several calls can follow each other on the same links.
func TestCallsFollowOneAnother(t *testing.T) {
	for size := 1; size <= 7; size++ {
		for seed := range uint64(4) {
			world(t, size, seed, func(r int, l Link) {
				scratch := make([]float32, ScratchSize)
				for call := range 5 {
					all, err := Gather(l, r, size, block(r, call))
					if err != nil {
						t.Error(err)
						return
					}
					for i, b := range all {
						if !bytes.Equal(b, block(i, call)) {
							t.Errorf("%d ranks: rank %d heard % x of %d", size, r, b, i)
						}
					}
					data := make([]float32, []int{10, 200_000}[call%2])
					data[9] = 1
					if err := Reduce(l, r, size, data, scratch); err != nil || data[9] != float32(size) {
						t.Errorf("%d ranks: the sum is %v, %v", size, data[9], err)
					}
				}
			})
		}
	}
}

// block returns the data of a rank in a call: none, a few bytes, or more than fits into one message
// with others.
func block(rank, call int) []byte {
	return bytes.Repeat([]byte{byte(rank)}, []int{0, 1, 3, Whole - 4, Whole}[rank*call%5])
}

// Every function returns the error of its link, whichever call of the link fails.
func TestLinkFails(t *testing.T) {
	for name, f := range map[string]func(l Link) error{
		"small":  func(l Link) error { return Reduce(l, 0, 2, make([]float32, 10), make([]float32, ScratchSize)) },
		"few":    func(l Link) error { return Reduce(l, 0, 2, make([]float32, 300_000), make([]float32, ScratchSize)) },
		"many":   func(l Link) error { return Reduce(l, 0, 6, make([]float32, 300_000), make([]float32, ScratchSize)) },
		"gather": func(l Link) error { _, err := Gather(l, 0, 2, []byte("x")); return err },
		"relay":  func(l Link) error { return Relay(l, 1, 3, make([]byte, relaySegment+1)) },
	} {
		t.Run(name, func(t *testing.T) {
			for calls := 1; ; calls++ {
				l := &failing{left: calls}
				err := f(l)
				if l.left > 0 {
					if err != nil {
						t.Errorf("without a failure: %v", err)
					}
					if calls < 3 {
						t.Errorf("only %d calls", calls)
					}
					return
				}
				if !errors.Is(err, errLink) {
					t.Fatalf("call %d fails: %v", calls, err)
				}
			}
		})
	}
}

var errLink = errors.New("link broken")

// failing is a link that receives zeros until a call fails.
type failing struct{ left int }

func (f *failing) call() error {
	if f.left--; f.left == 0 {
		return errLink
	}
	return nil
}
func (f *failing) Send(int, []byte) error     { return f.call() }
func (f *failing) Recv(_ int, b []byte) error { clear(b); return f.call() }
func (f *failing) Flush() error               { return f.call() }

func TestGatherChecksLengths(t *testing.T) {
	if _, err := Gather(&failing{}, 0, 1, make([]byte, MaxHeader+1)); err == nil {
		t.Error("a header that is too long is sent")
	}
	world(t, 2, 0, func(r int, l Link) {
		if r == 0 {
			l.Send(1, []byte{0, 0, 2, 0}) // 128 KB
			l.Flush()
			l.Recv(1, make([]byte, 5))
			return
		}
		if _, err := Gather(l, r, 2, []byte("x")); err == nil {
			t.Error("a length above MaxHeader is believed")
		}
	})
}

func FuzzLengths(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 2, 0, 0, 0})
	f.Add([]byte{0, 0, 1, 0})
	f.Add([]byte{255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		b = b[:len(b)/4*4]
		blocks, all, err := parseLengths(b)
		if err != nil {
			return
		}
		if len(blocks) != len(b)/4 || len(all) > MaxHeader*len(blocks) || !bytes.Equal(bytes.Join(blocks, nil), all) {
			t.Errorf("%d blocks, %d bytes of % x", len(blocks), len(all), b)
		}
		if !bytes.Equal(appendBlocks(nil, blocks)[:len(b)], b) {
			t.Errorf("% x is not what it was read from", b)
		}
	})
}

// Every rank without the state gets it from a rank that has it, over existing links and without
// cycles.
func TestRelay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 9).Draw(t, "size")
		ranks := make([]int, size)
		for i := range ranks {
			ranks[i] = i
		}
		sources := rapid.Permutation(ranks).Draw(t, "ranks")[:rapid.IntRange(1, size).Draw(t, "sources")]
		n := rapid.SampledFrom([]int{0, 1, relaySegment, relaySegment + 1, 3*relaySegment - 1}).Draw(t, "n")
		want := make([]byte, n)
		for i := range want {
			want[i] = byte(i * 7)
		}
		network := newNetwork(size)
		var wg sync.WaitGroup
		for r := range size {
			wg.Go(func() {
				from, to := Chain(r, size, sources)
				b := make([]byte, n)
				if slices.Contains(sources, r) {
					copy(b, want)
				}
				if err := Relay(&end{network: network, rank: r}, from, to, b); err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
				if !bytes.Equal(b, want) {
					t.Errorf("rank %d of %d got something else; sources %v", r, size, sources)
				}
			})
		}
		wg.Wait()
		if left := network.left(); left > 0 {
			t.Errorf("%d bytes are left", left)
		}
	})
}

func TestPeers(t *testing.T) {
	for size := 1; size <= 40; size++ {
		for r := range size {
			peers := Peers(r, size)
			for _, p := range peers {
				if p == r || !slices.Contains(Peers(p, size), r) {
					t.Errorf("%d of %d has peer %d", r, size, p)
				}
			}
			if size <= few && len(peers) != size-1 {
				t.Errorf("%d of %d has peers %v only", r, size, peers)
			}
		}
	}
	if got, want := fmt.Sprint(Peers(0, 9)), "[1 2 4 5 7 8]"; got != want {
		t.Errorf("peers of 0 of 9: %s, want %s", got, want)
	}
}

// Next returns the buckets in their order, each when it is final and not before. They cover all
// numbers, in whatever order the stretches become final.
func TestBuckets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{0, 1, leastBucket - 1, leastBucket, leastBucket + 1,
			2*leastBucket - 1, 8*leastBucket + 3, 100_001, 8 * mostBucket, 11*mostBucket + 5,
			64*leastBucket + 1, 50*mostBucket + 1}).Draw(t, "n")
		trained := rapid.IntRange(0, n).Draw(t, "trained")
		b := NewBuckets(n, trained)
		size := rapid.SampledFrom([]int{1, 2, few, few + 1, 16, 64}).Draw(t, "size")
		least, most := bounds(size)
		b.Reset(size)
		var fixed [][2]int
		for round := range 2 {
			cuts := rapid.SliceOfN(rapid.IntRange(0, n), 0, 20).Draw(t, "cuts")
			cuts = append(cuts, 0, n)
			slices.Sort(cuts)
			var stretches [][2]int
			for i := range len(cuts) - 1 {
				stretches = append(stretches, [2]int{cuts[i], cuts[i+1]})
			}
			final := make([]bool, len(stretches))
			var told [][2]int
			end := trained
			if trained == 0 {
				end = n
			}
			for _, i := range rapid.Permutation(slices.Collect(indices(len(stretches)))).Draw(t, "order") {
				b.Final(stretches[i][0], stretches[i][1])
				final[i] = true
				for lo, hi, ok := b.Next(); ok; lo, hi, ok = b.Next() {
					of := trained
					if lo >= trained {
						of = n - trained
					}
					if size := min(max(of/8, least), most); hi != end || hi-lo < min(of, size) || hi-lo >= 2*size {
						t.Fatalf("bucket [%d, %d) after %d", lo, hi, end)
					}
					for j, s := range stretches {
						if !final[j] && max(s[0], lo) < min(s[1], hi) {
							t.Fatalf("bucket [%d, %d) without %v", lo, hi, s)
						}
					}
					if end = lo; end == 0 && lo < trained {
						end = n
					}
					told = append(told, [2]int{lo, hi})
				}
			}
			if total := covered(told); total != n || !b.Done() || len(told) != b.Len() {
				t.Fatalf("%d of %d were reported", total, n)
			}
			if round == 1 && !slices.Equal(told, fixed) {
				t.Fatalf("buckets %v, then %v", fixed, told)
			}
			fixed = told
			b.Reset(size)
		}
	})
}

func indices(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

func covered(stretches [][2]int) (total int) {
	for _, s := range stretches {
		total += s[1] - s[0]
	}
	return total
}

// Early returns the number of buckets that are final before the last gradient of the backward pass
// is.
func TestEarlyBuckets(t *testing.T) {
	for _, c := range []struct{ n, trained, early int }{{10, 10, 0}, {10, 0, 0},
		{2_000_000, 2_000_000, 7}, {2_000_000, 1_999_000, 7}} {
		b := NewBuckets(c.n, c.trained)
		// all but the gradient that is computed last
		b.Final(1, c.n)
		told := 0
		for _, _, ok := b.Next(); ok && c.trained > 0; _, _, ok = b.Next() {
			told++
		}
		if b.Early() != c.early || told != c.early {
			t.Errorf("%d trained of %d: %d early, %d reported, want %d", c.trained, c.n, b.Early(), told, c.early)
		}
	}
}
