package ring

import "slices"

// relaySegment is the number of bytes that are passed on at a time.
const relaySegment = 256 << 10

// Chain returns from which rank a rank receives a state that the sources have, and to which it
// passes it on; -1: none. Every rank that is not a source receives from the one before it in the
// ring. There must be at least one source.
func Chain(rank, size int, sources []int) (from, to int) {
	from, to = -1, -1
	if len(sources) == 0 {
		panic("ring.Chain: no source")
	}
	if !slices.Contains(sources, rank) {
		from = (rank - 1 + size) % size
	}
	if next := (rank + 1) % size; !slices.Contains(sources, next) {
		to = next
	}
	return from, to
}

// Relay fills b from one rank and passes it on to another while it comes in. If from is -1, b has
// its content already; if to is -1, b is not passed on.
func Relay(l Link, from, to int, b []byte) error {
	for part := range slices.Chunk(b, relaySegment) {
		if from >= 0 {
			if err := l.Recv(from, part); err != nil {
				return err
			}
		}
		if to >= 0 {
			if err := l.Send(to, part); err != nil {
				return err
			}
		}
	}
	return l.Flush()
}

// RelayFloats is [Relay] of numbers.
func RelayFloats(l Link, from, to int, x []float32) error { return Relay(l, from, to, raw(x)) }
