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
	Winograd(t, squares(len(matrices[t])), squares(len(matrices[t][0])), lines, tiles, channels)
	return nil
}

// TestWinograd checks the transforms by what they are for: a convolution and its gradient.
func TestWinograd(t *testing.T) {
	forEachSet(t, func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			seed := rapid.Uint64().Draw(t, "seed")
			image, kernel, grad := randoms(seed, 16), randoms(seed+1, 9), randoms(seed+2, 4)
			flat := func(data []float32, size int) Squares { return Squares{Data: data, Row: size, Column: 1} }
			points := func(transform Transform, src []float32, size int) []float32 {
				dst := make([]float32, 16)
				Winograd(transform, flat(dst, 4), flat(src, size), 1, 1, 1)
				return dst
			}
			x, k := points(ImageToTile, image, 4), points(KernelToTile, kernel, 3)
			g := points(GradToTile, grad, 2)
			for i, v := range x {
				k[i] *= v
				g[i] *= v
			}
			y, dk := make([]float32, 4), make([]float32, 9)
			Winograd(TileToImage, flat(y, 2), flat(k, 4), 1, 1, 1)
			Winograd(TileToKernel, flat(dk, 3), flat(g, 4), 1, 1, 1)
			wantY, wantDK := make([]float64, 4), make([]float64, 9)
			for i := range 4 * 9 {
				out, tap := i/9, i%9
				v := float64(image[(out/2+tap/3)*4+out%2+tap%3])
				wantY[out] += v * float64(kernel[tap])
				wantDK[tap] += v * float64(grad[out])
			}
			for what, results := range map[string]struct {
				got  []float32
				want []float64
			}{"convolution": {y, wantY}, "gradient of the kernel": {dk, wantDK}} {
				for i, want := range results.want {
					if got := float64(results.got[i]); math.Abs(got-want) > 1e-4 {
						t.Fatalf("%s, element %d: %v, want %v", what, i, got, want)
					}
				}
			}
		})
	})
}
