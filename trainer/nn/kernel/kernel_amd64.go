package kernel

import "golang.org/x/sys/cpu"

// vectorSets returns the sets that the processor runs; x/sys/cpu asks the operating system
// too whether it saves the registers.
func vectorSets() []*set {
	x := &cpu.X86
	if !x.HasAVX2 || !x.HasFMA || !x.HasBMI2 {
		return nil
	}
	if !x.HasAVX512F || !x.HasAVX512BW || !x.HasAVX512DQ || !x.HasAVX512VL {
		return []*set{&avx2}
	}
	return []*set{&avx512, &avx2}
}

var avx512 = set{
	name: "avx512", gemm: gemmAVX512,
	axpy: axpyAVX512, add: addAVX512, sum: sumAVX512, scale: scaleAVX512,
	reluGrad: reluGradAVX512, addRows: addRowsAVX512, columnStats: columnStatsAVX512,
	scaleShift: scaleShiftAVX512, batchNormGrad: batchNormGradAVX512,
	maxPool: maxPoolAVX512, maxPoolGrad: maxPoolGradAVX512, dropout: dropoutAVX512,
	transpose: transposeVector, bytesToFloat: bytesToFloatAVX512, firstNonFinite: firstNonFinite(finitePrefixAVX512),
	sgd: sgdAVX512, momentum: momentumAVX512, nesterov: nesterovAVX512, adam: adamAVX512, amsgrad: amsgradAVX512,
	adagrad: adagradAVX512, fmaPeak: fmaPeakAVX512,
}

var avx2 = set{
	name: "avx2", gemm: gemmAVX2,
	axpy: axpyAVX2, add: addAVX2, sum: sumAVX2, scale: scaleAVX2,
	reluGrad: reluGradAVX2, addRows: addRowsAVX2, columnStats: columnStatsAVX2,
	scaleShift: scaleShiftAVX2, batchNormGrad: batchNormGradAVX2,
	maxPool: maxPoolNarrow, maxPoolGrad: maxPoolGradNarrow, dropout: dropoutAVX2,
	transpose: transposeVector, bytesToFloat: bytesToFloatNarrow, firstNonFinite: firstNonFinite(finitePrefixAVX2),
	sgd: sgdAVX2, momentum: momentumAVX2, nesterov: nesterovAVX2, adam: adamAVX2, amsgrad: amsgradAVX2,
	adagrad: adagradAVX2, fmaPeak: fmaPeakAVX2,
}

func firstNonFinite(prefix func(x []float32) int) func(x []float32) int {
	return func(x []float32) int {
		n := prefix(x)
		if i := firstNonFiniteGeneric(x[n:]); i >= 0 {
			return n + i
		}
		return -1
	}
}

// AVX2 has masks for float32 but not for bytes.

func maxPoolNarrow(dst []float32, index []uint8, top, bottom []float32, channels int) {
	if channels%8 == 0 {
		maxPoolAVX2(dst, index, top, bottom, channels)
	} else {
		maxPoolGeneric(dst, index, top, bottom, channels)
	}
}

func maxPoolGradNarrow(dtop, dbottom, dy []float32, index []uint8, channels int) {
	if channels%8 == 0 {
		maxPoolGradAVX2(dtop, dbottom, dy, index, channels)
	} else {
		maxPoolGradGeneric(dtop, dbottom, dy, index, channels)
	}
}

func bytesToFloatNarrow(dst []float32, src []byte, scale, shift float32) {
	n := len(src) &^ 7
	bytesToFloatAVX2(dst[:n], src[:n], scale, shift)
	bytesToFloatGeneric(dst[n:], src[n:], scale, shift)
}

// transposeVector moves blocks of 8 by 8, and what is left over in plain Go.
func transposeVector(dst []float32, dstRow int, src []float32, srcRow, rows, cols int) {
	r8, c8 := rows&^7, cols&^7
	if c8 > 0 {
		for r := 0; r < r8; r += 8 {
			transpose8AVX2(&dst[r], 4*dstRow, &src[r*srcRow], 4*srcRow, c8/8)
		}
	}
	if c8 < cols {
		transposeGeneric(dst[c8*dstRow:], dstRow, src[c8:], srcRow, r8, cols-c8)
	}
	if r8 < rows {
		transposeGeneric(dst[r8:], dstRow, src[r8*srcRow:], srcRow, rows-r8, cols)
	}
}
