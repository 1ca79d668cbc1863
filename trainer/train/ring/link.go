package ring

import (
	"slices"
	"unsafe"
)

// Link connects a rank with the other ranks. Between two ranks bytes arrive completely and in
// order.
type Link interface {
	// Send sends b. It waits for the other to receive only when more than Ahead sends to it would
	// be under way. b is not changed before Flush has returned, or the other is known to have
	// received it.
	Send(to int, b []byte) error
	// Recv fills b. A send of Whole bytes or more is received in one Recv of as many, which takes
	// nothing else.
	Recv(from int, b []byte) error
	// Flush waits until the caller may change all that was sent.
	Flush() error
}

// Ahead limits the sends to a rank that are in flight.
const Ahead = 8

// Whole is the size in bytes from which on a message is received as it was sent: a link may leave
// it with its sender until then.
const Whole = 32 << 10

// Peers are the ranks, in order, that a rank talks to: those at a distance of a power of two on
// either side.
func Peers(rank, size int) []int {
	var peers []int
	for d := 1; d < size; d *= 2 {
		peers = append(peers, (rank+d)%size, (rank-d+size)%size)
	}
	slices.Sort(peers)
	return slices.Compact(peers)
}

// raw returns the memory of x as bytes.
func raw(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}
