package main

import (
	"slices"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// transforms lists the transforms of Winograd's convolutions: dst = T·src·Tᵀ, for squares of
// vectors. Coefficients are written in halves.
var transforms = []struct {
	name   string
	matrix [][]int
}{
	{"ImageToTile", [][]int{{2, 0, -2, 0}, {0, 2, 2, 0}, {0, -2, 2, 0}, {0, -2, 0, 2}}},
	{"TileToImage", [][]int{{2, 2, 2, 0}, {0, 2, -2, 2}}},
	{"GradToTile", [][]int{{2, 0}, {2, 2}, {2, -2}, {0, 2}}},
	{"KernelToTile", [][]int{{2, 0, 0}, {1, 1, 1}, {1, -1, 1}, {0, 0, 2}}},
	{"TileToKernel", [][]int{{2, 1, 1, 0}, {0, 1, -1, 0}, {0, 1, 1, 2}}},
}

// winograd generates the transforms. The vectors of a square lie in rows and columns; a tile is
// some squares of channels next to each other, of which there are several in a line.
func winograd(m *machine) {
	for _, t := range transforms {
		m.function(t.name, "func(dst *float32, dstRow, dstColumn, dstTile, dstLine int, "+
			"src *float32, srcRow, srcColumn, srcTile, srcLine, lines, tiles, channels int)",
			"transforms squares. Strides are in bytes, those of lines from end to begin.")
		w := squares{machine: m, matrix: t.matrix}
		w.build()
	}
}

type squares struct {
	*machine
	matrix   [][]int
	dst, src grid
	half     reg.VecVirtual
}

// grid is a square: pointers to its rows, and one and three times the distance of columns.
type grid struct {
	rows       []reg.GPVirtual
	one, three reg.GPVirtual
}

func (s *squares) grid(name string, size int) grid {
	g := grid{one: s.GP64(), three: s.GP64()}
	s.Load(s.Param(name+"Row"), g.one) // until the rows have pointers
	for i := range size {
		r := s.GP64()
		if i == 0 {
			s.Load(s.Param(name), r)
		} else {
			s.LEAQ(operand.Mem{Base: g.rows[i-1], Index: g.one, Scale: 1}, r)
		}
		g.rows = append(g.rows, r)
	}
	s.Load(s.Param(name+"Column"), g.one)
	s.LEAQ(operand.Mem{Base: g.one, Index: g.one, Scale: 2}, g.three)
	return g
}

func (g grid) at(row, column int) operand.Mem {
	switch m := (operand.Mem{Base: g.rows[row]}); column {
	case 0:
		return m
	case 3:
		m.Index, m.Scale = g.three, 1
		return m
	default:
		m.Index, m.Scale = g.one, uint8(column)
		return m
	}
}

// argument returns where an integer parameter lies.
func (s *squares) argument(name string) operand.Mem {
	b, err := s.Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

func (s *squares) build() {
	s.half = s.constant(0x3f000000)
	left, tiles := s.GP64(), s.GP64()
	s.Load(s.Param("channels"), left)
	s.ANDQ(operand.U32(uint32(s.lanes-1)), left)
	s.first(left, s.GP64())
	mask := s.mask
	s.dst, s.src = s.grid("dst", len(s.matrix)), s.grid("src", len(s.matrix[0]))
	s.Label("line")
	s.Load(s.Param("tiles"), tiles)
	s.Label("tile")
	s.Load(s.Param("channels"), left)
	s.Label("channels")
	s.SUBQ(operand.U32(uint32(s.lanes)), left)
	s.JLT(operand.LabelRef("tail"))
	s.mask = nil
	s.square()
	for _, r := range s.pointers() {
		s.ADDQ(operand.U32(uint32(s.bytes())), r)
	}
	s.JMP(operand.LabelRef("channels"))
	s.Label("tail")
	s.ADDQ(operand.U32(uint32(s.lanes)), left)
	s.JZ(operand.LabelRef("next"))
	s.mask = mask
	s.square()
	s.mask = nil
	s.Label("next")
	// back to the first of the channels, and on to the next tile
	s.SUBQ(s.argument("channels"), left)
	s.SHLQ(operand.U8(2), left)
	for _, r := range s.pointers() {
		s.ADDQ(left, r)
	}
	s.advance("Tile")
	s.DECQ(tiles)
	s.JNZ(operand.LabelRef("tile"))
	s.advance("Line")
	s.DECQ(s.argument("lines"))
	s.JNZ(operand.LabelRef("line"))
	s.end()
}

// advance moves on to the next tile or line.
func (s *squares) advance(to string) {
	for _, r := range s.dst.rows {
		s.ADDQ(s.argument("dst"+to), r)
	}
	for _, r := range s.src.rows {
		s.ADDQ(s.argument("src"+to), r)
	}
}

func (s *squares) pointers() []reg.GPVirtual { return slices.Concat(s.dst.rows, s.src.rows) }

// square transforms one square, a column of the result after the other.
func (s *squares) square() {
	for j, along := range s.matrix {
		var column []operand.Op
		for r := range s.src.rows {
			column = append(column, s.combine(along, func(c int) operand.Op { return s.src.at(r, c) }))
		}
		for i, down := range s.matrix {
			s.store(s.combine(down, func(r int) operand.Op { return column[r] }).(reg.VecVirtual), s.dst.at(i, j))
		}
	}
}

// combine returns the sum of vectors with a row of coefficients: halves first, and of each kind
// those above 0 first.
func (s *squares) combine(row []int, vector func(i int) operand.Op) operand.Op {
	var sum operand.Op
	for _, unit := range []int{1, 2} {
		for _, sign := range []int{1, -1} {
			for i, c := range row {
				if c == sign*unit {
					sum = s.plus(sum, sign, vector(i))
				}
			}
		}
		if unit == 1 && sum != nil {
			s.VMULPS(s.half, sum, sum)
		}
	}
	return sum
}

// plus returns sum plus or minus x, which may be in memory; no sum is 0.
func (s *squares) plus(sum operand.Op, sign int, x operand.Op) operand.Op {
	if mem, ok := x.(operand.Mem); ok && (sum == nil || s.mask != nil) {
		x = s.load(mem)
	}
	if sum == nil {
		return x
	}
	to := s.reg()
	if sign > 0 {
		s.VADDPS(x, sum, to)
	} else {
		s.VSUBPS(x, sum, to)
	}
	return to
}
