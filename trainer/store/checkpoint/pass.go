package checkpoint

import (
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"slices"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
)

// section is a wanted part of a file: the bytes from at on, as many as into takes.
type section struct {
	at   int64
	into []float32
}

// block is the number of bytes per read.
const block = 1 << 20

// piece is a part of a file of n bytes, with its place in memory. Its bytes are of no section if b
// is nil.
type piece struct {
	at int64
	n  int
	b  []byte
}

// pass reads a file once, from its first byte to its last, returns its checksum, and fills the
// sections, which are in order. Another processor maps the memory, as that takes as long as reading
// into it. Each piece is summed up at once, out of the cache.
func pass(f io.ReaderAt, size int64, wanted []section) (crc uint32, err error) {
	mapped, stop := make(chan piece, 4), make(chan struct{})
	go func() {
		defer close(mapped)
		for next := range pieces(size, wanted) {
			prepare(next.b)
			select {
			case mapped <- next:
			case <-stop:
				return
			}
		}
	}()
	defer close(stop)
	var scratch []byte
	for next := range mapped {
		b := next.b
		if b == nil {
			scratch = slices.Grow(scratch, next.n)
			b = scratch[:next.n]
		}
		if n, failed := f.ReadAt(b, next.at); n < len(b) {
			return 0, fmt.Errorf("read %d bytes at %d: %w", len(b), next.at, failed)
		}
		crc = crc32.Update(crc, castagnoli, b)
	}
	for _, s := range wanted {
		param.Decode(s.into)
	}
	return crc, nil
}

// pieces cuts a file into pieces of a block at most.
func pieces(size int64, wanted []section) iter.Seq[piece] {
	return func(yield func(piece) bool) {
		for at := int64(0); at < size; {
			next := piece{at: at}
			if len(wanted) > 0 && at >= wanted[0].at {
				b := param.Bytes(wanted[0].into)[at-wanted[0].at:]
				next.b = b[:min(len(b), block)]
				next.n = len(next.b)
				if next.n == len(b) {
					wanted = wanted[1:]
				}
			} else {
				until := size
				if len(wanted) > 0 {
					until = wanted[0].at
				}
				next.n = int(min(until-at, block))
			}
			at += int64(next.n)
			if !yield(next) {
				return
			}
		}
	}
}
