package param

import (
	"encoding/binary"
	"slices"
	"unsafe"
)

// LittleEndian reports whether float32s lie in memory as they do in files and on the wire. It is a variable for tests of the other case.
var LittleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// Bytes returns the memory of x.
func Bytes(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

func swap(b []byte) {
	for i := 0; i+4 <= len(b); i += 4 {
		slices.Reverse(b[i : i+4])
	}
}

// Encoded returns x as it is in files and on the wire: the memory of x itself if that is the same.
func Encoded(x []float32) []byte {
	b := Bytes(x)
	if !LittleEndian {
		b = slices.Clone(b)
		swap(b)
	}
	return b
}

// Decode makes x, whose memory was filled from a file or the wire, what was meant.
func Decode(x []float32) {
	if !LittleEndian {
		swap(Bytes(x))
	}
}
