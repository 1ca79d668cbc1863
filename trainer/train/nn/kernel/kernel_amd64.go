package kernel

import (
	"golang.org/x/sys/cpu"

	"github.com/elasticdl/elasticdl/trainer/train/nn/kernel/avx"
)

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
	axpy: avx.AxpyAVX512, add: avx.AddAVX512, sum: avx.SumAVX512, scale: avx.ScaleAVX512,
	reluGrad: avx.ReluGradAVX512, addRows: avx.AddRowsAVX512, columnStats: avx.ColumnStatsAVX512,
	scaleShift: avx.ScaleShiftAVX512, batchNormGrad: avx.BatchNormGradAVX512,
	maxPool: avx.MaxPoolAVX512, maxPoolGrad: avx.MaxPoolGradAVX512, dropout: avx.DropoutAVX512,
	transpose: transposeVector, winograd: winogradAVX512, bytesToFloat: avx.BytesToFloatAVX512,
	firstNonFinite: firstNonFinite(avx.FinitePrefixAVX512),
	sgd:            avx.SgdAVX512, momentum: avx.MomentumAVX512, nesterov: avx.NesterovAVX512,
	adam: avx.AdamAVX512, amsgrad: avx.AmsgradAVX512,
	adagrad: avx.AdagradAVX512, fmaPeak: avx.FmaPeakAVX512,
}

var avx2 = set{
	name: "avx2", gemm: gemmAVX2,
	axpy: avx.AxpyAVX2, add: avx.AddAVX2, sum: avx.SumAVX2, scale: avx.ScaleAVX2,
	reluGrad: avx.ReluGradAVX2, addRows: avx.AddRowsAVX2, columnStats: avx.ColumnStatsAVX2,
	scaleShift: avx.ScaleShiftAVX2, batchNormGrad: avx.BatchNormGradAVX2,
	maxPool: maxPoolNarrow, maxPoolGrad: maxPoolGradNarrow, dropout: avx.DropoutAVX2,
	transpose: transposeVector, winograd: winogradAVX2, bytesToFloat: bytesToFloatNarrow,
	firstNonFinite: firstNonFinite(avx.FinitePrefixAVX2),
	sgd:            avx.SgdAVX2, momentum: avx.MomentumAVX2, nesterov: avx.NesterovAVX2, adam: avx.AdamAVX2,
	amsgrad: avx.AmsgradAVX2,
	adagrad: avx.AdagradAVX2, fmaPeak: avx.FmaPeakAVX2,
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
		avx.MaxPoolAVX2(dst, index, top, bottom, channels)
	} else {
		maxPoolGeneric(dst, index, top, bottom, channels)
	}
}

func maxPoolGradNarrow(dtop, dbottom, dy []float32, index []uint8, channels int) {
	if channels%8 == 0 {
		avx.MaxPoolGradAVX2(dtop, dbottom, dy, index, channels)
	} else {
		maxPoolGradGeneric(dtop, dbottom, dy, index, channels)
	}
}

func bytesToFloatNarrow(dst []float32, src []byte, scale, shift float32) {
	n := len(src) &^ 7
	avx.BytesToFloatAVX2(dst[:n], src[:n], scale, shift)
	bytesToFloatGeneric(dst[n:], src[n:], scale, shift)
}

// transposeVector moves blocks of 8 by 8, and what is left over in plain Go.
func transposeVector(dst []float32, dstRow int, src []float32, srcRow, rows, cols int) {
	r8, c8 := rows&^7, cols&^7
	if c8 > 0 {
		for r := 0; r < r8; r += 8 {
			avx.Transpose8AVX2(&dst[r], 4*dstRow, &src[r*srcRow], 4*srcRow, c8/8)
		}
	}
	if c8 < cols {
		transposeGeneric(dst[c8*dstRow:], dstRow, src[c8:], srcRow, r8, cols-c8)
	}
	if r8 < rows {
		transposeGeneric(dst[r8:], dstRow, src[r8*srcRow:], srcRow, rows-r8, cols)
	}
}

func winogradAVX512(t Transform, dst, src Squares, lines, tiles, channels int) {
	transformsAVX512[t](&dst.Data[0], 4*dst.Row, 4*dst.Column, 4*dst.Tile, 4*(dst.Line-tiles*dst.Tile),
		&src.Data[0], 4*src.Row, 4*src.Column, 4*src.Tile, 4*(src.Line-tiles*src.Tile), lines, tiles, channels)
}

func winogradAVX2(t Transform, dst, src Squares, lines, tiles, channels int) {
	transformsAVX2[t](&dst.Data[0], 4*dst.Row, 4*dst.Column, 4*dst.Tile, 4*(dst.Line-tiles*dst.Tile),
		&src.Data[0], 4*src.Row, 4*src.Column, 4*src.Tile, 4*(src.Line-tiles*src.Tile), lines, tiles, channels)
}

// transforms are the functions for each [Transform].
type transforms [LargeTileToKernel + 1]func(dst *float32, dstRow, dstColumn, dstTile, dstLine int,
	src *float32, srcRow, srcColumn, srcTile, srcLine, lines, tiles, channels int)

var (
	transformsAVX512 = transforms{avx.ImageToTileAVX512, avx.TileToImageAVX512, avx.GradToTileAVX512,
		avx.KernelToTileAVX512, avx.TileToKernelAVX512, avx.ImageToLargeTileAVX512,
		avx.LargeTileToImageAVX512, avx.GradToLargeTileAVX512, avx.KernelToLargeTileAVX512,
		avx.LargeTileToKernelAVX512}
	transformsAVX2 = transforms{avx.ImageToTileAVX2, avx.TileToImageAVX2, avx.GradToTileAVX2,
		avx.KernelToTileAVX2, avx.TileToKernelAVX2, avx.ImageToLargeTileAVX2,
		avx.LargeTileToImageAVX2, avx.GradToLargeTileAVX2, avx.KernelToLargeTileAVX2,
		avx.LargeTileToKernelAVX2}
)

// Pause does nothing for some tens of cycles. A loop that waits for another thread calls it, so
// that it does not slow a thread on the same core.
func Pause() { avx.Pause() }
