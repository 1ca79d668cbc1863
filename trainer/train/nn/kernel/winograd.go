package kernel

import "fmt"

// Transform is a step of a convolution with a kernel of 3 by 3 in tiles of 2 by 2 pixels, after
// Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015). The 4 by 4 pixels
// that a tile depends on, and the kernel, are transformed to 16 points each. The points are
// multiplied and summed over the channels, which is 16 products of matrices, with 4 multiplications
// for each pixel instead of 9. The gradient of the kernel is computed the same way.
type Transform int

const (
	ImageToTile  Transform = iota // 4 by 4 pixels to 16 points
	TileToImage                   // 16 points to 2 by 2 pixels
	GradToTile                    // 2 by 2 pixels to 16 points
	KernelToTile                  // 3 by 3 to 16 points
	TileToKernel                  // 16 points to 3 by 3
)

// matrices has the transforms, T·x·Tᵀ each, as coefficients in halves.
var matrices = [...][][]int{
	ImageToTile:  {{2, 0, -2, 0}, {0, 2, 2, 0}, {0, -2, 2, 0}, {0, -2, 0, 2}},
	TileToImage:  {{2, 2, 2, 0}, {0, 2, -2, 2}},
	GradToTile:   {{2, 0}, {2, 2}, {2, -2}, {0, 2}},
	KernelToTile: {{2, 0, 0}, {1, 1, 1}, {1, -1, 1}, {0, 0, 2}},
	TileToKernel: {{2, 1, 1, 0}, {0, 1, -1, 0}, {0, 1, 1, 2}},
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
	dst.check("dst", len(matrices[t]), lines, tiles, channels)
	src.check("src", len(matrices[t][0]), lines, tiles, channels)
	const most = 1 << 14 // channels: see chunks
	for ; channels > most; channels -= most {
		active.winograd(t, dst, src, lines, tiles, most)
		dst.Data, src.Data = dst.Data[most:], src.Data[most:]
	}
	active.winograd(t, dst, src, lines, tiles, channels)
}

func winogradGeneric(t Transform, dst, src Squares, lines, tiles, channels int) {
	var square, column [4]float32
	for i := range lines * tiles * channels {
		line, tile, channel := i/channels/tiles, i/channels%tiles, i%channels
		from, to := line*src.Line+tile*src.Tile+channel, line*dst.Line+tile*dst.Tile+channel
		for j, along := range matrices[t] {
			for r := range along {
				for c := range along {
					square[c] = src.Data[r*src.Row+c*src.Column+from]
				}
				column[r] = combine(along, &square)
			}
			for i, down := range matrices[t] {
				dst.Data[i*dst.Row+j*dst.Column+to] = combine(down, &column)
			}
		}
	}
}

// combine returns the sum of x with a row of coefficients: halves first, and of each kind those
// above 0 first.
func combine(row []int, x *[4]float32) (sum float32) {
	empty := true
	for unit := 1; unit <= 2; unit++ {
		for sign := 1; sign >= -1; sign -= 2 {
			for i, c := range row {
				switch {
				case c != sign*unit:
				case empty:
					sum, empty = x[i], false
				case sign > 0:
					sum += x[i]
				default:
					sum -= x[i]
				}
			}
		}
		if unit == 1 && !empty {
			sum *= 0.5
		}
	}
	return sum
}
