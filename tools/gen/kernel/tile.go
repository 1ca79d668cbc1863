package main

import (
	"bytes"
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The tile kernels compute C = A·B for tiles of a fixed number of rows by one or two
// vectors of columns. The accumulators stay in registers over the whole inner loop; A is read by broadcasts
// with any strides, B by vectors. One call does count tiles below each other in each of several blocks.

// fields are those of the Go struct tile, 8 bytes each; strides and jumps are in bytes.
var fields = []struct{ name, kind, doc string }{
	{"a", "*float32", "first row of the first tile"},
	{"b", "*float32", ""},
	{"c", "*float32", ""},
	{"aat", "uintptr", "working copies: they may end beyond the slices"},
	{"cat", "uintptr", ""},
	{"bias", "*float32", ""},
	{"lanes", "*int32", "avx2: mask of the last vector of columns"},
	{"mask", "uint64", "avx512: the same, a bit for a lane"},
	{"floor", "uint64", "low half, a float32: smaller results become it; -Inf for none"},
	{"init", "Init", ""},
	{"k", "int", "steps of a segment"},
	{"segs", "int", ""},
	{"arow", "int", ""},
	{"astep", "int", ""},
	{"aseg", "int", "from the end of a segment to the next one"},
	{"brow", "int", ""},
	{"crow", "int", ""},
	{"count", "int", "tiles of a block"},
	{"atile", "int", "from a tile to the next one"},
	{"ctile", "int", ""},
	{"blocks", "int", "counted down"},
	{"ablock", "int", "from the end of the last tile of a block to the next block"},
	{"cblock", "int", ""},
	{"left", "int", "counts the tiles of a block down"},
	{"ahead", "uintptr", "where to prefetch at the start of a segment"},
	{"aheadstep", "int", "how far it then moves on"},
}

// shape is one kernel: rows by vectors of columns, the last vector masked or known to be whole.
type shape struct {
	rows, vectors int
	masked        bool
}

// shapes lists the kernels of an instruction set.
func shapes(i isa) []shape {
	var list []shape
	add := func(rows, vectors int, masked bool) {
		for r := range rows {
			list = append(list, shape{r + 1, vectors, masked})
		}
	}
	// 14x32 takes 28 of 32 registers, 6x16 takes 12 of 16. A masked load costs AVX-512 a slot of the multipliers.
	one, two := 12, 6
	if i.wide {
		one, two = 14, 14
	}
	for _, masked := range []bool{false, true} {
		add(one, 1, masked)
		add(two, 2, masked)
	}
	return list
}

func (s shape) name(i isa) string {
	n := fmt.Sprintf("tile%dx%d", s.rows, s.vectors*i.lanes)
	if s.masked {
		n += "Masked"
	}
	return n
}

func tiles(m *machine) {
	for _, s := range shapes(m.isa) {
		t := tileBuilder{m, s}
		t.build()
	}
}

// tileBuilder builds one kernel. Its general registers are fixed.
type tileBuilder struct {
	*machine
	shape
}

var (
	aRows    = [...]reg.GPPhysical{reg.R8, reg.R9, reg.R10, reg.R11, reg.R12, reg.R13, reg.R14} // 1, 3, 5 ... 13 times ARow
	aStep    = reg.RBX
	aAt      = reg.RSI
	bAt      = reg.RDI
	bRow     = reg.RDX
	steps    = reg.RCX
	segments = reg.RAX
	cAt      = reg.RCX // these three not in the inner loop
	cRow     = reg.RSI
	free     = reg.RAX
	lanes    = reg.R14 // avx2, which has no 13 rows
	argument = reg.R15
)

// field returns the named field of the argument.
func field(name string) operand.Mem {
	for i, f := range fields {
		if f.name == name {
			return at(argument, 8*i)
		}
	}
	panic(name)
}

func (t *tileBuilder) build() {
	t.function(t.name(t.isa), "func(t *tile)", fmt.Sprintf("computes tiles of %d rows.", t.rows))
	t.Load(t.Param("t"), argument)
	t.prologue()
	t.Label("block")
	t.MOVQ(field("count"), free)
	t.MOVQ(free, field("left"))
	t.Label("tile")
	t.initial()
	t.product()
	t.result()
	t.advance("tile")
	t.DECQ(field("left"))
	t.JNZ(operand.LabelRef("tile"))
	t.advance("block")
	t.DECQ(field("blocks"))
	t.JNZ(operand.LabelRef("block"))
	t.end()
}

// prologue loads what stays in registers.
func (t *tileBuilder) prologue() {
	t.MOVQ(field("arow"), aRows[0])
	for i := 1; 2*i+1 < t.rows; i++ {
		t.LEAQ(operand.Mem{Base: aRows[i-1], Index: aRows[0], Scale: 2}, aRows[i])
	}
	t.MOVQ(field("astep"), aStep)
	t.MOVQ(field("brow"), bRow)
	for _, matrix := range []string{"a", "c"} {
		t.MOVQ(field(matrix), free)
		t.MOVQ(free, field(matrix+"at"))
	}
	switch {
	case !t.masked:
	case t.wide:
		t.MOVQ(field("mask"), free)
		t.KMOVW(reg.EAX, reg.K1)
	default:
		t.MOVQ(field("lanes"), lanes)
	}
}

// advance moves a and c to the next tile or block.
func (t *tileBuilder) advance(to string) {
	for _, matrix := range []string{"a", "c"} {
		t.MOVQ(field(matrix+to), free)
		t.ADDQ(free, field(matrix+"at"))
	}
}

// acc is the accumulator of a row; vectors 0 to 3 are for B and for broadcasts.
func (t *tileBuilder) acc(row, vector int) reg.VecPhysical {
	return t.physical(4 + row*t.vectors + vector)
}

// columns sets the mask for a vector of columns; AVX2 takes register v for it.
func (t *tileBuilder) columns(vector int, v reg.VecPhysical) {
	switch {
	case !t.masked || vector < t.vectors-1:
		t.mask = nil
	case t.wide:
		t.mask = reg.K1
	default:
		t.VMOVUPS(at(lanes, 0), v)
		t.mask = v
	}
}

// initial sets the accumulators to what C holds before the products are added.
func (t *tileBuilder) initial() {
	t.CMPQ(field("init"), operand.U8(1))
	t.JEQ(operand.LabelRef("accumulate"))
	t.JGT(operand.LabelRef("bias"))
	for r := range t.rows {
		for v := range t.vectors {
			t.zero(t.acc(r, v))
		}
	}
	t.JMP(operand.LabelRef("start"))
	t.Label("bias")
	t.MOVQ(field("bias"), cAt)
	for v := range t.vectors {
		t.columns(v, t.acc(0, v))
		t.loadTo(at(cAt, v*t.bytes()), t.acc(0, v))
		for r := 1; r < t.rows; r++ {
			t.VMOVAPS(t.acc(0, v), t.acc(r, v))
		}
	}
	t.JMP(operand.LabelRef("start"))
	t.Label("accumulate")
	t.eachRow(func(r int) {
		for v := range t.vectors {
			t.columns(v, t.acc(r, v))
			t.loadTo(at(cAt, v*t.bytes()), t.acc(r, v))
		}
	})
	t.Label("start")
}

// eachRow calls emit with cAt at each row of C.
func (t *tileBuilder) eachRow(emit func(row int)) {
	t.MOVQ(field("cat"), cAt)
	if t.rows > 1 {
		t.MOVQ(field("crow"), cRow)
	}
	for r := range t.rows {
		emit(r)
		if r < t.rows-1 {
			t.ADDQ(cRow, cAt)
		}
	}
}

// product is the inner loop. AVX-512 multiplies on two ports, which it shares with the integer
// operations: one pointer to A for all rows, and two steps at a time where there is much to gain.
func (t *tileBuilder) product() {
	t.MOVQ(field("aat"), aAt)
	t.MOVQ(field("b"), bAt)
	t.MOVQ(field("segs"), segments)
	t.Label("segment")
	t.MOVQ(field("ahead"), steps)
	t.PREFETCHT1(at(steps, 0))
	t.PREFETCHT1(at(steps, 64))
	t.ADDQ(field("aheadstep"), steps)
	t.MOVQ(steps, field("ahead"))
	t.MOVQ(field("k"), steps)
	if t.wide && !t.masked && t.rows >= 6 {
		t.TESTQ(operand.U32(1), steps)
		t.JZ(operand.LabelRef("even"))
		t.step(operand.Mem{Base: bAt})
		t.ADDQ(bRow, bAt)
		t.Label("even")
		t.SHRQ(operand.U8(1), steps)
		t.JZ(operand.LabelRef("next"))
		t.Label("two")
		t.step(operand.Mem{Base: bAt})
		t.step(operand.Mem{Base: bAt, Index: bRow, Scale: 1})
		t.LEAQ(operand.Mem{Base: bAt, Index: bRow, Scale: 2}, bAt)
		t.DECQ(steps)
		t.JNZ(operand.LabelRef("two"))
		t.Label("next")
	} else {
		t.Label("step")
		t.step(operand.Mem{Base: bAt})
		t.ADDQ(bRow, bAt)
		t.DECQ(steps)
		t.JNZ(operand.LabelRef("step"))
	}
	t.ADDQ(field("aseg"), aAt)
	t.DECQ(segments)
	t.JNZ(operand.LabelRef("segment"))
}

// step adds one column of A times one row of B, and moves on to the next column.
func (t *tileBuilder) step(b operand.Mem) {
	for v := range t.vectors {
		t.columns(v, t.physical(v))
		b.Disp = v * t.bytes()
		t.loadTo(b, t.physical(v))
	}
	for r := range t.rows {
		if t.wide && t.vectors == 1 {
			t.VFMADD231PS_BCST(element(r), t.physical(0), t.acc(r, 0))
			continue
		}
		a := t.physical(2 + r%2)
		t.VBROADCASTSS(element(r), a)
		for v := range t.vectors {
			t.VFMADD231PS(t.physical(v), a, t.acc(r, v))
		}
	}
	t.ADDQ(aStep, aAt)
}

// element is the element of A in a row of the tile.
func element(row int) operand.Mem {
	m := operand.Mem{Base: aAt}
	for scale := 1; scale <= 8 && row > 0; scale *= 2 {
		if row%(2*scale) == scale {
			m.Index, m.Scale = aRows[row/scale/2], uint8(scale)
		}
	}
	return m
}

// result stores the accumulators. The maximum's second source, the result, wins if either is a NaN.
func (t *tileBuilder) result() {
	floor := t.physical(2)
	t.VBROADCASTSS(field("floor"), floor)
	for r := range t.rows {
		for v := range t.vectors {
			t.VMAXPS(t.acc(r, v), floor, t.acc(r, v))
		}
	}
	t.eachRow(func(r int) {
		for v := range t.vectors {
			t.columns(v, t.physical(3))
			t.store(t.acc(r, v), at(cAt, v*t.bytes()))
		}
	})
}

// dispatch returns the Go source of the struct tile and of the choice of a kernel.
func dispatch() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// Code generated by %s. DO NOT EDIT.\n\npackage kernel\n\n", generator)
	b.WriteString("// tile is the argument of the tile kernels: count tiles below each other in each of several blocks.\n")
	b.WriteString("type tile struct {\n")
	for _, f := range fields {
		fmt.Fprintf(&b, "%s %s", f.name, f.kind)
		if f.doc != "" {
			fmt.Fprintf(&b, " // %s", f.doc)
		}
		b.WriteString("\n")
	}
	b.WriteString("}\n")
	for _, i := range []isa{avx512, avx2} {
		fmt.Fprintf(&b, "\n// run%s runs the kernel for tiles of rows rows by vectors vectors.\n", i.upper)
		fmt.Fprintf(&b, "func run%s(t *tile, rows, vectors int, masked bool) {\n", i.upper)
		b.WriteString("code := rows<<1 | (vectors - 1)\nif masked {\ncode |= 32\n}\nswitch code {\n")
		for _, s := range shapes(i) {
			code := s.rows<<1 | (s.vectors - 1)
			if s.masked {
				code |= 32
			}
			fmt.Fprintf(&b, "case %d:\n%s%s(t)\n", code, s.name(i), i.upper)
		}
		b.WriteString("}\n}\n")
	}
	return b.Bytes()
}
