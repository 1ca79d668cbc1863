package kernel

import (
	"math"
	"testing"
	"time"
)

// now returns the time for benchmarks.
var now = func() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}()

// fastest returns the least seconds of a call of f in the benchmark.
func fastest(b *testing.B, f func()) float64 {
	best := math.Inf(1)
	for b.Loop() {
		start := now()
		for range 4 {
			f()
		}
		best = min(best, (now()-start).Seconds()/4)
	}
	return best
}

// peak measures GFLOP/s of the active set's multiply-add loop.
func peak() float64 {
	best := 0.0
	// many short runs, of which some are not interrupted
	for range 1000 {
		start := now()
		flops := FMAPeak(5_000)
		best = max(best, float64(flops)/(now()-start).Seconds()/1e9)
	}
	return best
}

// conv returns the product of the forward pass of an image with stride 1 and no padding. dX is the
// same of a padded image.
func conv(h, w, c, k, f int) GemmArgs {
	oh, ow := h-k+1, w-k+1
	return GemmArgs{Blocks: oh, M: ow, N: f, Segs: k, K: k * c, ABlock: w * c, ARow: c, ASeg: w * c, AStep: 1,
		BRow: f, CBlock: ow * f, CRow: f, Init: Bias, ReLU: true}
}

func convGrad(h, w, c, k, f int) GemmArgs {
	oh, ow := h-k+1, w-k+1
	return GemmArgs{Blocks: k, M: k * c, N: f, Segs: oh, K: ow, ABlock: w * c, ARow: 1, ASeg: w * c, AStep: c,
		BRow: f, CBlock: k * c * f, CRow: f, Init: Accumulate}
}

func dense(m, n, k int) GemmArgs {
	return GemmArgs{M: m, N: n, K: k, ARow: k, AStep: 1, BRow: n, CRow: n}
}

func denseGrad(m, n, k int) GemmArgs {
	return GemmArgs{M: m, N: n, K: k, ARow: 1, AStep: m, BRow: n, CRow: n}
}

// BenchmarkGemm reports the fastest call, and the peak that was measured at the same time.
func BenchmarkGemm(b *testing.B) {
	for _, c := range []struct {
		name string
		g    GemmArgs
	}{
		{"mnist-conv1", conv(28, 28, 1, 3, 32)},
		{"mnist-conv1-dw", convGrad(28, 28, 1, 3, 32)},
		{"mnist-conv2", conv(26, 26, 32, 3, 64)},
		{"mnist-conv2-dw", convGrad(26, 26, 32, 3, 64)},
		{"mnist-conv2-dx", conv(28, 28, 64, 3, 32)},
		{"mnist-dense", dense(64, 10, 9216)},
		{"mnist-dense-dw", denseGrad(9216, 10, 64)},
		{"mnist-dense-dx", dense(64, 9216, 10)},
		{"mlp-1", dense(64, 256, 784)},
		{"mlp-1-dw", denseGrad(784, 256, 64)},
		{"mlp-2", dense(64, 10, 256)},
		{"mlp-2-dw", denseGrad(256, 10, 64)},
		{"mlp-2-dx", dense(64, 256, 10)},
		{"small-conv1", conv(28, 28, 1, 5, 8)},
		{"small-conv1-dw", convGrad(28, 28, 1, 5, 8)},
		{"small-conv2", conv(12, 12, 8, 5, 16)},
		{"small-conv2-dw", convGrad(12, 12, 8, 5, 16)},
		{"small-conv2-dx", conv(16, 16, 16, 5, 8)},
		{"conv3x3x256", conv(18, 18, 256, 3, 256)},
		{"conv3x3x256-dw", convGrad(18, 18, 256, 3, 256)},
		{"256x1024x1024", dense(256, 1024, 1024)},
		{"64x1024x1024", dense(64, 1024, 1024)},
		{"1024x1024x256-dw", denseGrad(1024, 1024, 256)},
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
			top := peak()
			rate := 2 * float64(blocks*g.M*g.N) * float64(segs*g.K) / fastest(b, func() { Gemm(&g) }) / 1e9
			b.ReportMetric(rate, "GFLOP/s")
			b.ReportMetric(100*rate/top, "%peak")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkVector runs the functions on 100,000 elements, rows of 64 columns or of 8, and reports
// billions of elements a second.
func BenchmarkVector(b *testing.B) {
	const n = 102_400
	x, y, z := randoms(1, n), randoms(2, n), randoms(3, n)
	v, w, big := make([]float32, n), make([]float32, n), make([]float32, 2*n)
	index, column := make([]uint8, n), make([]float64, 64)
	for _, c := range []struct {
		name string
		f    func()
	}{
		{"Copy", func() { copy(x, y) }},
		{"Axpy", func() { Axpy(1e-9, x, y) }},
		{"Add", func() { Add(z, v) }},
		{"ReluGrad", func() { ReluGrad(x, y) }},
		{"AddRows64", func() { AddRows(z[:64], x) }},
		{"AddRows8", func() { AddRows(z[:8], x) }},
		{"ColumnStats64", func() { ColumnStats(column, column, x, y) }},
		{"ColumnStats8", func() { ColumnStats(column[:8], column[:8], x, y) }},
		{"ScaleShift64", func() { ScaleShift(v, x, y[:64], y[64:], true) }},
		{"ScaleShift8", func() { ScaleShift(v, x, y[:8], y[64:], true) }},
		{"BatchNormGrad64", func() { BatchNormGrad(v, x, y, y[:64], z[:64], z[64:], true) }},
		{"MaxPool64", func() { MaxPool2x2(v[:n/2], index[:n/2], x, y, 64) }},
		{"MaxPool8", func() { MaxPool2x2(v[:n/2], index[:n/2], x, y, 8) }},
		{"MaxPoolGrad64", func() { MaxPool2x2Grad(big[:n], big[n:], x[:n/2], index, 64) }},
		{"MaxPoolGrad8", func() { MaxPool2x2Grad(big[:n], big[n:], x[:n/2], index, 8) }},
		{"Dropout", func() { Dropout(v, x, 1, 0, 1<<30, 1) }},
		{"Transpose", func() { Transpose(v, 320, x, 320, 320, 320) }},
		{"BytesToFloat", func() { BytesToFloat(v, index, 1, 0) }},
		{"FirstNonFinite", func() { FirstNonFinite(x) }},
		{"SGD", func() { SGD(v, x, 0) }},
		{"Momentum", func() { Momentum(v, x, w, 0, 0, false) }},
		{"Adam", func() { Adam(v, x, w, big[:n], 0, 0, 0, 1) }},
		{"AMSGrad", func() { AMSGrad(v, x, w, big[:n], big[n:], 0, 0, 0, 1) }},
		{"Adagrad", func() { Adagrad(v, x, big[:n], 0, 1) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportMetric(n/fastest(b, c.f)/1e9, "Gelement/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}
