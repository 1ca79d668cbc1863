package kernel

import (
	"math"
	"slices"
	"unsafe"

	"github.com/elasticdl/elasticdl/trainer/train/nn/kernel/avx"
)

// laneMask contains the mask of the first n of 8 lanes at index 8-n.
var laneMask = [16]int32{-1, -1, -1, -1, -1, -1, -1, -1}

// width describes the tile kernels of a set.
type width struct {
	wide     bool // AVX-512
	lanes    int
	one, two int // rows of a tile of one and of two vectors
}

var (
	width512 = width{true, 16, 14, 14}
	width256 = width{false, 8, 12, 6}
)

func gemmAVX512(g GemmArgs) { g.vector(&width512) }
func gemmAVX2(g GemmArgs)   { g.vector(&width256) }

// vector computes C with tile kernels.
func (g *GemmArgs) vector(w *width) {
	switch {
	case g.K == 0:
		gemmGeneric(*g)
	case g.packs(w):
		g.packed(w)
	default:
		g.direct(w)
	}
}

// packs reports whether it pays to pack B: it does not stay in the second-level cache and is used
// again, or its rows crowd the first-level cache, which one packed panel fits, and that is used
// often.
func (g *GemmArgs) packs(w *width) bool {
	const cache = 1 << 18 // elements
	steps, tiles := g.Segs*g.K, g.Blocks*((g.M+w.two-1)/w.two)
	return g.Scratch != nil && g.BBlock == 0 && g.N > w.lanes &&
		(steps*g.N > cache && tiles > 1 || steps <= chunk && g.BRow >= 128 && tiles >= 16)
}

// tile returns the fields that all tiles of g have in common.
func (g *GemmArgs) tile() avx.Tile {
	t := avx.Tile{
		Init: int(g.Init), K: g.K, Segs: g.Segs,
		ARow: 4 * g.ARow, AStep: 4 * g.AStep, ASeg: 4 * (g.ASeg - g.K*g.AStep),
		BBlock: 4 * g.BBlock, BRow: 4 * g.BRow, CRow: 4 * g.CRow,
	}
	if !g.ReLU {
		t.Floor = uint64(math.Float32bits(float32(math.Inf(-1))))
	}
	return t
}

// direct computes C panel by panel of two vectors of columns, from A and B as they lie.
func (g *GemmArgs) direct(w *width) {
	t := g.tile()
	for j := 0; j < g.N; j += 2 * w.lanes {
		t.B = &g.B[j]
		t.Ahead = uintptr(unsafe.Pointer(t.B))
		g.panel(w, &t, j)
	}
}

// panel computes the columns from j with tiles of rows as equal as can be.
func (g *GemmArgs) panel(w *width, t *avx.Tile, j int) {
	n := min(2*w.lanes, g.N-j)
	// whole vectors of 8 rather than half ones of 16
	if n <= width256.lanes {
		w = &width256
	}
	last := n % w.lanes // lanes of the last vector, 0 for all
	t.Mask, t.Lanes = 1<<last-1, &laneMask[-last&7]
	if g.Init == Bias {
		t.Bias = &g.Bias[j]
	}
	vectors, limit := 2, w.two
	if n <= w.lanes {
		vectors, limit = 1, w.one
	}
	tiles := (g.M + limit - 1) / limit
	rows := (g.M + tiles - 1) / tiles
	for i := 0; i < g.M; rows-- {
		count := min(tiles, g.M-i-tiles*(rows-1))
		t.A, t.C = &g.A[i*g.ARow], &g.C[i*g.CRow+j]
		t.Count, t.Blocks = count, g.Blocks
		t.ATile, t.CTile = 4*rows*g.ARow, 4*rows*g.CRow
		t.ABlock, t.CBlock = 4*g.ABlock-count*t.ATile, 4*g.CBlock-count*t.CTile
		if w.wide {
			avx.RunAVX512(t, rows, vectors, last > 0)
		} else {
			avx.RunAVX2(t, rows, vectors, last > 0)
		}
		i += count * rows
		tiles -= count
	}
}

// chunk bounds the steps of the inner loop whose part of a panel of B stays in the first-level
// cache.
const chunk = 256

// packed computes C chunk by chunk of the inner loop, with B packed panel by panel.
func (g *GemmArgs) packed(w *width) {
	for s := 0; s < g.Segs; {
		segs := min(max(chunk/g.K, 1), g.Segs-s)
		parts := 1
		if segs == 1 {
			parts = (g.K + chunk - 1) / chunk
		}
		for p := range parts {
			lo, hi := cut(g.K, p, parts), cut(g.K, p+1, parts)
			c := *g
			c.K, c.Segs = hi-lo, segs
			c.A, c.B = g.A[s*g.ASeg+lo*g.AStep:], g.B[(s*g.K+lo)*g.BRow:]
			if s > 0 || p > 0 {
				c.Init = Accumulate
			}
			c.ReLU = g.ReLU && s+segs == g.Segs && p == parts-1
			c.chunk(w)
		}
		s += segs
	}
}

// cut returns where part p of parts of k steps begins: a multiple of 16, as short needs it.
func cut(k, p, parts int) int {
	if p == parts {
		return k
	}
	return (p*k/parts + 8) &^ 15
}

// chunk computes a g whose inner loop is one chunk.
func (g *GemmArgs) chunk(w *width) {
	panel := 2 * w.lanes
	steps := g.Segs * g.K
	g.packA()
	pack := resize(&g.Scratch.b, steps*panel+16)
	pack = pack[-int(uintptr(unsafe.Pointer(&pack[0]))/4)&15:] // vectors within cache lines
	t := g.tile()
	t.B, t.BRow = &pack[0], 4*panel
	t.AheadStep = 4 * g.BRow
	t.K, t.Segs, t.ASeg = g.short(w, &t)
	for j := 0; j < g.N; j += panel {
		n := min(panel, g.N-j)
		if w.wide {
			avx.CopyRowsAVX512(&pack[0], &g.B[j], 4*g.BRow, steps, n)
		} else {
			avx.CopyRowsAVX2(&pack[0], &g.B[j], 4*g.BRow, steps, n)
		}
		t.Ahead = uintptr(unsafe.Pointer(&g.B[j])) + uintptr(4*n)
		g.panel(w, &t, j)
	}
}

// short splits a single segment, so that the tiles of a panel, which prefetch one row of B at each
// start of a segment, together prefetch the next panel.
func (g *GemmArgs) short(w *width, t *avx.Tile) (k, segs, aseg int) {
	tiles := g.Blocks * ((g.M + w.two - 1) / w.two)
	for _, k := range []int{16, 8, 4} {
		if g.Segs == 1 && g.K%k == 0 && k <= max(tiles, 4) {
			return k, g.K / k, 0
		}
	}
	return t.K, t.Segs, t.ASeg
}

// packA copies A if its rows, or its steps, lie at a stride that maps them to few sets of the
// cache.
func (g *GemmArgs) packA() {
	const gap = 16
	if g.Blocks > 1 || g.Segs > 1 {
		return
	}
	switch {
	case g.AStep == 1 && g.ARow%256 == 0:
		pack := resize(&g.Scratch.a, g.M*(g.K+gap))
		for i := range g.M {
			copy(pack[i*(g.K+gap):][:g.K], g.A[i*g.ARow:])
		}
		g.A, g.ARow = pack, g.K+gap
	case g.ARow == 1 && g.AStep%256 == 0:
		pack := resize(&g.Scratch.a, g.K*(g.M+gap))
		for k := range g.K {
			copy(pack[k*(g.M+gap):][:g.M], g.A[k*g.AStep:])
		}
		g.A, g.AStep = pack, g.M+gap
	}
}

// resize makes *x n elements long, of any content.
func resize(x *[]float32, n int) []float32 {
	*x = slices.Grow((*x)[:0], n)[:n]
	return *x
}
