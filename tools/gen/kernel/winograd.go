package main

import (
	"math"
	"slices"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// term is a coefficient and the number of a value.
type term struct {
	times float32
	of    int
}

// transform computes dst = T·src·Tᵀ for squares of vectors, for Winograd's convolutions. T has
// a sum for each output. Values are the inputs, then the outputs, then sums that outputs share.
type transform struct {
	name            string
	inputs, outputs int
	sums            [][]term
	// the columns of the result that are computed together
	together [][]int
}

const half, root = math.Sqrt2 / 2, math.Sqrt2

var transforms = []transform{
	{"ImageToTile", 4, 4, [][]term{{{1, 0}, {-1, 2}}, {{1, 1}, {1, 2}}, {{1, 2}, {-1, 1}}, {{1, 3}, {-1, 1}}},
		nil},
	{"TileToImage", 4, 2, [][]term{{{1, 0}, {1, 1}, {1, 2}}, {{1, 1}, {1, 3}, {-1, 2}}}, nil},
	{"GradToTile", 2, 4, [][]term{{{1, 0}}, {{1, 0}, {1, 1}}, {{1, 0}, {-1, 1}}, {{1, 1}}}, nil},
	{"KernelToTile", 3, 4, [][]term{{{1, 0}}, {{.5, 0}, {.5, 1}, {.5, 2}}, {{.5, 0}, {.5, 2}, {-.5, 1}}, {{1, 2}}},
		nil},
	{"TileToKernel", 4, 3, [][]term{{{.5, 1}, {.5, 2}, {1, 0}}, {{.5, 1}, {-.5, 2}}, {{.5, 1}, {.5, 2}, {1, 3}}},
		nil},
	{"ImageToLargeTile", 6, 6, [][]term{
		{{1, 0}, {1, 4}, {-2.5, 2}},
		{{1, 12}, {1, 13}}, {{1, 12}, {-1, 13}}, {{1, 14}, {1, 15}}, {{1, 14}, {-1, 15}},
		{{1, 1}, {1, 5}, {-2.5, 3}},
		{{2, 2}, {-1, 4}}, {{root, 1}, {-half, 3}}, {{1, 4}, {-.5, 2}}, {{root, 3}, {-half, 1}},
	}, [][]int{{0}, {1, 2}, {3, 4}, {5}}},
	{"LargeTileToImage", 6, 4, [][]term{
		{{1, 0}, {1, 10}, {1, 11}}, {{1, 14}, {1, 15}}, {{.5, 10}, {2, 11}}, {{.5, 14}, {2, 15}, {1, 5}},
		{{1, 1}, {1, 2}}, {{1, 3}, {1, 4}}, {{1, 1}, {-1, 2}}, {{1, 3}, {-1, 4}}, {{half, 12}}, {{root, 13}},
	}, [][]int{{0, 2}, {1, 3}}},
	{"GradToLargeTile", 4, 6, [][]term{
		{{1, 0}},
		{{1, 10}, {1, 11}}, {{1, 10}, {-1, 11}}, {{1, 12}, {1, 13}}, {{1, 12}, {-1, 13}},
		{{1, 3}},
		{{1, 0}, {.5, 2}}, {{half, 1}, {half / 2, 3}}, {{1, 0}, {2, 2}}, {{root, 1}, {2 * root, 3}},
	}, [][]int{{0}, {1, 2}, {3, 4}, {5}}},
	{"KernelToLargeTile", 3, 6, [][]term{
		{{1, 0}},
		{{1, 9}, {1, 10}}, {{1, 9}, {-1, 10}}, {{1, 11}, {1, 12}}, {{1, 11}, {-1, 12}},
		{{1, 2}},
		{{2. / 3, 0}, {1. / 3, 2}}, {{half / 1.5, 1}}, {{1. / 6, 0}, {1. / 3, 2}}, {{root / 6, 1}},
	}, nil},
	{"LargeTileToKernel", 6, 3, [][]term{
		{{2. / 3, 9}, {1. / 6, 10}, {1, 0}}, {{half / 1.5, 11}, {root / 6, 12}}, {{1. / 3, 9}, {1. / 3, 10}, {1, 5}},
		{{1, 1}, {1, 2}}, {{1, 3}, {1, 4}}, {{1, 1}, {-1, 2}}, {{1, 3}, {-1, 4}},
	}, nil},
}

// winograd generates the transforms. The vectors of a square lie in rows and columns; a tile is
// some squares of channels next to each other, of which there are several in a line.
func winograd(m *machine) {
	for _, t := range transforms {
		m.function(t.name, "func(dst *float32, dstRow, dstColumn, dstTile, dstLine int, "+
			"src *float32, srcRow, srcColumn, srcTile, srcLine, lines, tiles, channels int)",
			"transforms squares. Strides are in bytes, those of lines from their end.")
		if t.together == nil || !m.wide { // registers for one column
			t.together = nil
			for i := range t.outputs {
				t.together = append(t.together, []int{i})
			}
		}
		w := squares{machine: m, transform: t}
		w.build()
	}
}

type squares struct {
	*machine
	transform
	dst, src  grid
	constants map[float32]reg.VecVirtual
	// of the source, from a row to the next one; of the destination, from a column
	row, column reg.GPVirtual
}

// grid is a square: a pointer to its first vector, a working copy, and multiples of the distance of
// columns for the source, of rows for the destination.
type grid struct {
	first, at reg.GPVirtual
	steps     map[int]reg.GPVirtual
}

func (s *squares) grid(name, stride string, size int) grid {
	g := grid{first: s.GP64(), at: s.GP64(), steps: map[int]reg.GPVirtual{1: s.GP64()}}
	one := g.steps[1]
	s.Load(s.Param(name), g.first)
	s.Load(s.Param(name+stride), one)
	for n := 3; n < size; n += 2 {
		g.steps[n] = s.GP64()
		s.LEAQ(operand.Mem{Base: one, Index: one, Scale: uint8(n - 1)}, g.steps[n])
	}
	return g
}

// vector returns the i-th vector from the working copy.
func (g grid) vector(i int) operand.Mem {
	m := operand.Mem{Base: g.at}
	switch {
	case i%2 == 1:
		m.Index, m.Scale = g.steps[i], 1
	case i > 0:
		m.Index, m.Scale = g.steps[1], uint8(i)
	}
	return m
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
	s.constants = map[float32]reg.VecVirtual{}
	for _, sum := range s.sums {
		for _, t := range sum {
			if c := max(t.times, -t.times); c != 1 && s.constants[c] == nil {
				s.constants[c] = s.constant(math.Float32bits(c))
			}
		}
	}
	left, tiles := s.GP64(), s.GP64()
	s.Load(s.Param("channels"), left)
	s.ANDQ(operand.U32(uint32(s.lanes-1)), left)
	s.first(left, s.GP64())
	mask := s.mask
	s.dst, s.src = s.grid("dst", "Row", s.outputs), s.grid("src", "Column", s.inputs)
	s.row, s.column = s.GP64(), s.GP64()
	s.Load(s.Param("srcRow"), s.row)
	s.Load(s.Param("dstColumn"), s.column)
	s.Label("line")
	s.Load(s.Param("tiles"), tiles)
	s.Label("tile")
	s.Load(s.Param("channels"), left)
	s.Label("channels")
	s.SUBQ(operand.U32(uint32(s.lanes)), left)
	s.JLT(operand.LabelRef("tail"))
	s.mask = nil
	s.square()
	s.ADDQ(operand.U32(uint32(s.bytes())), s.src.first)
	s.ADDQ(operand.U32(uint32(s.bytes())), s.dst.first)
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
	s.ADDQ(left, s.src.first)
	s.ADDQ(left, s.dst.first)
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
	s.ADDQ(s.argument("dst"+to), s.dst.first)
	s.ADDQ(s.argument("src"+to), s.src.first)
}

// square transforms one square, some columns of the result after others.
func (s *squares) square() {
	s.MOVQ(s.dst.first, s.dst.at)
	at := 0
	for _, columns := range s.together {
		rows := make([][]operand.Op, len(columns))
		s.MOVQ(s.src.first, s.src.at)
		for r := range s.inputs {
			along := s.values(func(i int) operand.Op { return s.src.vector(i) })
			for i, column := range columns {
				rows[i] = append(rows[i], along(column))
			}
			if r < s.inputs-1 {
				s.ADDQ(s.row, s.src.at)
			}
		}
		for i, column := range columns {
			for ; at < column; at++ {
				s.ADDQ(s.column, s.dst.at)
			}
			for ; at > column; at-- {
				s.SUBQ(s.column, s.dst.at)
			}
			s.down(rows[i])
		}
	}
}

// down transforms a column and stores the result: first those rows that share sums.
func (s *squares) down(column []operand.Op) {
	value := s.values(func(i int) operand.Op { return column[i] })
	order := slices.Concat(s.transform.together...)
	for _, i := range order {
		s.store(value(i).(reg.VecVirtual), s.dst.vector(i))
	}
}

// values returns a function that computes an output from inputs, each sum at most once.
func (s *squares) values(input func(i int) operand.Op) func(output int) operand.Op {
	done := map[int]operand.Op{}
	var value func(i int) operand.Op
	value = func(i int) operand.Op {
		if i < s.inputs {
			return input(i)
		}
		if done[i] == nil {
			var sum operand.Op
			for _, t := range s.sums[i-s.inputs] {
				sum = s.plus(sum, t.times, value(t.of))
			}
			done[i] = sum
		}
		return done[i]
	}
	return func(output int) operand.Op { return value(s.inputs + output) }
}

// plus returns sum plus x times a factor; x may be in memory. The first factor is not
// negative.
func (s *squares) plus(sum operand.Op, times float32, x operand.Op) operand.Op {
	factor := s.constants[max(times, -times)]
	if mem, ok := x.(operand.Mem); ok && (s.mask != nil || sum == nil && factor == nil) {
		x = s.load(mem)
	}
	if factor != nil {
		product := s.reg()
		s.VMULPS(x, factor, product)
		x = product
	}
	if sum == nil {
		return x
	}
	to := s.reg()
	if times > 0 {
		s.VADDPS(x, sum, to)
	} else {
		s.VSUBPS(x, sum, to)
	}
	return to
}
