package kernel

import (
	"fmt"
	"math"
)

// Transform is a step of a convolution with a kernel of 3 by 3 in tiles of 2 by 2 or 4 by 4 pixels,
// after Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015). The 4 by 4 or 6
// by 6 pixels that a tile depends on, and the kernel, are transformed to 16 or 36 points each. The
// points are multiplied and summed over the channels, which is 16 or 36 products of matrices, with
// 4 or 2.25 multiplications for each pixel instead of 9. The gradient of the kernel is computed the
// same way.
//
// A point is the product of two polynomials, of the pixels and the kernel, at 0, 1, -1 or infinity;
// for large tiles at 0, √½, -√½, √2, -√2 or infinity, which keep the errors of rounding
// small.
type Transform int

const (
	ImageToTile       Transform = iota // 4 by 4 pixels to 16 points
	TileToImage                        // 16 points to 2 by 2 pixels
	GradToTile                         // 2 by 2 pixels to 16 points
	KernelToTile                       // 3 by 3 to 16 points
	TileToKernel                       // 16 points to 3 by 3
	ImageToLargeTile                   // 6 by 6 pixels to 36 points
	LargeTileToImage                   // 36 points to 4 by 4 pixels
	GradToLargeTile                    // 4 by 4 pixels to 36 points
	KernelToLargeTile                  // 3 by 3 to 36 points
	LargeTileToKernel                  // 36 points to 3 by 3
)

// term is a coefficient and the number of a value.
type term struct {
	times float32
	of    int
}

// step is a transform, T·x·Tᵀ. T has a sum for each output. Values are the inputs, then the
// outputs, then sums that outputs share.
type step struct {
	inputs, outputs int
	sums            [][]term
}

const half, root = math.Sqrt2 / 2, math.Sqrt2

// steps has the transforms; tools/gen/kernel has them, too.
var steps = [...]step{
	ImageToTile:  {4, 4, [][]term{{{1, 0}, {-1, 2}}, {{1, 1}, {1, 2}}, {{1, 2}, {-1, 1}}, {{1, 3}, {-1, 1}}}},
	TileToImage:  {4, 2, [][]term{{{1, 0}, {1, 1}, {1, 2}}, {{1, 1}, {1, 3}, {-1, 2}}}},
	GradToTile:   {2, 4, [][]term{{{1, 0}}, {{1, 0}, {1, 1}}, {{1, 0}, {-1, 1}}, {{1, 1}}}},
	KernelToTile: {3, 4, [][]term{{{1, 0}}, {{.5, 0}, {.5, 1}, {.5, 2}}, {{.5, 0}, {.5, 2}, {-.5, 1}}, {{1, 2}}}},
	TileToKernel: {4, 3, [][]term{{{.5, 1}, {.5, 2}, {1, 0}}, {{.5, 1}, {-.5, 2}}, {{.5, 1}, {.5, 2}, {1, 3}}}},
	ImageToLargeTile: {6, 6, [][]term{
		{{1, 0}, {1, 4}, {-2.5, 2}},
		{{1, 12}, {1, 13}}, {{1, 12}, {-1, 13}}, {{1, 14}, {1, 15}}, {{1, 14}, {-1, 15}},
		{{1, 1}, {1, 5}, {-2.5, 3}},
		{{2, 2}, {-1, 4}}, {{root, 1}, {-half, 3}}, {{1, 4}, {-.5, 2}}, {{root, 3}, {-half, 1}},
	}},
	LargeTileToImage: {6, 4, [][]term{
		{{1, 0}, {1, 10}, {1, 11}}, {{1, 14}, {1, 15}}, {{.5, 10}, {2, 11}}, {{.5, 14}, {2, 15}, {1, 5}},
		{{1, 1}, {1, 2}}, {{1, 3}, {1, 4}}, {{1, 1}, {-1, 2}}, {{1, 3}, {-1, 4}}, {{half, 12}}, {{root, 13}},
	}},
	GradToLargeTile: {4, 6, [][]term{
		{{1, 0}},
		{{1, 10}, {1, 11}}, {{1, 10}, {-1, 11}}, {{1, 12}, {1, 13}}, {{1, 12}, {-1, 13}},
		{{1, 3}},
		{{1, 0}, {.5, 2}}, {{half, 1}, {half / 2, 3}}, {{1, 0}, {2, 2}}, {{root, 1}, {2 * root, 3}},
	}},
	KernelToLargeTile: {3, 6, [][]term{
		{{1, 0}},
		{{1, 9}, {1, 10}}, {{1, 9}, {-1, 10}}, {{1, 11}, {1, 12}}, {{1, 11}, {-1, 12}},
		{{1, 2}},
		{{2. / 3, 0}, {1. / 3, 2}}, {{half / 1.5, 1}}, {{1. / 6, 0}, {1. / 3, 2}}, {{root / 6, 1}},
	}},
	LargeTileToKernel: {6, 3, [][]term{
		{{2. / 3, 9}, {1. / 6, 10}, {1, 0}}, {{half / 1.5, 11}, {root / 6, 12}}, {{1. / 3, 9}, {1. / 3, 10}, {1, 5}},
		{{1, 1}, {1, 2}}, {{1, 3}, {1, 4}}, {{1, 1}, {-1, 2}}, {{1, 3}, {-1, 4}},
	}},
}

// Squares are lines of tiles, each of some channels: element (row, column) of tile t of line l and
// channel c is Data[row*Row + column*Column + l*Line + t*Tile + c].
type Squares struct {
	Data                    []float32
	Row, Column, Tile, Line int
}

func (s *Squares) check(name string, size, lines, tiles, channels int) {
	if min(s.Row, s.Column, s.Tile, s.Line) < 0 {
		panic(fmt.Sprintf("kernel.Winograd: negative stride of %s: %d %d %d %d", name, s.Row, s.Column, s.Tile,
			s.Line))
	}
	check("Winograd", name, len(s.Data), (size-1)*(s.Row+s.Column)+(lines-1)*s.Line+(tiles-1)*s.Tile+channels)
}

// Winograd transforms src to dst: lines of tiles of channels each. They do not overlap.
func Winograd(t Transform, dst, src Squares, lines, tiles, channels int) {
	if min(lines, tiles, channels) < 1 {
		return
	}
	dst.check("dst", steps[t].outputs, lines, tiles, channels)
	src.check("src", steps[t].inputs, lines, tiles, channels)
	const most = 1 << 14 // channels: see chunks
	for ; channels > most; channels -= most {
		active.winograd(t, dst, src, lines, tiles, most)
		dst.Data, src.Data = dst.Data[most:], src.Data[most:]
	}
	active.winograd(t, dst, src, lines, tiles, channels)
}

func winogradGeneric(t Transform, dst, src Squares, lines, tiles, channels int) {
	s := &steps[t]
	// values along the rows, and down the columns
	var columns, square [6][16]float32
	for i := range lines * tiles * channels {
		line, tile, channel := i/channels/tiles, i/channels%tiles, i%channels
		from, to := line*src.Line+tile*src.Tile+channel, line*dst.Line+tile*dst.Tile+channel
		for r := range s.inputs {
			for c := range s.inputs {
				columns[r][c] = src.Data[r*src.Row+c*src.Column+from]
			}
			s.apply(&columns[r])
		}
		for j := range s.outputs {
			for r := range s.inputs {
				square[j][r] = columns[r][s.inputs+j]
			}
			s.apply(&square[j])
			for i := range s.outputs {
				dst.Data[i*dst.Row+j*dst.Column+to] = square[j][s.inputs+i]
			}
		}
	}
}

// apply computes the values after the inputs: those sums first that outputs share, and the last of
// which use the others.
func (s *step) apply(values *[16]float32) {
	compute := func(from, to int) {
		for i := from; i < to; i++ {
			var sum float32
			for j, t := range s.sums[i] {
				// rounded before it is added, as the vector kernels do
				if product := float32(t.times * values[t.of]); j == 0 {
					sum = product
				} else {
					sum += product
				}
			}
			values[s.inputs+i] = sum
		}
	}
	compute(s.outputs, len(s.sums))
	compute(0, s.outputs)
}
