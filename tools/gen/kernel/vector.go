package main

import (
	"github.com/mmcloughlin/avo/operand"
)

func vectors(m *machine) {
	fmaPeak(m)
}

// fmaPeak is a loop of as many independent chains of multiply-adds as hide their latency.
func fmaPeak(m *machine) {
	const chains = 12
	m.function("fmaPeak", "func(iterations int) (flops int)", "returns the operations that it did.")
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
