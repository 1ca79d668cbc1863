package kernel

import "fmt"

// Init says what C holds before the products are added.
type Init int

const (
	Zero       Init = iota
	Accumulate      // C as it is
	Bias            // every row is GemmArgs.Bias
)

// GemmArgs is one C = A·B (+ initial C). All strides are in elements, none negative.
//
// The inner loop has two levels, so that a convolution over an NHWC image needs no copy of it:
// Segs segments (0 means 1) of K steps; step k of segment s is row s*K+k of B.
//
//	dense layer            Segs 1, ARow = inputs, AStep 1 (dW: ARow 1, AStep = inputs)
//	convolution, output row y   M = output x, ARow = stride*C, segment = kernel row, ASeg = W*C,
//	                       K = KW*C, AStep 1, B = weights [KH*KW*C, F]
//	dW of kernel row r     M = (kw,c) of KW*C, ARow 1, segment = output row, ASeg = stride*W*C,
//	                       K = output x, AStep = stride*C, B = dY [OH*OW, F]
//	dX                     the convolution of zero-padded dY with flipped weights [KH*KW*F, C]
type GemmArgs struct {
	M, N, K, Segs     int
	A                 []float32 // element (i, s, k) is A[i*ARow + s*ASeg + k*AStep]
	ARow, ASeg, AStep int
	B                 []float32 // element (s*K+k, j) is B[(s*K+k)*BRow + j]
	BRow              int
	C                 []float32 // element (i, j) is C[i*CRow + j]; overlaps neither A nor B
	CRow              int
	Init              Init
	Bias              []float32 // N elements, for Init Bias
	ReLU              bool      // negative results become 0
	Scratch           *Scratch  // for large matrices: nil does without packing
}

// Scratch is memory that calls of [Gemm] reuse, grown as needed: one for each thread.
type Scratch struct{ a, b []float32 }

// Gemm computes g.C. M, N or K may be 0; with no K it stores the initial C (after ReLU).
func Gemm(g *GemmArgs) {
	g.check()
	if g.M == 0 || g.N == 0 {
		return
	}
	a := *g
	a.Segs = max(a.Segs, 1)
	active.gemm(a)
}

func (g *GemmArgs) check() {
	if min(g.M, g.N, g.K, g.Segs, g.ARow, g.ASeg, g.AStep, g.BRow, g.CRow) < 0 {
		panic(fmt.Sprintf("kernel.Gemm: negative size or stride: %d×%d×%d×%d, A %d %d %d, B %d, C %d",
			g.M, g.N, g.Segs, g.K, g.ARow, g.ASeg, g.AStep, g.BRow, g.CRow))
	}
	if g.M == 0 || g.N == 0 {
		return
	}
	if g.M > 1 && g.CRow < g.N {
		panic(fmt.Sprintf("kernel.Gemm: rows of C, %d apart, overlap: N is %d", g.CRow, g.N))
	}
	segs := max(g.Segs, 1)
	if g.K > 0 {
		check("Gemm", "A", len(g.A), (g.M-1)*g.ARow+(segs-1)*g.ASeg+(g.K-1)*g.AStep+1)
		check("Gemm", "B", len(g.B), (segs*g.K-1)*g.BRow+g.N)
	}
	check("Gemm", "C", len(g.C), (g.M-1)*g.CRow+g.N)
	if g.Init == Bias {
		check("Gemm", "Bias", len(g.Bias), g.N)
	}
}

func gemmGeneric(g GemmArgs) {
	for i := range g.M {
		c := g.C[i*g.CRow:][:g.N]
		switch g.Init {
		case Zero:
			clear(c)
		case Bias:
			copy(c, g.Bias)
		}
		for s := range g.Segs {
			for k := range g.K {
				a := g.A[i*g.ARow+s*g.ASeg+k*g.AStep]
				for j, b := range g.B[(s*g.K+k)*g.BRow:][:g.N] {
					c[j] += a * b
				}
			}
		}
		if g.ReLU {
			for j, v := range c {
				if v < 0 {
					c[j] = 0
				}
			}
		}
	}
}
