package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// byColumns generates the loops of a function over rows of columns: the columns in blocks of unroll
// vectors, then of one, masked; inside a block, all rows. x is the slice of rows, c that of
// columns. perBlock runs for a block, and returns the code for a vector of a row and, if any, that
// for the end of the block.
func (m *machine) byColumns(x, c string, lanes, unroll int, bases []string,
	perBlock func(vectors int, column func(slice string, scale, u int) operand.Mem) (row func(u int,
		p place), finish func())) {
	base := map[string]reg.GPVirtual{}
	for _, s := range bases {
		base[s] = m.base(s)
	}
	total, width := m.length(x), m.length(c)
	left, col, i, scratch := m.GP64(), m.GP64(), m.GP64(), m.GP64()
	m.MOVQ(width, left)
	m.XORQ(col, col)
	block := func(vectors int, name string) {
		row, finish := perBlock(vectors, func(s string, scale, u int) operand.Mem {
			return operand.Mem{Base: base[s], Index: col, Scale: uint8(scale), Disp: u * lanes * scale}
		})
		m.MOVQ(col, i)
		m.JMP(operand.LabelRef(name + "more"))
		m.Label(name + "row")
		for u := range vectors {
			row(u, func(s string, scale int) operand.Mem {
				return operand.Mem{Base: base[s], Index: i, Scale: uint8(scale), Disp: u * lanes * scale}
			})
		}
		m.ADDQ(width, i)
		m.Label(name + "more")
		m.CMPQ(i, total)
		m.JLT(operand.LabelRef(name + "row"))
		if finish != nil {
			finish()
		}
		m.ADDQ(operand.U32(uint32(vectors*lanes)), col)
		m.SUBQ(operand.U32(uint32(vectors*lanes)), left)
	}
	m.Label("columns")
	m.CMPQ(left, operand.U32(uint32(unroll*lanes)))
	m.JLT(operand.LabelRef("tail"))
	block(unroll, "")
	m.JMP(operand.LabelRef("columns"))
	m.Label("tail")
	m.TESTQ(left, left)
	m.JLE(operand.LabelRef("done"))
	m.first(left, scratch)
	block(1, "tail")
	m.mask = nil
	m.JMP(operand.LabelRef("tail"))
	m.Label("done")
	m.end()
}

func columns(m *machine) {
	unroll := 2
	if m.wide {
		unroll = 4
	}
	m.function("AddRows", "func(dst, x []float32)", "adds every row of x to dst.")
	m.byColumns("x", "dst", m.lanes, 2*unroll, []string{"dst", "x"},
		func(vectors int, column func(string, int, int) operand.Mem) (func(int, place), func()) {
			sums := make([]reg.VecVirtual, vectors)
			for u := range sums {
				sums[u] = m.load(column("dst", 4, u))
			}
			return func(u int, p place) {
					m.VADDPS(m.load(p("x", 4)), sums[u], sums[u])
				}, func() {
					for u, s := range sums {
						m.store(s, column("dst", 4, u))
					}
				}
		})

	m.function("ScaleShift", "func(dst, x, a, b []float32, floor float32)", "sets dst = max(x*a + b, floor).")
	m.byColumns("x", "a", m.lanes, unroll, []string{"dst", "x", "a", "b"},
		func(vectors int, column func(string, int, int) operand.Mem) (func(int, place), func()) {
			floor := m.scalar("floor")
			a, b := make([]reg.VecVirtual, vectors), make([]reg.VecVirtual, vectors)
			for u := range a {
				a[u], b[u] = m.load(column("a", 4, u)), m.load(column("b", 4, u))
			}
			return func(u int, p place) {
				x := m.load(p("x", 4))
				m.VMULPS(a[u], x, x)
				m.VADDPS(b[u], x, x)
				m.VMAXPS(x, floor, x) // returns x if it is a NaN
				m.store(x, p("dst", 4))
			}, nil
		})

	m.function("BatchNormGrad", "func(dx, dy, x, k1, k2, k3 []float32, keep uint32)",
		"sets dx = dy*k1 + x*k2 + k3, or 0 unless x is above 0 or keep is all ones.")
	m.byColumns("dy", "k1", m.lanes, unroll, []string{"dx", "dy", "x", "k1", "k2", "k3"},
		func(vectors int, column func(string, int, int) operand.Mem) (func(int, place), func()) {
			keep, zero := m.keepAll("keep"), m.reg()
			m.zero(zero)
			var k [3][]reg.VecVirtual
			for i, name := range []string{"k1", "k2", "k3"} {
				for u := range vectors {
					k[i] = append(k[i], m.load(column(name, 4, u)))
				}
			}
			return func(u int, p place) {
				dy, x := m.load(p("dy", 4)), m.load(p("x", 4))
				positive := m.greater(x, zero)
				m.or(keep, positive)
				m.VMULPS(k[0][u], dy, dy)
				m.VMULPS(k[1][u], x, x)
				m.VADDPS(x, dy, dy)
				m.VADDPS(k[2][u], dy, dy)
				m.clearUnless(positive, dy)
				m.store(dy, p("dx", 4))
			}, nil
		})
}

// columnStats generates sums in float64, with half as many lanes.
func columnStats(m *machine) {
	m.function("ColumnStats", "func(s1, s2 []float64, x, z []float32)", "adds the sums of x and x*z to s1 and s2.")
	lanes := m.lanes / 2
	double := func(mem operand.Mem) reg.VecVirtual { // converts float32 to float64
		v := m.reg()
		switch {
		case m.mask == nil:
			m.VCVTPS2PD(mem, v)
		case m.wide:
			m.VCVTPS2PD_Z(mem, m.mask, v)
		default:
			half := m.XMM()
			m.VMASKMOVPS(mem, m.mask.(reg.VecVirtual).AsX(), half)
			m.VCVTPS2PD(half, v)
		}
		return v
	}
	// AVX2's mask of float64 lanes is the mask of float32 lanes, sign-extended.
	move := func(from, to operand.Op) {
		switch {
		case m.mask == nil:
			m.VMOVUPD(from, to)
		case m.wide:
			if _, ok := from.(operand.Mem); ok {
				m.VMOVUPD_Z(from, m.mask, to)
			} else {
				m.VMOVUPD(from, m.mask, to)
			}
		default:
			mask := m.YMM()
			m.VPMOVSXDQ(m.mask.(reg.VecVirtual).AsX(), mask)
			m.VMASKMOVPD(from, mask, to)
		}
	}
	m.byColumns("x", "s1", lanes, 4, []string{"s1", "s2", "x", "z"},
		func(vectors int, column func(string, int, int) operand.Mem) (func(int, place), func()) {
			sums := map[string][]reg.VecVirtual{}
			for _, s := range []string{"s1", "s2"} {
				for u := range vectors {
					v := m.reg()
					move(column(s, 8, u), v)
					sums[s] = append(sums[s], v)
				}
			}
			return func(u int, p place) {
					x, z := double(p("x", 4)), double(p("z", 4))
					m.VADDPD(x, sums["s1"][u], sums["s1"][u])
					m.VFMADD231PD(x, z, sums["s2"][u]) // the product is exact
				}, func() {
					for _, s := range []string{"s1", "s2"} {
						for u, v := range sums[s] {
							move(v, column(s, 8, u))
						}
					}
				}
		})
}

// byPixels generates the loops of a function over pairs of image rows: pixels of channels elements,
// each from two pixels of top and two of bottom. AVX2 needs channels to be a multiple of its lanes,
// because its bytes have no mask. vector returns the code for a vector, from the addresses of the
// four elements.
func (m *machine) byPixels(pixels, index, top, bottom string,
	vector func(pixel, index operand.Mem, four [4]operand.Mem)) {
	out, bytes, above, below := m.base(pixels), m.base(index), m.base(top), m.base(bottom)
	left, channels, row, todo := m.length(pixels), m.GP64(), m.GP64(), m.GP64()
	m.Load(m.Param("channels"), channels)
	m.MOVQ(channels, row)
	m.SHLQ(operand.U8(2), row)
	one := func() {
		vector(at(out, 0), at(bytes, 0), [4]operand.Mem{
			at(above, 0), {Base: above, Index: row, Scale: 1}, at(below, 0), {Base: below, Index: row, Scale: 1},
		})
	}
	var rest, restBytes reg.GPVirtual
	var mask reg.Register
	if m.wide {
		rest, restBytes = m.GP64(), m.GP64()
		m.MOVQ(channels, rest)
		m.ANDQ(operand.U32(uint32(m.lanes-1)), rest)
		m.first(rest, restBytes)
		m.MOVQ(rest, restBytes)
		m.SHLQ(operand.U8(2), restBytes)
		mask, m.mask = m.mask, nil
	}
	m.TESTQ(left, left)
	m.JLE(operand.LabelRef("done"))
	m.Label("pixel")
	m.MOVQ(channels, todo)
	m.Label("vector")
	m.CMPQ(todo, operand.U32(uint32(m.lanes)))
	m.JLT(operand.LabelRef("tail"))
	one()
	for _, p := range []reg.GPVirtual{out, above, below} {
		m.ADDQ(operand.U32(uint32(m.bytes())), p)
	}
	m.ADDQ(operand.U32(uint32(m.lanes)), bytes)
	m.SUBQ(operand.U32(uint32(m.lanes)), todo)
	m.JMP(operand.LabelRef("vector"))
	m.Label("tail")
	if m.wide {
		m.TESTQ(rest, rest)
		m.JZ(operand.LabelRef("next"))
		m.mask = mask
		one()
		m.mask = nil
		for _, p := range []reg.GPVirtual{out, above, below} {
			m.ADDQ(restBytes, p)
		}
		m.ADDQ(rest, bytes)
		m.Label("next")
	}
	m.ADDQ(row, above)
	m.ADDQ(row, below)
	m.SUBQ(channels, left)
	m.JG(operand.LabelRef("pixel"))
	m.Label("done")
	m.end()
}

func maxPool(m *machine) {
	m.function("MaxPool", "func(dst []float32, index []uint8, top, bottom []float32, channels int)",
		"pools; avx2: a multiple of 8 channels.")
	var number [4]reg.VecVirtual
	for i := 1; i < 4; i++ {
		number[i] = m.constant(uint32(i))
	}
	m.byPixels("dst", "index", "top", "bottom", func(pixel, index operand.Mem, four [4]operand.Mem) {
		best, which := m.load(four[0]), m.reg()
		m.zero(which)
		for i := 1; i < 4; i++ {
			v := m.load(four[i])
			above := m.greaterOrNaN(v, best)
			m.choose(above, number[i], which)
			m.choose(above, v, best)
		}
		m.store(best, pixel)
		m.storeBytes(which, index)
	})
}

func maxPoolGrad(m *machine) {
	m.function("MaxPoolGrad", "func(dtop, dbottom, dy []float32, index []uint8, channels int)",
		"undoes maxPool; avx2: a multiple of 8 channels.")
	number := [4]reg.VecVirtual{m.reg()}
	m.zero(number[0])
	for i := 1; i < 4; i++ {
		number[i] = m.constant(uint32(i))
	}
	m.byPixels("dy", "index", "dtop", "dbottom", func(pixel, index operand.Mem, four [4]operand.Mem) {
		dy, which := m.load(pixel), m.loadBytes(index)
		for i, mem := range four {
			v := m.reg()
			m.move(dy, v)
			m.clearUnless(m.equal(which, number[i]), v)
			m.store(v, mem)
		}
	})
}
