package kernel

import (
	"math"
	"runtime"
)

// laneMask has the mask of the first n of 8 lanes at 8-n.
var laneMask = [16]int32{-1, -1, -1, -1, -1, -1, -1, -1}

// vector computes C with the tile kernels of AVX-512 (wide) or AVX2.
func (g *GemmArgs) vector(wide bool) {
	if g.K == 0 {
		gemmGeneric(*g)
		return
	}
	g.direct(wide)
	runtime.KeepAlive(g)
}

// direct computes C panel by panel of two vectors of columns, from A and B as they lie.
func (g *GemmArgs) direct(wide bool) {
	lanes := 8
	if wide {
		lanes = 16
	}
	t := tile{
		a: &g.A[0], floor: uint64(math.Float32bits(float32(math.Inf(-1)))),
		init: g.Init, k: g.K, segs: g.Segs,
		arow: 4 * g.ARow, astep: 4 * g.AStep, aseg: 4 * (g.ASeg - g.K*g.AStep),
		brow: 4 * g.BRow, crow: 4 * g.CRow,
	}
	if g.ReLU {
		t.floor = 0
	}
	for j := 0; j < g.N; j += 2 * lanes {
		n := min(2*lanes, g.N-j)
		t.mask = 1<<n - 1
		t.lanes = &laneMask[(lanes-n%lanes)%8]
		t.b = &g.B[j]
		if g.Init == Bias {
			t.bias = &g.Bias[j]
		}
		g.panel(&t, j, n, lanes, wide)
	}
}

// panel computes columns j to j+n with tiles as equal as can be.
func (g *GemmArgs) panel(t *tile, j, n, lanes int, wide bool) {
	vectors := (n + lanes - 1) / lanes
	limit := 14
	switch {
	case wide:
	case vectors == 1:
		limit = 12
	default:
		limit = 6
	}
	tiles := (g.M + limit - 1) / limit
	rows := (g.M + tiles - 1) / tiles
	for i := 0; i < g.M; rows-- {
		count := min(tiles, (g.M - i - tiles*(rows-1)))
		t.a, t.c = &g.A[i*g.ARow], &g.C[i*g.CRow+j]
		t.count, t.blocks = count, g.Blocks
		t.atile, t.ctile = 4*rows*g.ARow, 4*rows*g.CRow
		t.ablock, t.cblock = 4*g.ABlock-count*t.atile, 4*g.CBlock-count*t.ctile
		if wide {
			runAVX512(t, rows, vectors)
		} else {
			runAVX2(t, rows, vectors, n%lanes != 0)
		}
		i += count * rows
		tiles -= count
	}
}
