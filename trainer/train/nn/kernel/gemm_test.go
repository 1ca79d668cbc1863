package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// guarded returns n elements, not aligned, between guards, and the check that the guards are
// untouched.
func guarded(n, shift int) (x []float32, check func() error) {
	const guard, mark = 40, -12345
	all := make([]float32, n+2*guard+shift)
	for i := range all {
		all[i] = mark
	}
	x = all[guard+shift:][:n:n]
	return x, func() error {
		for i, v := range all {
			if (i < guard+shift || i >= guard+shift+n) && v != mark {
				return fmt.Errorf("element %d of %d is overwritten", i-guard-shift, n)
			}
		}
		return nil
	}
}

func randoms(seed uint64, n int) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func drawGemm(t *rapid.T) GemmArgs {
	small := func(name string, max int) int { return rapid.IntRange(0, max).Draw(t, name) }
	g := GemmArgs{
		M: small("m", 45), N: small("n", 75), K: small("k", 9),
		Blocks: small("blocks", 3), Segs: small("segs", 4),
		ABlock: small("ablock", 40), ARow: small("arow", 20), ASeg: small("aseg", 50), AStep: small("astep", 12),
		Init: Init(small("init", 2)), ReLU: rapid.Bool().Draw(t, "relu"),
	}
	if rapid.IntRange(0, 5).Draw(t, "deep") == 0 {
		g.K, g.ARow = small("kdeep", 700), 701
	}
	g.BRow = g.N + small("bgap", 5)
	g.CRow = g.N + small("cgap", 5)
	g.CBlock = g.M*g.CRow + small("cblock", 7)
	seed := rapid.Uint64().Draw(t, "seed")
	segs, blocks := max(g.Segs, 1), max(g.Blocks, 1)
	if g.M > 0 && g.K > 0 {
		g.A = randoms(seed, (blocks-1)*g.ABlock+(g.M-1)*g.ARow+(segs-1)*g.ASeg+(g.K-1)*g.AStep+1)
	}
	if g.N > 0 && g.K > 0 {
		g.BBlock = small("bblock", 40)
		g.B = randoms(seed+1, (blocks-1)*g.BBlock+(segs*g.K-1)*g.BRow+g.N)
	}
	g.Bias = randoms(seed+2, g.N)
	return g
}

// reference computes g in float64 over c, which holds the initial C, and for every element the sum
// of magnitudes.
func reference(g GemmArgs, c []float32) (want, scale []float64) {
	want, scale = make([]float64, len(c)), make([]float64, len(c))
	for i, v := range c {
		want[i] = float64(v)
	}
	for o := range max(g.Blocks, 1) {
		for i := range g.M {
			for j := range g.N {
				at := o*g.CBlock + i*g.CRow + j
				sum := 0.0
				switch g.Init {
				case Accumulate:
					sum = want[at]
				case Bias:
					sum = float64(g.Bias[j])
				}
				size := math.Abs(sum)
				for s := range max(g.Segs, 1) {
					for k := range g.K {
						v := float64(g.A[o*g.ABlock+i*g.ARow+s*g.ASeg+k*g.AStep]) *
							float64(g.B[o*g.BBlock+(s*g.K+k)*g.BRow+j])
						sum += v
						size += math.Abs(v)
					}
				}
				if g.ReLU {
					sum = max(sum, 0)
				}
				want[at], scale[at] = sum, size
			}
		}
	}
	return want, scale
}

func TestGemm(t *testing.T) {
	forEachSet(t, func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			g := drawGemm(t)
			if rapid.Bool().Draw(t, "scratch") {
				g.Scratch = new(Scratch)
			}
			size := 0
			if g.M > 0 && g.N > 0 {
				size = (max(g.Blocks, 1)-1)*g.CBlock + (g.M-1)*g.CRow + g.N
			}
			c, check := guarded(size, rapid.IntRange(0, 7).Draw(t, "shift"))
			copy(c, randoms(5, size))
			want, scale := reference(g, c)
			g.C = c
			Gemm(&g)
			for i := range want {
				if math.Abs(want[i]-float64(c[i])) > 1e-5*scale[i] {
					t.Fatalf("element %d: %v, want %v", i, c[i], want[i])
				}
			}
			if err := check(); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// TestGemmBits checks that products of large matrices have the same bits with both vector sets,
// packed or not, and cut into parts or not.
func TestGemmBits(t *testing.T) {
	defer Use(Name())
	rapid.Check(t, func(t *rapid.T) {
		g := GemmArgs{
			M: rapid.IntRange(1, 90).Draw(t, "m"), N: rapid.IntRange(1, 600).Draw(t, "n"),
			K:    rapid.IntRange(1, 900).Draw(t, "k"),
			Segs: rapid.IntRange(1, 3).Draw(t, "segs"), Blocks: rapid.IntRange(1, 3).Draw(t, "blocks"),
			Init: Init(rapid.IntRange(0, 2).Draw(t, "init")), ReLU: rapid.Bool().Draw(t, "relu"),
		}
		g.ARow, g.AStep = g.K, 1
		switch rapid.IntRange(0, 3).Draw(t, "a") {
		case 0:
			g.ARow = 1024 // a stride at which A is packed
		case 1:
			g.ARow, g.AStep = 1, 256
		case 2:
			g.Segs, g.Blocks = 1, 1
		}
		g.ASeg, g.ABlock = 5, 7
		g.BRow, g.CRow, g.CBlock = g.N, g.N, g.M*g.N
		g.A = randoms(1, (g.M-1)*g.ARow+(g.K-1)*g.AStep+(g.Segs-1)*g.ASeg+(g.Blocks-1)*g.ABlock+1)
		g.B, g.Bias = randoms(2, g.Segs*g.K*g.N), randoms(3, g.N)
		initial := randoms(4, g.Blocks*g.M*g.N)
		rows, columns := rapid.IntRange(0, g.M).Draw(t, "rows"), rapid.IntRange(0, g.N).Draw(t, "columns")

		var want []float32
		for _, set := range Names() {
			if err := Use(set); err != nil {
				t.Fatal(err)
			}
			whole := g
			whole.C, whole.Scratch = slices.Clone(initial), new(Scratch)
			Gemm(&whole)
			parts := g
			parts.C = slices.Clone(initial)
			for _, i := range [][2]int{{0, rows}, {rows, g.M}} {
				for _, j := range [][2]int{{0, columns}, {columns, g.N}} {
					p := parts
					if p.M, p.N = i[1]-i[0], j[1]-j[0]; p.M == 0 || p.N == 0 {
						continue
					}
					p.A, p.B, p.Bias, p.C = g.A[i[0]*g.ARow:], g.B[j[0]:], g.Bias[j[0]:], parts.C[i[0]*g.CRow+j[0]:]
					Gemm(&p)
				}
			}
			if !slices.Equal(whole.C, parts.C) {
				t.Fatalf("%s: parts differ from the whole", set)
			}
			switch {
			case set == "generic":
			case want == nil:
				want = whole.C
			case !slices.Equal(whole.C, want):
				t.Fatalf("%s differs from %s", set, Names()[0])
			}
		}
	})
}

// TestGemmAllocates checks that Gemm allocates no memory once its scratch has grown.
func TestGemmAllocates(t *testing.T) {
	forEachSet(t, func(t *testing.T) {
		g := GemmArgs{M: 60, N: 256, K: 300, ARow: 512, AStep: 1, BRow: 1024, CRow: 1024,
			A: randoms(1, 60*512), B: randoms(2, 300*1024), C: make([]float32, 60*1024), Scratch: new(Scratch)}
		if n := testing.AllocsPerRun(5, func() { a := g; Gemm(&a) }); n > 0 {
			t.Fatalf("%v allocations", n)
		}
	})
}
