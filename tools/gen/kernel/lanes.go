package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Conditions are k registers for AVX-512, vectors of all ones or zeros for AVX2.

// condition returns a new register for a condition.
func (m *machine) condition() reg.Register {
	if m.wide {
		return m.K()
	}
	return m.YMM()
}

// greater returns the condition a > b.
func (m *machine) greater(a, b reg.VecVirtual) reg.Register {
	c := m.condition()
	m.VCMPPS(operand.U8(0x1e), b, a, c) // GT_OQ
	return c
}

// greaterOrNaN returns the condition that a > b, or a is NaN.
func (m *machine) greaterOrNaN(a, b reg.VecVirtual) reg.Register {
	c, isNaN := m.greater(a, b), m.condition()
	m.VCMPPS(operand.U8(0x03), a, a, isNaN) // UNORD_Q
	m.or(isNaN, c)
	return c
}

// equal returns the condition that the integers are equal.
func (m *machine) equal(a, b reg.VecVirtual) reg.Register {
	c := m.condition()
	m.VPCMPEQD(b, a, c)
	return c
}

// notBelow returns the condition a >= b for unsigned integers.
func (m *machine) notBelow(a, b reg.VecVirtual) reg.Register {
	c := m.condition()
	if m.wide {
		m.VPCMPUD(operand.U8(5), b, a, c)
	} else {
		m.VPMAXUD(b, a, c)
		m.VPCMPEQD(a, c, c)
	}
	return c
}

// keepAll returns the condition in a parameter, which is all ones or 0.
func (m *machine) keepAll(param string) reg.Register {
	if !m.wide {
		return m.scalar(param)
	}
	r, k := m.GP32(), m.K()
	m.Load(m.Param(param), r)
	m.KMOVW(r, k)
	return k
}

// or sets b to a or b.
func (m *machine) or(a, b reg.Register) {
	if m.wide {
		m.KORW(a, b, b)
	} else {
		m.VORPS(a, b, b)
	}
}

// clearUnless sets v to 0 where c is false.
func (m *machine) clearUnless(c reg.Register, v reg.VecVirtual) {
	if m.wide {
		m.VMOVAPS_Z(v, c, v)
	} else {
		m.VANDPS(c, v, v)
	}
}

// choose sets v to a where c is true.
func (m *machine) choose(c reg.Register, a, v reg.VecVirtual) {
	if m.wide {
		m.VMOVDQA32(a, c, v)
	} else {
		m.VBLENDVPS(c, a, v, v)
	}
}

func (m *machine) move(from, to reg.VecVirtual) { m.VMOVAPS(from, to) }

func (m *machine) and(a, v reg.VecVirtual) {
	if m.wide {
		m.VPANDD(a, v, v)
	} else {
		m.VPAND(a, v, v)
	}
}

func (m *machine) xor(a, v reg.VecVirtual) {
	if m.wide {
		m.VPXORD(a, v, v)
	} else {
		m.VPXOR(a, v, v)
	}
}

// loadBytes loads bytes as 32-bit integers; only AVX-512 applies the mask.
func (m *machine) loadBytes(mem operand.Mem) reg.VecVirtual {
	v := m.reg()
	if m.wide && m.mask != nil {
		m.VPMOVZXBD_Z(mem, m.mask, v)
	} else {
		m.VPMOVZXBD(mem, v)
	}
	return v
}

// storeBytes stores the low bytes of 32-bit integers below 128; only AVX-512 applies the mask.
func (m *machine) storeBytes(v reg.VecVirtual, mem operand.Mem) {
	if m.wide {
		if m.mask != nil {
			m.VPMOVDB(v, m.mask, mem)
		} else {
			m.VPMOVDB(v, mem)
		}
		return
	}
	high := m.XMM()
	m.VEXTRACTI128(operand.U8(1), v, high)
	m.VPACKSSDW(high, v.AsX(), high)
	m.VPACKSSWB(high, high, high)
	m.VMOVQ(high, mem)
}
