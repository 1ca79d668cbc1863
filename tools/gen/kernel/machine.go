package main

import (
	"go/token"
	"go/types"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/gotypes"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// isa is an instruction set.
type isa struct {
	name  string // name in file names
	upper string // name in Go names
	lanes int    // number of float32 in a vector
	wide  bool   // AVX-512: k registers, 32 vectors
}

var (
	avx512 = isa{"avx512", "AVX512", 16, true}
	avx2   = isa{"avx2", "AVX2", 8, false}
)

// target is the package for which code is generated, with the types in its signatures.
var target = func() *types.Package {
	p := types.NewPackage("", "")
	name := types.NewTypeName(token.NoPos, p, "Tile", nil)
	types.NewNamed(name, types.NewStruct(nil, nil), nil)
	p.Scope().Insert(name)
	p.MarkComplete()
	return p
}()

// machine generates functions for one instruction set. Its methods take and return vectors of full
// width; while a mask is set, loads and stores apply to the first elements only.
type machine struct {
	*build.Context
	isa
	// k register or vector; nil = whole vectors
	mask reg.Register
	// AVX2: lanes times -1, lanes times 0
	table operand.Mem
	// 0, 1, 2 ...
	iota operand.Mem
}

func newMachine(i isa) *machine {
	m := &machine{Context: build.NewContext(), isa: i}
	m.iota = m.static("iota", i.lanes, func(lane int) uint32 { return uint32(lane) })
	if !i.wide {
		m.table = m.static("lanes", 2*i.lanes, func(lane int) uint32 { return uint32(int32(lane-i.lanes) >> 31) })
	}
	return m
}

// static returns a table of n 32-bit values.
func (m *machine) static(name string, n int, value func(i int) uint32) operand.Mem {
	mem := m.StaticGlobal(name + m.upper)
	m.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := range n {
		m.AddDatum(4*i, operand.U32(value(i)))
	}
	return mem
}

// function begins a function.
func (m *machine) function(name, signature, doc string) {
	m.Function(name + m.upper)
	m.Attributes(attr.NOSPLIT)
	sig, err := gotypes.ParseSignatureInPackage(target, signature)
	if err != nil {
		panic(err)
	}
	m.Signature(sig)
	m.Pragma("noescape")
	m.Doc(name + m.upper + " " + doc)
	m.mask = nil
}

// end ends a function.
func (m *machine) end() {
	m.VZEROUPPER()
	m.RET()
}

func (m *machine) bytes() int { return 4 * m.lanes }

// reg returns a new vector register.
func (m *machine) reg() reg.VecVirtual {
	if m.wide {
		return m.ZMM()
	}
	return m.YMM()
}

// physical returns vector register i.
func (m *machine) physical(i int) reg.VecPhysical {
	if m.wide {
		return [...]reg.VecPhysical{
			reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7, reg.Z8, reg.Z9, reg.Z10,
			reg.Z11, reg.Z12, reg.Z13, reg.Z14, reg.Z15, reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21,
			reg.Z22, reg.Z23, reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31,
		}[i]
	}
	return [...]reg.VecPhysical{
		reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7, reg.Y8, reg.Y9, reg.Y10,
		reg.Y11, reg.Y12, reg.Y13, reg.Y14, reg.Y15,
	}[i]
}

// zero clears v.
func (m *machine) zero(v operand.Op) {
	if m.wide {
		m.VPXORD(v, v, v)
	} else {
		m.VXORPS(v, v, v)
	}
}

// load loads the elements at mem, and 0 where the mask excludes them.
func (m *machine) load(mem operand.Mem) reg.VecVirtual {
	v := m.reg()
	m.loadTo(mem, v)
	return v
}

func (m *machine) loadTo(mem operand.Mem, v operand.Op) {
	switch {
	case m.mask == nil:
		m.VMOVUPS(mem, v)
	case m.wide:
		m.VMOVUPS_Z(mem, m.mask, v)
	default:
		m.VMASKMOVPS(mem, m.mask, v)
	}
}

func (m *machine) store(v operand.Op, mem operand.Mem) {
	switch {
	case m.mask == nil:
		m.VMOVUPS(v, mem)
	case m.wide:
		m.VMOVUPS(v, m.mask, mem)
	default:
		m.VMASKMOVPS(v, m.mask, mem)
	}
}

// first sets the mask to the first n elements, or to all if n is lanes or more; scratch is
// overwritten.
func (m *machine) first(n, scratch reg.GPVirtual) {
	m.MOVQ(operand.U32(uint32(m.lanes)), scratch)
	m.CMPQ(n, scratch)
	m.CMOVQLT(n, scratch)
	if m.wide {
		bits, k := m.GP32(), m.K()
		m.MOVL(operand.U32(0xffff), bits)
		m.BZHIL(scratch.As32(), bits, bits)
		m.KMOVW(bits, k)
		m.mask = k
		return
	}
	table, v := m.GP64(), m.YMM()
	m.LEAQ(m.table, table)
	m.NEGQ(scratch)
	m.VMOVUPS(operand.Mem{Base: table, Index: scratch, Scale: 4, Disp: m.bytes()}, v)
	m.mask = v
}

// scalar broadcasts a float32 or uint32 parameter.
func (m *machine) scalar(param string) reg.VecVirtual {
	b, err := m.Param(param).Resolve()
	if err != nil {
		panic(err)
	}
	v := m.reg()
	m.VBROADCASTSS(b.Addr, v)
	return v
}

// constant broadcasts 32 bits.
func (m *machine) constant(bits uint32) reg.VecVirtual {
	r, v := m.GP32(), m.reg()
	m.MOVL(operand.U32(bits), r)
	if m.wide {
		m.VPBROADCASTD(r, v)
	} else {
		x := m.XMM()
		m.VMOVD(r, x)
		m.VPBROADCASTD(x, v)
	}
	return v
}

// base and length load a slice parameter.
func (m *machine) base(param string) reg.GPVirtual {
	r := m.GP64()
	m.Load(m.Param(param).Base(), r)
	return r
}

func (m *machine) length(param string) reg.GPVirtual {
	r := m.GP64()
	m.Load(m.Param(param).Len(), r)
	return r
}

func at(base reg.Register, disp int) operand.Mem { return operand.Mem{Base: base, Disp: disp} }
