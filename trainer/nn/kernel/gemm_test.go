package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// forEachSet runs f with every set that this processor has.
func forEachSet(t *testing.T, f func(t *testing.T)) {
	was := Name()
	defer Use(was)
	for _, name := range Names() {
		if err := Use(name); err != nil {
			t.Fatal(err)
		}
		t.Run(name, f)
	}
}

// guarded returns n elements, not aligned, between guards, and the check that the guards are untouched.
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
		g.B = randoms(seed+1, (segs*g.K-1)*g.BRow+g.N)
	}
	g.Bias = randoms(seed+2, g.N)
	return g
}

// reference computes g in float64 over c, which holds the initial C, and for every element the sum of magnitudes.
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
						v := float64(g.A[o*g.ABlock+i*g.ARow+s*g.ASeg+k*g.AStep]) * float64(g.B[(s*g.K+k)*g.BRow+j])
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

// peak measures GFLOP/s of the active set's multiply-add loop.
func peak() float64 {
	best := 0.0
	for range 5 {
		start := time.Now()
		flops := FMAPeak(1_000_000)
		best = max(best, float64(flops)/time.Since(start).Seconds()/1e9)
	}
	return best
}

func BenchmarkGemm(b *testing.B) {
	conv := func(h, w, c, k, f int) GemmArgs { // stride 1, VALID
		oh, ow := h-k+1, w-k+1
		return GemmArgs{Blocks: oh, M: ow, N: f, Segs: k, K: k * c, ABlock: w * c, ARow: c, ASeg: w * c, AStep: 1,
			BRow: f, CBlock: ow * f, CRow: f, Init: Bias, ReLU: true}
	}
	convDW := func(h, w, c, k, f int) GemmArgs {
		oh, ow := h-k+1, w-k+1
		return GemmArgs{Blocks: k, M: k * c, N: f, Segs: oh, K: ow, ABlock: w * c, ARow: 1, ASeg: w * c, AStep: c,
			BRow: f, CBlock: k * c * f, CRow: f, Init: Accumulate}
	}
	dense := func(m, n, k int) GemmArgs {
		return GemmArgs{M: m, N: n, K: k, ARow: k, AStep: 1, BRow: n, CRow: n}
	}
	transposed := func(m, n, k int) GemmArgs {
		return GemmArgs{M: m, N: n, K: k, ARow: 1, AStep: m, BRow: n, CRow: n}
	}
	for _, c := range []struct {
		name string
		g    GemmArgs
	}{
		{"mnist-conv1", conv(28, 28, 1, 3, 32)},
		{"mnist-conv1-dw", convDW(28, 28, 1, 3, 32)},
		{"mnist-conv2", conv(26, 26, 32, 3, 64)},
		{"mnist-conv2-dw", convDW(26, 26, 32, 3, 64)},
		{"mnist-conv2-dx", conv(28, 28, 64, 3, 32)},
		{"mnist-dense", dense(64, 10, 9216)},
		{"mnist-dense-dw", transposed(9216, 10, 64)},
		{"mnist-dense-dx", dense(64, 9216, 10)},
		{"mlp-1", dense(64, 256, 784)},
		{"mlp-1-dw", transposed(784, 256, 64)},
		{"mlp-2", dense(64, 10, 256)},
		{"mlp-2-dw", transposed(256, 10, 64)},
		{"mlp-2-dx", dense(64, 256, 10)},
		{"small-conv1", conv(28, 28, 1, 5, 8)},
		{"small-conv1-dw", convDW(28, 28, 1, 5, 8)},
		{"small-conv2", conv(12, 12, 8, 5, 16)},
		{"small-conv2-dw", convDW(12, 12, 8, 5, 16)},
		{"small-conv2-dx", conv(16, 16, 16, 5, 8)},
		{"conv3x3x256", conv(18, 18, 256, 3, 256)},
		{"conv3x3x256-dw", convDW(18, 18, 256, 3, 256)},
		{"256x1024x1024", dense(256, 1024, 1024)},
		{"64x1024x1024", dense(64, 1024, 1024)},
		{"1024x1024x256-t", transposed(1024, 1024, 256)},
		{"64x1000x1000", dense(64, 1000, 1000)},
		{"1024x1024x1024", dense(1024, 1024, 1024)},
	} {
		g := c.g
		blocks, segs := max(g.Blocks, 1), max(g.Segs, 1)
		g.A = randoms(1, (blocks-1)*g.ABlock+(g.M-1)*g.ARow+(segs-1)*g.ASeg+(g.K-1)*g.AStep+1)
		g.B = randoms(2, segs*g.K*g.N)
		g.C = make([]float32, (blocks-1)*g.CBlock+g.M*g.N)
		g.Bias = randoms(3, g.N)
		g.Scratch = new(Scratch)
		b.Run(c.name, func(b *testing.B) {
			top, best := peak(), math.Inf(1)
			for b.Loop() {
				start := time.Now()
				for range 4 {
					Gemm(&g)
				}
				best = min(best, time.Since(start).Seconds()/4)
			}
			rate := 2 * float64(blocks*g.M*g.N) * float64(segs*g.K) / best / 1e9
			b.ReportMetric(rate, "GFLOP/s")
			b.ReportMetric(100*rate/top, "%peak")
		})
	}
}
