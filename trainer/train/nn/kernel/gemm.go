package kernel

import "fmt"

// Init is the content of C before the products are added.
type Init int

const (
	Zero       Init = iota
	Accumulate      // C unchanged
	Bias            // every row is GemmArgs.Bias
)

// GemmArgs is one C = A·B (+ initial C). All strides are in elements, none negative.
//
// Rows come in Blocks (0 means 1) of M rows, the inner loop in Segs (0 means 1) segments of K
// steps, so that a convolution over an NHWC image [H, W, C] is one call and needs no copy of the
// image:
//
//	          row i of block o is         segment s, step k are     B
//	forward   output pixel (o, i)         kernel row, (kw, c)       weights [KH*KW*C, F]
//	          ABlock stride*W*C           ASeg W*C
//	          ARow stride*C               AStep 1, K = KW*C
//	dW        (kernel row o, (kw, c))     output row, column        dY [OH*OW, F]
//	          ABlock W*C                  ASeg stride*W*C
//	          ARow 1, M = KW*C            AStep stride*C
//	dX        the forward pass of zero-padded dY with flipped weights [KH*KW*F, C]
//
// The products of a convolution in tiles (see [Winograd]) are blocks with a B each. A dense
// layer has one block and one segment: ARow = inputs, AStep 1; its dW has ARow 1, AStep = inputs.
type GemmArgs struct {
	M, N, K      int
	Blocks, Segs int
	// element (o, i, s, k) is A[o*ABlock + i*ARow + s*ASeg + k*AStep]
	A            []float32
	ABlock, ARow int
	ASeg, AStep  int
	// element (o, s, k, j) is B[o*BBlock + (s*K+k)*BRow + j]
	B            []float32
	BBlock, BRow int
	// element (o, i, j) is C[o*CBlock + i*CRow + j]; overlaps neither A nor B
	C            []float32
	CBlock, CRow int
	Init         Init
	// N elements, for Init Bias
	Bias []float32
	// negative results become 0
	ReLU bool
	// lets large matrices be packed; without it they are slower
	Scratch *Scratch
}

// Scratch is memory that calls of [Gemm] reuse, grown as needed: one for each thread.
type Scratch struct{ a, b []float32 }

// Gemm computes g.C. With no K it stores the initial C (after ReLU).
func Gemm(g *GemmArgs) {
	a := *g
	a.Blocks, a.Segs = max(a.Blocks, 1), max(a.Segs, 1)
	a.check()
	if a.M > 0 && a.N > 0 {
		active.gemm(a)
	}
}

// check panics unless every element that g names exists, once in C.
func (g *GemmArgs) check() {
	if min(g.M, g.N, g.K, g.ABlock, g.ARow, g.ASeg, g.AStep, g.BBlock, g.BRow, g.CBlock, g.CRow) < 0 {
		panic(fmt.Sprintf("kernel.Gemm: negative size or stride: M %d N %d K %d, A %d %d %d %d, B %d %d, C %d %d",
			g.M, g.N, g.K, g.ABlock, g.ARow, g.ASeg, g.AStep, g.BBlock, g.BRow, g.CBlock, g.CRow))
	}
	if g.M == 0 || g.N == 0 {
		return
	}
	// elements of C from the first to the last of a block
	block := (g.M-1)*g.CRow + g.N
	if g.M > 1 && g.CRow < g.N || g.Blocks > 1 && g.CBlock < g.N {
		panic(fmt.Sprintf("kernel.Gemm: rows of C overlap: N %d, C %d %d", g.N, g.CBlock, g.CRow))
	}
	if g.K > 0 {
		check("Gemm", "A", len(g.A), (g.Blocks-1)*g.ABlock+(g.M-1)*g.ARow+(g.Segs-1)*g.ASeg+(g.K-1)*g.AStep+1)
		check("Gemm", "B", len(g.B), (g.Blocks-1)*g.BBlock+(g.Segs*g.K-1)*g.BRow+g.N)
	}
	check("Gemm", "C", len(g.C), (g.Blocks-1)*g.CBlock+block)
	if g.Init == Bias {
		check("Gemm", "Bias", len(g.Bias), g.N)
	}
}

func gemmGeneric(g GemmArgs) {
	for o := range g.Blocks {
		for i := range g.M {
			g.row(o*g.ABlock+i*g.ARow, o*g.BBlock, g.C[o*g.CBlock+i*g.CRow:][:g.N])
		}
	}
}

// row computes one row of C from the row of A that begins at element a and the B at element b.
func (g *GemmArgs) row(a, b int, c []float32) {
	switch g.Init {
	case Zero:
		clear(c)
	case Bias:
		copy(c, g.Bias)
	}
	for s := range g.Segs {
		k := 0
		// the same sums, with a quarter of the traffic
		for ; k+4 <= g.K; k += 4 {
			at := a + s*g.ASeg + k*g.AStep
			x0, x1, x2, x3 := g.A[at], g.A[at+g.AStep], g.A[at+2*g.AStep], g.A[at+3*g.AStep]
			b := g.B[b+(s*g.K+k)*g.BRow:]
			b0, b1, b2, b3 := b[:len(c)], b[g.BRow:][:len(c)], b[2*g.BRow:][:len(c)], b[3*g.BRow:][:len(c)]
			for j, v := range c {
				c[j] = v + x0*b0[j] + x1*b1[j] + x2*b2[j] + x3*b3[j]
			}
		}
		for ; k < g.K; k++ {
			x := g.A[a+s*g.ASeg+k*g.AStep]
			for j, b := range g.B[b+(s*g.K+k)*g.BRow:][:len(c)] {
				c[j] += x * b
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
