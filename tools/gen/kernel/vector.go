package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func vectors(m *machine) {
	elementwise(m)
	dropout(m)
	optimizers(m)
	columns(m)
	columnStats(m)
	maxPool(m)
	maxPoolGrad(m)
	finitePrefix(m)
	transpose(m)
	copyRows(m)
	fmaPeak(m)
}

// place returns the address of the current vector in a slice of elements of scale bytes.
type place func(slice string, scale int) operand.Mem

// flat generates the loops of a function over slices of the same length, which is that of the
// first: unroll vectors per iteration, then single ones, masked. setup runs before the loops and
// returns the code for a vector, which is vector u of the unrolled ones; finish, if any, runs after
// them.
func (m *machine) flat(slices []string, unroll int, setup func() func(u int, p place), finish func()) {
	base := map[string]reg.GPVirtual{}
	for _, s := range slices {
		base[s] = m.base(s)
	}
	left, i, scratch := m.length(slices[0]), m.GP64(), m.GP64()
	m.XORQ(i, i)
	body := setup()
	emit := func(u int) {
		body(u, func(s string, scale int) operand.Mem {
			return operand.Mem{Base: base[s], Index: i, Scale: uint8(scale), Disp: u * m.lanes * scale}
		})
	}
	m.Label("loop")
	m.CMPQ(left, operand.U32(uint32(unroll*m.lanes)))
	m.JLT(operand.LabelRef("tail"))
	for u := range unroll {
		emit(u)
	}
	m.ADDQ(operand.U32(uint32(unroll*m.lanes)), i)
	m.SUBQ(operand.U32(uint32(unroll*m.lanes)), left)
	m.JMP(operand.LabelRef("loop"))
	m.Label("tail")
	m.TESTQ(left, left)
	m.JLE(operand.LabelRef("done"))
	m.first(left, scratch)
	emit(0)
	m.mask = nil
	m.ADDQ(operand.U32(uint32(m.lanes)), i)
	m.SUBQ(operand.U32(uint32(m.lanes)), left)
	m.JMP(operand.LabelRef("tail"))
	m.Label("done")
	if finish != nil {
		finish()
	}
	m.end()
}

func elementwise(m *machine) {
	m.function("Axpy", "func(a float32, x, y []float32)", "adds a*x to y.")
	m.flat([]string{"x", "y"}, 4, func() func(int, place) {
		a := m.scalar("a")
		return func(_ int, p place) {
			x, y := m.load(p("x", 4)), m.load(p("y", 4))
			m.VMULPS(a, x, x)
			m.VADDPS(x, y, y)
			m.store(y, p("y", 4))
		}
	}, nil)

	m.function("Add", "func(dst, x []float32)", "adds x to dst.")
	m.flat([]string{"x", "dst"}, 4, func() func(int, place) {
		return func(_ int, p place) {
			x, dst := m.load(p("x", 4)), m.load(p("dst", 4))
			m.VADDPS(x, dst, dst)
			m.store(dst, p("dst", 4))
		}
	}, nil)

	m.function("Sum", "func(dst, x, z []float32, floor float32)", "sets dst = max(x + z, floor).")
	m.flat([]string{"x", "z", "dst"}, 4, func() func(int, place) {
		floor := m.scalar("floor")
		return func(_ int, p place) {
			x := m.load(p("x", 4))
			m.VADDPS(m.load(p("z", 4)), x, x)
			m.VMAXPS(x, floor, x) // returns x if it is a NaN
			m.store(x, p("dst", 4))
		}
	}, nil)

	m.function("Scale", "func(a float32, x []float32)", "multiplies x by a.")
	m.flat([]string{"x"}, 4, func() func(int, place) {
		a := m.scalar("a")
		return func(_ int, p place) {
			x := m.load(p("x", 4))
			m.VMULPS(a, x, x)
			m.store(x, p("x", 4))
		}
	}, nil)

	m.function("ReluGrad", "func(dy, y []float32)", "sets dy to 0 where y is not above 0.")
	m.flat([]string{"dy", "y"}, 4, func() func(int, place) {
		zero := m.reg()
		m.zero(zero)
		return func(_ int, p place) {
			dy, y := m.load(p("dy", 4)), m.load(p("y", 4))
			m.clearUnless(m.greater(y, zero), dy)
			m.store(dy, p("dy", 4))
		}
	}, nil)

	m.function("BytesToFloat", "func(dst []float32, src []byte, scale, shift float32)",
		"sets dst = src*scale + shift; avx2: of whole vectors.")
	m.flat([]string{"dst", "src"}, 4, func() func(int, place) {
		scale, shift := m.scalar("scale"), m.scalar("shift")
		return func(_ int, p place) {
			v := m.loadBytes(p("src", 1))
			m.VCVTDQ2PS(v, v)
			m.VMULPS(scale, v, v)
			m.VADDPS(shift, v, v)
			m.store(v, p("dst", 4))
		}
	}, nil)
}

// dropout generates a function that hashes a counter for each element: lowbias32 with a seed in its
// middle.
func dropout(m *machine) {
	m.function("Dropout", "func(dst, x []float32, counter, seed, threshold uint32, scale float32)",
		"sets dst = x*scale where the hash of counter+i is at least threshold, otherwise 0.")
	m.flat([]string{"dst", "x"}, 2, func() func(int, place) {
		counter, seed, threshold, scale := m.scalar("counter"), m.scalar("seed"), m.scalar("threshold"),
			m.scalar("scale")
		first, second, step := m.constant(0x21f0aaad), m.constant(0x735a2d97), m.constant(uint32(m.lanes))
		table := m.GP64()
		m.LEAQ(m.iota, table)
		m.VPADDD(at(table, 0), counter, counter)
		return func(_ int, p place) {
			h, t := m.reg(), m.reg()
			mix := func(shift uint8) {
				m.VPSRLD(operand.U8(shift), h, t)
				m.xor(t, h)
			}
			m.VPSRLD(operand.U8(16), counter, t)
			m.move(counter, h)
			m.xor(t, h)
			m.VPMULLD(first, h, h)
			m.xor(seed, h)
			mix(15)
			m.VPMULLD(second, h, h)
			mix(15)
			m.VPADDD(step, counter, counter)
			x := m.load(p("x", 4))
			m.VMULPS(scale, x, x)
			m.clearUnless(m.notBelow(h, threshold), x)
			m.store(x, p("dst", 4))
		}
	}, nil)
}

func optimizers(m *machine) {
	m.function("Sgd", "func(p, g []float32, lr float32)", "updates p as SGD does.")
	m.flat([]string{"p", "g"}, 4, func() func(int, place) {
		lr := m.scalar("lr")
		return func(_ int, at place) {
			p, g := m.load(at("p", 4)), m.load(at("g", 4))
			m.VMULPS(lr, g, g)
			m.VSUBPS(g, p, p)
			m.store(p, at("p", 4))
		}
	}, nil)
	for _, nesterov := range []bool{false, true} {
		name := "Momentum"
		if nesterov {
			name = "Nesterov"
		}
		m.function(name, "func(p, g, v []float32, lr, mu float32)", "updates p and v as "+name+" does.")
		m.flat([]string{"p", "g", "v"}, 2, func() func(int, place) {
			lr, mu := m.scalar("lr"), m.scalar("mu")
			return func(_ int, at place) {
				p, g, v := m.load(at("p", 4)), m.load(at("g", 4)), m.load(at("v", 4))
				m.VMULPS(mu, v, v)
				m.VADDPS(g, v, v)
				m.store(v, at("v", 4))
				if nesterov {
					m.VMULPS(mu, v, v)
					m.VADDPS(g, v, v)
				}
				m.VMULPS(lr, v, v)
				m.VSUBPS(v, p, p)
				m.store(p, at("p", 4))
			}
		}, nil)
	}
	for _, slices := range [][]string{{"p", "g", "m", "v"}, {"p", "g", "m", "v", "vhat"}} {
		max := len(slices) == 5
		if max {
			m.function("Amsgrad", "func(p, g, m, v, vhat []float32, lr, c1, c2, eps float32)",
				"updates p, m, v and vhat as AMSGrad does, with c = 1-b.")
		} else {
			m.function("Adam", "func(p, g, m, v []float32, lr, c1, c2, eps float32)",
				"updates p, m and v as Adam does, with c = 1-b.")
		}
		m.flat(slices, 1, func() func(int, place) {
			lr, c1, c2, eps := m.scalar("lr"), m.scalar("c1"), m.scalar("c2"), m.scalar("eps")
			return func(_ int, at place) {
				p, g, mean, v := m.load(at("p", 4)), m.load(at("g", 4)), m.load(at("m", 4)), m.load(at("v", 4))
				t := m.reg()
				m.VSUBPS(mean, g, t) // g - m
				m.VMULPS(c1, t, t)
				m.VADDPS(t, mean, mean)
				m.store(mean, at("m", 4))
				m.VMULPS(g, g, g)
				m.VSUBPS(v, g, g) // g² - v
				m.VMULPS(c2, g, g)
				m.VADDPS(g, v, v)
				m.store(v, at("v", 4))
				if max {
					vhat := m.load(at("vhat", 4))
					m.VMAXPS(vhat, v, v) // v where v > vhat, otherwise vhat
					m.store(v, at("vhat", 4))
				}
				m.step(p, mean, v, lr, eps)
				m.store(p, at("p", 4))
			}
		}, nil)
	}
	m.function("Adagrad", "func(p, g, acc []float32, lr, eps float32)", "updates p and acc as Adagrad does.")
	m.flat([]string{"p", "g", "acc"}, 1, func() func(int, place) {
		lr, eps := m.scalar("lr"), m.scalar("eps")
		return func(_ int, at place) {
			p, g, acc := m.load(at("p", 4)), m.load(at("g", 4)), m.load(at("acc", 4))
			t := m.reg()
			m.VMULPS(g, g, t)
			m.VADDPS(t, acc, acc)
			m.store(acc, at("acc", 4))
			m.step(p, g, acc, lr, eps)
			m.store(p, at("p", 4))
		}
	}, nil)
}

// step subtracts lr*direction/(√v+eps) from p; v and direction are used up.
func (m *machine) step(p, direction, v, lr, eps reg.VecVirtual) {
	m.VSQRTPS(v, v)
	m.VADDPS(eps, v, v)
	m.VMULPS(lr, direction, direction)
	m.VDIVPS(v, direction, direction)
	m.VSUBPS(direction, p, p)
}

// finitePrefix needs no mask: plain Go handles the remainder.
func finitePrefix(m *machine) {
	const unroll = 4
	m.function("FinitePrefix", "func(x []float32) (n int)",
		"returns the length of a finite prefix of x, near its first other element or end.")
	x, left, n := m.base("x"), m.length("x"), m.GP64()
	m.XORQ(n, n)
	exponent := m.constant(0xff << 23)
	m.Label("loop")
	m.CMPQ(left, operand.U32(uint32(unroll*m.lanes)))
	m.JLT(operand.LabelRef("done"))
	largest := m.reg()
	for u := range unroll {
		v := m.load(operand.Mem{Base: x, Index: n, Scale: 4, Disp: u * m.bytes()})
		m.and(exponent, v)
		if u == 0 {
			m.move(v, largest)
		} else {
			m.VPMAXUD(v, largest, largest)
		}
	}
	if m.wide {
		k := m.K()
		m.VPCMPEQD(exponent, largest, k)
		m.KORTESTW(k, k)
	} else {
		m.VPCMPEQD(exponent, largest, largest)
		m.VPTEST(largest, largest)
	}
	m.JNZ(operand.LabelRef("done"))
	m.ADDQ(operand.U32(uint32(unroll*m.lanes)), n)
	m.SUBQ(operand.U32(uint32(unroll*m.lanes)), left)
	m.JMP(operand.LabelRef("loop"))
	m.Label("done")
	m.Store(n, m.Return("n"))
	m.end()
}

// transpose moves blocks of 8x8 in both sets: wider blocks gain little.
func transpose(m *machine) {
	m.function("Transpose8", "func(dst *float32, dstRow int, src *float32, srcRow, blocks int)",
		"transposes blocks of 8 by 8 side by side in src; rows are in bytes.")
	dst, src, dstRow, srcRow, blocks := m.GP64(), m.GP64(), m.GP64(), m.GP64(), m.GP64()
	m.Load(m.Param("dst"), dst)
	m.Load(m.Param("src"), src)
	m.Load(m.Param("dstRow"), dstRow)
	m.Load(m.Param("srcRow"), srcRow)
	m.Load(m.Param("blocks"), blocks)
	p := m.GP64()
	m.Label("loop")
	m.MOVQ(src, p)
	var row [8]operand.Op
	for r := range row {
		v := m.YMM()
		m.VMOVUPS(at(p, 0), v)
		row[r] = v
		m.ADDQ(srcRow, p)
	}
	pairs := func(low, high func(a, b, c operand.Op), distance int) {
		for i := range 8 {
			if i&distance == 0 {
				x, y := m.YMM(), m.YMM()
				low(row[i+distance], row[i], x)
				high(row[i+distance], row[i], y)
				row[i], row[i+distance] = x, y
			}
		}
	}
	// Interleave 32-bit neighbours, 64-bit ones, then 128-bit halves; the first two steps return
	// rows in another order.
	pairs(func(a, b, c operand.Op) { m.VUNPCKLPS(a, b, c) }, func(a, b, c operand.Op) { m.VUNPCKHPS(a, b, c) }, 1)
	pairs(func(a, b, c operand.Op) { m.VUNPCKLPD(a, b, c) }, func(a, b, c operand.Op) { m.VUNPCKHPD(a, b, c) }, 2)
	pairs(func(a, b, c operand.Op) { m.VPERM2F128(operand.U8(0x20), a, b, c) },
		func(a, b, c operand.Op) { m.VPERM2F128(operand.U8(0x31), a, b, c) }, 4)
	for _, r := range []int{0, 2, 1, 3, 4, 6, 5, 7} {
		m.VMOVUPS(row[r], at(dst, 0))
		m.ADDQ(dstRow, dst)
	}
	m.ADDQ(operand.U8(32), src)
	m.DECQ(blocks)
	m.JNZ(operand.LabelRef("loop"))
	m.end()
}

// copyRows packs a panel of B.
func copyRows(m *machine) {
	m.function("CopyRows", "func(dst, src *float32, srcRow, rows, columns int)",
		"copies rows of at most two vectors to rows of two vectors; srcRow is in bytes.")
	dst, src, srcRow, rows, n, scratch := m.GP64(), m.GP64(), m.GP64(), m.GP64(), m.GP64(), m.GP64()
	m.Load(m.Param("dst"), dst)
	m.Load(m.Param("src"), src)
	m.Load(m.Param("srcRow"), srcRow)
	m.Load(m.Param("rows"), rows)
	m.Load(m.Param("columns"), n)
	m.first(n, scratch)
	low := m.mask
	m.SUBQ(operand.U32(uint32(m.lanes)), n)
	m.XORQ(scratch, scratch)
	m.CMPQ(n, scratch)
	m.CMOVQLT(scratch, n)
	m.first(n, scratch)
	high := m.mask
	m.Label("row")
	for i, mask := range []reg.Register{low, high} {
		m.mask = mask
		v := m.load(at(src, i*m.bytes()))
		m.mask = nil
		m.store(v, at(dst, i*m.bytes()))
	}
	m.ADDQ(srcRow, src)
	m.ADDQ(operand.U32(uint32(2*m.bytes())), dst)
	m.DECQ(rows)
	m.JNZ(operand.LabelRef("row"))
	m.end()
}

// fmaPeak generates a loop with enough independent chains of multiply-adds to hide their latency.
func fmaPeak(m *machine) {
	const chains = 12
	m.function("FmaPeak", "func(iterations int) (flops int)", "returns the operations that it did.")
	n, flops := m.GP64(), m.GP64()
	m.Load(m.Param("iterations"), n)
	m.IMUL3Q(operand.U32(uint32(2*chains*m.lanes)), n, flops)
	factor, sum := m.physical(13), m.physical(14)
	m.zero(factor)
	m.zero(sum)
	for i := range chains {
		m.zero(m.physical(i))
	}
	m.TESTQ(n, n)
	m.JLE(operand.LabelRef("done"))
	m.Label("loop")
	for i := range chains {
		m.VFMADD231PS(factor, sum, m.physical(i))
	}
	m.DECQ(n)
	m.JNZ(operand.LabelRef("loop"))
	m.Label("done")
	m.Store(flops, m.Return("flops"))
	m.end()
}

// pause generates the instruction for loops that wait. All processors have it.
func pause(c *build.Context) {
	c.Function("Pause")
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr("func()")
	c.Doc("Pause does nothing for some tens of cycles.")
	c.PAUSE()
	c.RET()
}
