package checkpoint

import (
	"fmt"
	"hash/crc32"
	"io"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
)

// section is a wanted part of a file: the bytes from at on, as many as into takes.
type section struct {
	at   int64
	into []float32
}

// block is the number of bytes per read.
const block = 1 << 20

// piece is a part of a file with its place in memory.
type piece struct {
	at      int64
	b       []byte
	scratch bool // of no section
}

// pass reads a file once, from its first byte to its last, returns its checksum, and fills the
// sections, which are in order. Three processors have a part in it: one maps the memory, as that
// takes as long as reading into it, one reads, and one sums up.
func pass(f io.ReaderAt, size int64, wanted []section) (crc uint32, err error) {
	p := passing{cut: make(chan piece, 4), read: make(chan piece, 4), free: make(chan []byte, 4),
		stop: make(chan struct{})}
	go p.pieces(size, wanted)
	summed := make(chan uint32)
	go func() { summed <- p.sum() }()
	for next := range p.cut {
		n, failed := f.ReadAt(next.b, next.at)
		if n < len(next.b) {
			err = fmt.Errorf("read %d bytes at %d: %w", len(next.b), next.at, failed)
			break
		}
		p.read <- next
	}
	close(p.stop)
	close(p.read)
	crc = <-summed
	for _, s := range wanted {
		param.Decode(s.into)
	}
	return crc, err
}

// passing is the goroutines of a pass.
type passing struct {
	cut, read chan piece
	free      chan []byte // scratch that was read and summed up
	stop      chan struct{}
}

// pieces cuts a file into pieces, whose memory is there.
func (p *passing) pieces(size int64, wanted []section) {
	defer close(p.cut)
	made := 0
	for at := int64(0); at < size; {
		next := piece{at: at}
		if len(wanted) > 0 && at >= wanted[0].at {
			b := param.Bytes(wanted[0].into)[at-wanted[0].at:]
			next.b = b[:min(len(b), block)]
			prepare(next.b)
			if len(next.b) == len(b) {
				wanted = wanted[1:]
			}
		} else {
			until := size
			if len(wanted) > 0 {
				until = wanted[0].at
			}
			b, ok := p.scratch(&made, int(min(size, block)))
			if !ok {
				return
			}
			next.b, next.scratch = b[:min(until-at, int64(len(b)))], true
		}
		at += int64(len(next.b))
		select {
		case p.cut <- next:
		case <-p.stop:
			return
		}
	}
}

// scratch returns memory that is free, made of which there is some of already.
func (p *passing) scratch(made *int, size int) ([]byte, bool) {
	if *made < cap(p.free) {
		*made++
		return make([]byte, size), true
	}
	select {
	case b := <-p.free:
		return b, true
	case <-p.stop:
		return nil, false
	}
}

// sum returns the checksum of what is read.
func (p *passing) sum() (crc uint32) {
	for next := range p.read {
		crc = crc32.Update(crc, castagnoli, next.b)
		if next.scratch {
			p.free <- next.b[:cap(next.b)]
		}
	}
	return crc
}
