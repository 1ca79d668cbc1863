package kernel

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// winograd transforms lines of three squares of the arena, which lie some elements apart.
func (a *arena) winograd(t Transform, lines, channels int) any {
	const tiles = 3
	squares := func(size int) Squares {
		line := tiles*channels + 2
		column := lines*line + 1
		return Squares{a.take(size * (size*column + 1)), size*column + 1, column, channels, line}
	}
	Winograd(t, squares(steps[t].outputs), squares(steps[t].inputs), lines, tiles, channels)
	return nil
}

// convolutionOf returns what tiles of some pixels a side have: the convolution of an image by a
// kernel, and the gradient of the kernel.
func convolutionOf(pixels int, image, kernel, grad []float32) (y, dk []float64) {
	y, dk = make([]float64, pixels*pixels), make([]float64, 9)
	for i := range pixels * pixels * 9 {
		out, tap := i/9, i%9
		v := float64(image[(out/pixels+tap/3)*(pixels+2)+out%pixels+tap%3])
		y[out] += v * float64(kernel[tap])
		dk[tap] += v * float64(grad[out])
	}
	return y, dk
}

// TestWinograd checks the transforms by what they are for: a convolution and its gradient.
func TestWinograd(t *testing.T) {
	forEachSet(t, func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			seed := rapid.Uint64().Draw(t, "seed")
			image, kernel, grad := randoms(seed, 36), randoms(seed+1, 9), randoms(seed+2, 16)
			transform := func(transform Transform, src []float32) []float32 {
				s := steps[transform]
				dst := make([]float32, s.outputs*s.outputs)
				Winograd(transform, Squares{Data: dst, Row: s.outputs, Column: 1},
					Squares{Data: src, Row: s.inputs, Column: 1}, 1, 1, 1)
				return dst
			}
			product := func(back, a Transform, x []float32, b Transform, y []float32) []float32 {
				points, others := transform(a, x), transform(b, y)
				for i, v := range others {
					points[i] *= v
				}
				return transform(back, points)
			}
			y, dk := convolutionOf(2, image, kernel, grad)
			large, largeDK := convolutionOf(4, image, kernel, grad)
			for what, results := range map[string]struct {
				got  []float32
				want []float64
			}{
				"convolution":            {product(TileToImage, ImageToTile, image, KernelToTile, kernel), y},
				"gradient of the kernel": {product(TileToKernel, ImageToTile, image, GradToTile, grad), dk},
				"convolution in large tiles": {
					product(LargeTileToImage, ImageToLargeTile, image, KernelToLargeTile, kernel), large,
				},
				"gradient of the kernel in large tiles": {
					product(LargeTileToKernel, ImageToLargeTile, image, GradToLargeTile, grad), largeDK,
				},
			} {
				for i, want := range results.want {
					if got := float64(results.got[i]); math.Abs(got-want) > 1e-4 {
						t.Fatalf("%s, element %d: %v, want %v", what, i, got, want)
					}
				}
			}
		})
	})
}
