package example

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// A Value is a feature to be written. At most one of its lists may be non-nil.
type Value struct {
	Name   string
	Bytes  [][]byte
	Floats []float32
	Ints   []int64
}

// Append appends a record of the features, in this order, to dst. The same
// features give the same bytes. It panics if a value has more than one list.
func Append(dst []byte, values ...Value) []byte {
	total := 0
	for _, v := range values {
		total += sizeOf(1, v.entrySize())
	}
	dst = appendHeader(dst, 1, total)
	for _, v := range values {
		dst = v.append(dst)
	}
	return dst
}

func (v Value) append(dst []byte) []byte {
	dst = appendHeader(dst, 1, v.entrySize())
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	dst = protowire.AppendString(dst, v.Name)
	kind, size := v.kind(), v.listSize()
	if kind == None {
		return appendHeader(dst, 2, 0)
	}
	dst = appendHeader(dst, 2, sizeOf(protowire.Number(kind), size))
	dst = appendHeader(dst, protowire.Number(kind), size)
	for _, b := range v.Bytes {
		dst = protowire.AppendTag(dst, 1, protowire.BytesType)
		dst = protowire.AppendBytes(dst, b)
	}
	if n := v.packedSize(); n > 0 {
		dst = appendHeader(dst, 1, n)
	}
	for _, f := range v.Floats {
		dst = protowire.AppendFixed32(dst, math.Float32bits(f))
	}
	for _, i := range v.Ints {
		dst = protowire.AppendVarint(dst, uint64(i))
	}
	return dst
}

func (v Value) kind() Kind {
	k, n := None, 0
	for i, there := range []bool{v.Bytes != nil, v.Floats != nil, v.Ints != nil} {
		if there {
			k, n = Kind(i+1), n+1
		}
	}
	if n > 1 {
		panic(fmt.Sprintf("example: feature %q has %d lists", v.Name, n))
	}
	return k
}

// entrySize returns the size in bytes of the feature's map entry, without tag and length.
func (v Value) entrySize() int {
	feature := 0
	if k := v.kind(); k != None {
		feature = sizeOf(protowire.Number(k), v.listSize())
	}
	return sizeOf(1, len(v.Name)) + sizeOf(2, feature)
}

// listSize returns the size in bytes of the list, without tag and length.
func (v Value) listSize() int {
	n := 0
	for _, b := range v.Bytes {
		n += sizeOf(1, len(b))
	}
	if p := v.packedSize(); p > 0 {
		n += sizeOf(1, p)
	}
	return n
}

// packedSize returns the size in bytes of the packed numbers, without tag and length; 0 if there
// are none.
func (v Value) packedSize() int {
	n := 4 * len(v.Floats)
	for _, i := range v.Ints {
		n += protowire.SizeVarint(uint64(i))
	}
	return n
}

// sizeOf returns the size in bytes of a field of n bytes, with tag and length.
func sizeOf(num protowire.Number, n int) int {
	return protowire.SizeTag(num) + protowire.SizeBytes(n)
}

func appendHeader(dst []byte, num protowire.Number, n int) []byte {
	dst = protowire.AppendTag(dst, num, protowire.BytesType)
	return protowire.AppendVarint(dst, uint64(n))
}
