package ring

import (
	"encoding/binary"
	"fmt"
)

// MaxHeader is the number of bytes that a rank may give to [Gather].
const MaxHeader = 1 << 16

// Gather returns what every rank gave, by rank.
func Gather(l Link, rank, size int, mine []byte) ([][]byte, error) {
	if len(mine) > MaxHeader {
		return nil, fmt.Errorf("gather: a header of %d bytes, at most %d", len(mine), MaxHeader)
	}
	blocks := make([][]byte, 1, size) // of the ranks from this one on
	blocks[0] = mine
	for d := 1; d < size; d *= 2 {
		n := min(d, size-d)
		if err := sendBlocks(l, (rank-d+size)%size, blocks[:n]); err != nil {
			return nil, err
		}
		from := (rank + d) % size
		lengths := make([]byte, 4*n)
		if err := l.Recv(from, lengths); err != nil {
			return nil, err
		}
		more, all, err := parseLengths(lengths)
		if err != nil {
			return nil, fmt.Errorf("gather from rank %d: %w", from, err)
		}
		if err := l.Recv(from, all); err != nil {
			return nil, err
		}
		blocks = append(blocks, more...)
	}
	byRank := make([][]byte, size)
	for i, b := range blocks {
		byRank[(rank+i)%size] = b
	}
	return byRank, nil
}

// sendBlocks sends lengths and blocks together, if that is less than [Whole].
func sendBlocks(l Link, to int, blocks [][]byte) error {
	b := appendBlocks(nil, blocks)
	if len(b) < Whole {
		return l.Send(to, b)
	}
	lengths := 4 * len(blocks)
	if err := l.Send(to, b[:lengths]); err != nil {
		return err
	}
	return l.Send(to, b[lengths:])
}

// appendBlocks appends the length of each block, of 4 bytes, little endian, and then the blocks.
func appendBlocks(b []byte, blocks [][]byte) []byte {
	for _, x := range blocks {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(x)))
	}
	for _, x := range blocks {
		b = append(b, x...)
	}
	return b
}

// parseLengths frees space for blocks of these lengths: all of it is to be received.
func parseLengths(lengths []byte) (blocks [][]byte, all []byte, err error) {
	total := 0
	for i := 0; i < len(lengths); i += 4 {
		n := binary.LittleEndian.Uint32(lengths[i:])
		if n > MaxHeader {
			return nil, nil, fmt.Errorf("a header of %d bytes, at most %d", n, MaxHeader)
		}
		total += int(n)
	}
	all = make([]byte, total)
	rest := all
	for i := 0; i < len(lengths); i += 4 {
		n := binary.LittleEndian.Uint32(lengths[i:])
		blocks = append(blocks, rest[:n:n])
		rest = rest[n:]
	}
	return blocks, all, nil
}
