package main

import (
	"bytes"
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The tile kernels compute C = A·B for tiles of a fixed number of rows by one or two vectors of
// columns. The accumulators stay in registers over the whole inner loop; A is read by broadcasts
// with any strides, B by vectors. One call computes count tiles below each other, in each of
// several blocks.

// fields lists the fields of the Go struct Tile, 8 bytes each; strides and jumps are in bytes.
var fields = []struct{ name, kind, doc string }{
	{"A", "*float32", "first row of the first tile"},
	{"B", "*float32", ""},
	{"C", "*float32", ""},
	{"aAt", "uintptr", "working copies: they may end beyond the slices"},
	{"bAt", "uintptr", ""},
	{"cAt", "uintptr", ""},
	{"Bias", "*float32", ""},
	{"Lanes", "*int32", "avx2: mask of the last vector of columns"},
	{"Mask", "uint64", "avx512: the same, a bit for a lane"},
	{"Floor", "uint64", "low half, a float32: smaller results become it; -Inf for none"},
	{"Init", "int", "what C holds before: 0 zeros, 1 unchanged, 2 Bias"},
	{"K", "int", "steps of a segment"},
	{"Segs", "int", ""},
	{"ARow", "int", ""},
	{"AStep", "int", ""},
	{"ASeg", "int", "from the end of a segment to the next one"},
	{"BRow", "int", ""},
	{"CRow", "int", ""},
	{"Count", "int", "tiles of a block"},
	{"ATile", "int", "from a tile to the next one"},
	{"CTile", "int", ""},
	{"Blocks", "int", "counted down"},
	{"ABlock", "int", "from the end of the last tile of a block to the next block"},
	{"CBlock", "int", ""},
	{"BBlock", "int", "from a block to the next one"},
	{"left", "int", "counts the tiles of a block down"},
	{"Ahead", "uintptr", "where to prefetch at the start of a segment"},
	{"AheadStep", "int", "how far it then moves on"},
}

// shape is the shape of a kernel: rows by vectors of columns, the last vector masked or known to be
// complete.
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
	// 14x32 uses 28 of 32 registers, 6x16 uses 12 of 16. In AVX-512 a masked load takes a slot of a
	// multiplier port.
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

// tileBuilder generates one kernel, with fixed general registers.
type tileBuilder struct {
	*machine
	shape
}

var (
	// 1, 3, 5 ... 13 times ARow
	aRows    = [...]reg.GPPhysical{reg.R8, reg.R9, reg.R10, reg.R11, reg.R12, reg.R13, reg.R14}
	aStep    = reg.RBX
	aAt      = reg.RSI
	bAt      = reg.RDI
	bRow     = reg.RDX
	steps    = reg.RCX
	segments = reg.RAX
	// these three are not used in the inner loop
	cAt      = reg.RCX
	cRow     = reg.RSI
	free     = reg.RAX
	lanes    = reg.R14 // for AVX2, which never has 13 rows
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
	t.function(t.name(t.isa), "func(t *Tile)", fmt.Sprintf("computes tiles of %d rows.", t.rows))
	t.Load(t.Param("t"), argument)
	t.prologue()
	t.Label("block")
	t.MOVQ(field("Count"), free)
	t.MOVQ(free, field("left"))
	t.Label("tile")
	t.initial()
	t.product()
	t.result()
	t.advance("A", "Tile")
	t.advance("C", "Tile")
	t.DECQ(field("left"))
	t.JNZ(operand.LabelRef("tile"))
	for _, matrix := range matrices {
		t.advance(matrix, "Block")
	}
	t.DECQ(field("Blocks"))
	t.JNZ(operand.LabelRef("block"))
	t.end()
}

// prologue loads the values that stay in registers.
func (t *tileBuilder) prologue() {
	t.MOVQ(field("ARow"), aRows[0])
	for i := 1; 2*i+1 < t.rows; i++ {
		t.LEAQ(operand.Mem{Base: aRows[i-1], Index: aRows[0], Scale: 2}, aRows[i])
	}
	t.MOVQ(field("AStep"), aStep)
	t.MOVQ(field("BRow"), bRow)
	for _, matrix := range matrices {
		t.MOVQ(field(matrix), free)
		t.MOVQ(free, field(working[matrix]))
	}
	switch {
	case !t.masked:
	case t.wide:
		t.MOVQ(field("Mask"), free)
		t.KMOVW(reg.EAX, reg.K1)
	default:
		t.MOVQ(field("Lanes"), lanes)
	}
}

var matrices = []string{"A", "B", "C"}

// working has the names of the working copies of the pointers to the matrices.
var working = map[string]string{"A": "aAt", "B": "bAt", "C": "cAt"}

// advance moves a matrix to the next tile or block.
func (t *tileBuilder) advance(matrix, to string) {
	t.MOVQ(field(matrix+to), free)
	t.ADDQ(free, field(working[matrix]))
}

// acc returns the accumulator of a row; vectors 0 to 3 are for B and for broadcasts.
func (t *tileBuilder) acc(row, vector int) reg.VecPhysical {
	return t.physical(4 + row*t.vectors + vector)
}

// columns sets the mask for a vector of columns; AVX2 uses register v for it.
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

// initial sets the accumulators to the initial values of C.
func (t *tileBuilder) initial() {
	t.CMPQ(field("Init"), operand.U8(1))
	t.JEQ(operand.LabelRef("accumulate"))
	t.JGT(operand.LabelRef("bias"))
	for r := range t.rows {
		for v := range t.vectors {
			t.zero(t.acc(r, v))
		}
	}
	t.JMP(operand.LabelRef("start"))
	t.Label("bias")
	t.MOVQ(field("Bias"), cAt)
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

// eachRow calls emit for each row of C, with cAt at that row.
func (t *tileBuilder) eachRow(emit func(row int)) {
	t.MOVQ(field("cAt"), cAt)
	if t.rows > 1 {
		t.MOVQ(field("CRow"), cRow)
	}
	for r := range t.rows {
		emit(r)
		if r < t.rows-1 {
			t.ADDQ(cRow, cAt)
		}
	}
}

// product generates the inner loop. AVX-512 multiplies on two ports, which it shares with the
// integer operations: so it uses one pointer to A for all rows, and two steps per iteration where
// that gains much.
func (t *tileBuilder) product() {
	t.MOVQ(field("aAt"), aAt)
	t.MOVQ(field("bAt"), bAt)
	t.MOVQ(field("Segs"), segments)
	t.Label("segment")
	t.MOVQ(field("Ahead"), steps)
	t.PREFETCHT1(at(steps, 0))
	t.PREFETCHT1(at(steps, 64))
	t.ADDQ(field("AheadStep"), steps)
	t.MOVQ(steps, field("Ahead"))
	t.MOVQ(field("K"), steps)
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
	t.ADDQ(field("ASeg"), aAt)
	t.DECQ(segments)
	t.JNZ(operand.LabelRef("segment"))
}

// step adds the product of one column of A and one row of B, and moves to the next column.
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

// element returns the element of A in a row of the tile.
func element(row int) operand.Mem {
	m := operand.Mem{Base: aAt}
	for scale := 1; scale <= 8 && row > 0; scale *= 2 {
		if row%(2*scale) == scale {
			m.Index, m.Scale = aRows[row/scale/2], uint8(scale)
		}
	}
	return m
}

// result stores the accumulators. The result is the second source of the maximum, which is returned
// if either is a NaN.
func (t *tileBuilder) result() {
	floor := t.physical(2)
	t.VBROADCASTSS(field("Floor"), floor)
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

// dispatch returns the Go source of the struct Tile and of the function that chooses a kernel.
func dispatch() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// Code generated by %s. DO NOT EDIT.\n\npackage avx\n\n", generator)
	b.WriteString("// Tile is the argument of the tile kernels: count tiles below each other in " +
		"each of several blocks.\n")
	b.WriteString("type Tile struct {\n")
	for _, f := range fields {
		fmt.Fprintf(&b, "%s %s", f.name, f.kind)
		if f.doc != "" {
			fmt.Fprintf(&b, " // %s", f.doc)
		}
		b.WriteString("\n")
	}
	b.WriteString("}\n")
	for _, i := range []isa{avx512, avx2} {
		fmt.Fprintf(&b, "\n// Run%s runs the kernel for tiles of rows rows by vectors vectors.\n", i.upper)
		fmt.Fprintf(&b, "func Run%s(t *Tile, rows, vectors int, masked bool) {\n", i.upper)
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
