package param

import (
	"encoding/binary"
	"slices"
	"unsafe"
)

// LittleEndian reports whether this machine stores float32s in memory as files and the wire do. It
// is a variable so that tests can set it.
var LittleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// Bytes returns the memory of x, not a copy.
func Bytes(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

func swap(b []byte) {
	for i := 0; i+4 <= len(b); i += 4 {
		slices.Reverse(b[i : i+4])
	}
}

// Encoded returns the bytes of x in the format of files and of the wire: the memory of x itself on
// a little-endian machine, else a copy.
func Encoded(x []float32) []byte {
	b := Bytes(x)
	if !LittleEndian {
		b = slices.Clone(b)
		swap(b)
	}
	return b
}

// Decode converts x in place, after its memory was filled with bytes from a file or the wire.
func Decode(x []float32) {
	if !LittleEndian {
		swap(Bytes(x))
	}
}
